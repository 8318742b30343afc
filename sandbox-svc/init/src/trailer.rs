//! How the commands of a frame ended, as the last bytes of both output streams behind the frame's nonce. Whoever
//! does not know the nonce cannot write a trailer, and whatever a command writes is never taken for one.

use crate::frame::{MAX_COMMANDS, Nonce};

const VERSION: u8 = 1;
/// Version, stop, number of ends.
const HEAD: usize = 4;
/// Kind, value, duration.
const END: usize = 13;

/// How one command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Exited(u8),
    Signaled(u8),
    /// It never ran; the number is the operating system's.
    ExecFailed(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub end: End,
    pub duration_ms: u64,
}

/// Whether the commands were left to end by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    None,
    /// The frame's time limit ended them.
    TimeLimit,
    /// A termination signal from outside did.
    Terminated,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trailer {
    pub stop: Stop,
    /// Of the commands that were begun, in order.
    pub ends: Vec<Ended>,
}

impl Trailer {
    /// The nonce and what follows it.
    #[must_use]
    pub fn to_bytes(&self, nonce: &Nonce) -> Vec<u8> {
        let mut bytes = nonce.as_bytes().to_vec();
        let stop = match self.stop {
            Stop::None => 0,
            Stop::TimeLimit => 1,
            Stop::Terminated => 2,
        };
        let count = u16::try_from(self.ends.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&[VERSION, stop]);
        bytes.extend_from_slice(&count.to_be_bytes());
        for Ended { end, duration_ms } in &self.ends {
            let (kind, value) = match *end {
                End::Exited(code) => (0, i32::from(code)),
                End::Signaled(signal) => (1, i32::from(signal)),
                End::ExecFailed(errno) => (2, errno),
            };
            bytes.push(kind);
            bytes.extend_from_slice(&value.to_be_bytes());
            bytes.extend_from_slice(&duration_ms.to_be_bytes());
        }
        bytes
    }

    /// What follows the nonce, whole and with nothing behind it.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let &[VERSION, stop, high, low] = head else { return None };
        let stop = match stop {
            0 => Stop::None,
            1 => Stop::TimeLimit,
            2 => Stop::Terminated,
            _ => return None,
        };
        let count = usize::from(u16::from_be_bytes([high, low]));
        if count > MAX_COMMANDS || rest.len() != count * END {
            return None;
        }
        let ends = rest.chunks_exact(END).map(Ended::parse).collect::<Option<_>>()?;
        Some(Self { stop, ends })
    }
}

impl Ended {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (value, duration) = rest.split_at_checked(4)?;
        let value = i32::from_be_bytes(value.try_into().ok()?);
        let end = match kind {
            0 => End::Exited(u8::try_from(value).ok()?),
            1 => End::Signaled(u8::try_from(value).ok()?),
            2 => End::ExecFailed(value),
            _ => return None,
        };
        Some(Self { end, duration_ms: u64::from_be_bytes(duration.try_into().ok()?) })
    }
}

/// Parts the trailer from what commands wrote on a stream, however the two are cut into pieces. It holds
/// back at most a nonce less one byte, and only where those bytes could be its beginning.
#[derive(Debug)]
pub struct Sieve {
    nonce: Nonce,
    /// Bytes that may be the beginning of the nonce.
    held: Vec<u8>,
    /// What followed the nonce.
    found: Option<Vec<u8>>,
}

/// What a stream ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Bytes of a command that looked like a nonce's beginning.
    None(Vec<u8>),
    Trailer(Trailer),
    /// The nonce, and then not a whole trailer.
    Broken,
}

/// Where the nonce begins. A byte that is not in it rules out all beginnings up to there, so that of most output only
/// each sixteenth byte is looked at.
fn find(bytes: &[u8], nonce: &[u8; Nonce::LENGTH]) -> Option<usize> {
    let mut steps = [Nonce::LENGTH; 256];
    for (at, byte) in nonce.iter().enumerate().take(Nonce::LENGTH - 1) {
        steps[usize::from(*byte)] = Nonce::LENGTH - 1 - at;
    }
    let mut at = 0;
    loop {
        let window = bytes.get(at..at + Nonce::LENGTH)?;
        if window == nonce {
            return Some(at);
        }
        at += window.last().map_or(1, |last| steps[usize::from(*last)]);
    }
}

impl Sieve {
    #[must_use]
    pub fn new(nonce: Nonce) -> Self {
        Self { nonce, held: Vec::new(), found: None }
    }

    /// Whether a whole trailer has been seen.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.found.as_deref().and_then(Trailer::parse).is_some()
    }

    /// What of `bytes`, and of what was held back before, is a command's.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        if let Some(found) = &mut self.found {
            let room = (HEAD + MAX_COMMANDS * END + 1).saturating_sub(found.len());
            found.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let nonce = self.nonce.as_bytes();
        if let Some(at) = find(&all, nonce) {
            let rest = all.split_off(at);
            self.found = Some(Vec::new());
            self.pass(&rest[Nonce::LENGTH..]);
            return all;
        }
        let longest = all.len().min(Nonce::LENGTH - 1);
        let held = (0..=longest).rev().find(|held| nonce.starts_with(&all[all.len() - held..]));
        self.held = all.split_off(all.len() - held.unwrap_or(0));
        all
    }

    #[must_use]
    pub fn end(self) -> Found {
        match self.found {
            None => Found::None(self.held),
            Some(found) => Trailer::parse(&found).map_or(Found::Broken, Found::Trailer),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{End, Ended, Found, Sieve, Stop, Trailer, find};
    use crate::frame::Nonce;

    /// With a repeated beginning, so that holding back is not trivial.
    fn nonce() -> Nonce {
        Nonce::new(*b"ababababababc\0\xff!")
    }

    fn trailer() -> Trailer {
        let ends = [End::Exited(0), End::Signaled(9), End::ExecFailed(13)];
        let ends = ends.map(|end| Ended { end, duration_ms: 300 }).to_vec();
        Trailer { stop: Stop::Terminated, ends }
    }

    fn sifted(pieces: &[&[u8]]) -> (Vec<u8>, Found) {
        let mut sieve = Sieve::new(nonce());
        let passed = pieces.iter().flat_map(|piece| sieve.pass(piece)).collect();
        (passed, sieve.end())
    }

    #[test]
    fn what_a_command_wrote_and_the_trailer_are_parted_at_every_cut() {
        let mut whole = b"oops abababab ababababababc\0".to_vec();
        let wrote = whole.clone();
        whole.extend_from_slice(&trailer().to_bytes(&nonce()));
        for cut in 0..=whole.len() {
            let (one, two) = whole.split_at(cut);
            assert_eq!(sifted(&[one, two]), (wrote.clone(), Found::Trailer(trailer())), "{cut}");
        }
        let bytes: Vec<_> = whole.chunks(1).collect();
        assert_eq!(sifted(&bytes), (wrote, Found::Trailer(trailer())));
    }

    #[test]
    fn live_output_is_held_back_only_where_it_could_be_the_nonce() {
        let mut sieve = Sieve::new(nonce());
        assert_eq!(sieve.pass(b"line\n"), b"line\n");
        assert_eq!(sieve.pass(b"xaba"), b"x");
        assert_eq!(sieve.pass(b"c"), b"abac");
        assert_eq!(sieve.pass(b"ab"), b"");
        assert_eq!(sieve.end(), Found::None(b"ab".to_vec()));
    }

    #[test]
    fn a_trailer_that_is_cut_or_followed_is_no_trailer() {
        let whole = trailer().to_bytes(&nonce());
        for cut in Nonce::LENGTH..whole.len() {
            assert_eq!(sifted(&[&whole[..cut]]).1, Found::Broken, "{cut}");
        }
        let longer = [whole.as_slice(), b"x"].concat();
        assert_eq!(sifted(&[&longer]).1, Found::Broken);
        let mut foreign = trailer().to_bytes(&Nonce::new([0; 16]));
        assert_eq!(sifted(&[&foreign]), (foreign.clone(), Found::None(Vec::new())));
        foreign.truncate(3);
        assert_eq!(sifted(&[&foreign]), (foreign.clone(), Found::None(Vec::new())));
    }

    proptest! {
        #[test]
        fn no_whole_line_is_held_back_where_the_nonce_has_no_end_of_a_line(
            random in prop::array::uniform16(prop::sample::select(b"a\n".to_vec())),
            lines in vec("[a\r]{0,20}\n", 1..4),
        ) {
            let nonce = Nonce::of_lines(random);
            let whole = lines.concat().into_bytes();
            let mut sieve = Sieve::new(nonce);
            let mut passed = Vec::new();
            for line in lines {
                passed.extend_from_slice(&sieve.pass(line.as_bytes()));
                prop_assert_eq!(passed.last(), Some(&b'\n'));
            }
            prop_assert_eq!(passed, whole);
        }

        #[test]
        fn nothing_that_a_command_writes_is_lost_or_taken_for_a_trailer(
            pieces in vec(vec(prop::sample::select(b"abc\0\xff!x".to_vec()), 0..40), 0..8)
        ) {
            let whole = pieces.concat();
            prop_assume!(!whole.windows(16).any(|window| window == nonce().as_bytes()));
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            let (mut passed, found) = sifted(&pieces);
            let Found::None(held) = found else { panic!("{found:?}") };
            passed.extend_from_slice(&held);
            prop_assert_eq!(passed, whole);
        }

        #[test]
        fn the_nonce_is_found_wherever_a_look_at_every_place_finds_it(
            wrote in vec(prop::sample::select(b"abc\0".to_vec()), 0..60),
            nonce in prop::array::uniform16(prop::sample::select(b"ab".to_vec())),
            at in 0..60_usize,
        ) {
            let mut bytes = wrote;
            bytes.splice(at.min(bytes.len())..at.min(bytes.len()), nonce);
            let first = bytes.windows(16).position(|window| window == nonce);
            prop_assert!(first.is_some());
            prop_assert_eq!(find(&bytes, &nonce), first);
            bytes.truncate(first.unwrap_or(0) + 15);
            prop_assert_eq!(find(&bytes, &nonce), None);
        }
    }
}
