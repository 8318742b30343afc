//! What an effect shows while it is under way, in pieces of a sensible size: words of a model, output of a command, the
//! start of a container. How much of a command's output is told is bounded; its result says the rest.

use event::id::CallId;
use event::{Actor, ActorKind, CallOutput, Data, MessageDelta, OutputStream, SandboxStarted};

use super::describe;
use crate::store::Change;
use crate::work::{Output, Work};

/// Of one call's output, what clients are shown live.
const MAX_SHOWN: u64 = 256 * 1024;
/// A piece that is this long waits for no more.
pub(crate) const PIECE: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    Said { request: CallId, index: u32, text: String },
    Started(SandboxStarted),
    Printed { call: CallId, stream: OutputStream, offset: u64, bytes: Vec<u8> },
}

/// The event that tells it.
pub(super) struct Told {
    pub(super) actor: Actor,
    pub(super) data: Data,
    pub(super) change: Option<Change>,
}

impl Progress {
    /// Nothing, when the stream holds it already or has held enough.
    pub(super) fn tell(self, work: &Work) -> Option<Told> {
        match self {
            Self::Said { request, index, text } => {
                let actor = Actor { kind: ActorKind::Agent, id: Some(work.id().to_string()) };
                let delta = MessageDelta { request_id: request.to_string(), index, text };
                Some(Told { actor, data: delta.into(), change: None })
            }
            Self::Started(started) => {
                let (call, attempt) = (started.call_id, started.attempt);
                let new = work.calls.get(&call).is_some_and(|known| known.announced < attempt);
                new.then(|| Told {
                    actor: describe::service(receipt::Executor::SandboxSvc),
                    data: started.into(),
                    change: Some(Change::Announced { call, attempt }),
                })
            }
            Self::Printed { call, stream, offset, bytes } => {
                let output = work.calls.get(&call)?.output;
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                if offset < output.offset || output.shown >= MAX_SHOWN {
                    return None;
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                Some(Told {
                    actor: describe::service(receipt::Executor::SandboxSvc),
                    data: CallOutput { call_id: call, stream, offset, bytes: length, text }.into(),
                    change: Some(Change::Output {
                        call,
                        output: Output { offset: offset + length, shown: output.shown + length },
                    }),
                })
            }
        }
    }
}

/// Gathers output into pieces that end at a line or at least at a character, each of one stream.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    stream: OutputStream,
    offset: u64,
    bytes: Vec<u8>,
}

/// A piece of one stream, and where it begins.
pub(crate) type Piece = (OutputStream, u64, Vec<u8>);

impl Pieces {
    /// Adds what came; returns what is ready by that.
    pub(crate) fn add(&mut self, stream: OutputStream, offset: u64, bytes: &[u8]) -> Vec<Piece> {
        let mut ready = Vec::new();
        let follows = self.held.as_ref().is_some_and(|held| {
            held.stream == stream && held.offset + length(&held.bytes) == offset
        });
        if !follows {
            ready.extend(self.flush());
        }
        let held = self.held.get_or_insert(Held { stream, offset, bytes: Vec::new() });
        held.bytes.extend_from_slice(bytes);
        while held.bytes.len() >= PIECE {
            let rest = held.bytes.split_off(end_of(&held.bytes[..PIECE]));
            let piece = std::mem::replace(&mut held.bytes, rest);
            let at = held.offset;
            held.offset += length(&piece);
            ready.push((stream, at, piece));
        }
        if held.bytes.is_empty() {
            self.held = None;
        }
        ready
    }

    /// Whether no line is complete that has not been told.
    pub(crate) fn is_settled(&self) -> bool {
        self.held.as_ref().is_none_or(|held| line_end(&held.bytes).is_none())
    }

    /// The lines that are complete. The rest waits: redaction judges each piece by itself, so what it must see as a whole
    /// is not cut in two for the sake of a moment.
    pub(crate) fn settle(&mut self) -> Option<Piece> {
        let held = self.held.as_mut()?;
        let rest = held.bytes.split_off(line_end(&held.bytes)?);
        let piece = std::mem::replace(&mut held.bytes, rest);
        let (stream, at) = (held.stream, held.offset);
        held.offset += length(&piece);
        if held.bytes.is_empty() {
            self.held = None;
        }
        Some((stream, at, piece))
    }

    /// Everything: nothing more of this stream follows.
    pub(crate) fn flush(&mut self) -> Option<Piece> {
        let Held { stream, offset, bytes } = self.held.take()?;
        Some((stream, offset, bytes))
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1)
}

/// Where to cut what is long: after the last line, else after the last whole character.
fn end_of(bytes: &[u8]) -> usize {
    line_end(bytes).unwrap_or_else(|| whole(bytes).max(1))
}

/// The length without a character that is cut off at the end; what is no UTF-8 anyway is not held back.
fn whole(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    for at in (tail..bytes.len()).rev() {
        let needed = match bytes[at] {
            0x00..=0x7f => return bytes.len(),
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
        };
        return if bytes.len() - at < needed { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use event::OutputStream::{Stderr, Stdout};
    use proptest::prelude::*;

    use super::{PIECE, Pieces};

    #[test]
    fn a_line_is_told_when_it_is_complete() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(Stdout, 0, b"one\ntwo"), []);
        assert_eq!(pieces.settle(), Some((Stdout, 0, b"one\n".to_vec())));
        assert!(pieces.is_settled());
        assert_eq!(pieces.settle(), None);
        assert_eq!(pieces.add(Stdout, 7, b" three\n"), []);
        assert_eq!(pieces.settle(), Some((Stdout, 4, b"two three\n".to_vec())));
        assert_eq!(pieces.flush(), None);
    }

    #[test]
    fn a_long_line_is_not_cut_inside_of_a_character() {
        let mut pieces = Pieces::default();
        let mut bytes = vec![b'x'; PIECE - 1];
        bytes.extend("é".as_bytes());
        assert_eq!(pieces.add(Stdout, 0, &bytes), [(Stdout, 0, vec![b'x'; PIECE - 1])]);
        assert_eq!(pieces.flush(), Some((Stdout, 16_383, "é".as_bytes().to_vec())));
    }

    #[test]
    fn the_other_stream_begins_a_new_piece() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(Stdout, 0, b"out"), []);
        assert_eq!(pieces.add(Stderr, 3, b"err"), [(Stdout, 0, b"out".to_vec())]);
        assert_eq!(pieces.flush(), Some((Stderr, 3, b"err".to_vec())));
        assert_eq!(pieces.flush(), None);
    }

    #[test]
    fn a_long_piece_ends_at_a_line() {
        let mut pieces = Pieces::default();
        let mut bytes = b"line\n".to_vec();
        bytes.extend(vec![b'x'; PIECE]);
        assert_eq!(
            pieces.add(Stdout, 0, &bytes),
            [(Stdout, 0, b"line\n".to_vec()), (Stdout, 5, vec![b'x'; PIECE])]
        );
        assert!(pieces.is_settled());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_is_lost_or_moved(chunks in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..20_000)), 0..4)
        ) {
            let (mut pieces, mut all, mut told) = (Pieces::default(), Vec::new(), Vec::new());
            for (first, bytes) in chunks {
                let stream = if first { Stdout } else { Stderr };
                let at = all.len() as u64;
                let ready = pieces.add(stream, at, &bytes);
                all.extend(bytes);
                told.extend(ready);
                told.extend(pieces.settle());
            }
            told.extend(pieces.flush());
            let mut again = Vec::new();
            for (_, offset, bytes) in told {
                prop_assert_eq!(offset, again.len() as u64);
                again.extend(bytes);
            }
            prop_assert_eq!(again, all);
        }
    }
}
