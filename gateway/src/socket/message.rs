//! Messages out of frames: fragments joined, text checked, control frames let through in between.
use bytes::{Buf as _, Bytes};

use super::frame::{Frame, Kind, Violation};

const MAX_FRAGMENTS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    Text(String),
    Ping(Bytes),
    Pong,
    /// With the peer's code, if it gave one.
    Close(Option<u16>),
}

/// The fragments of one message so far.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    partial: Option<Partial>,
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    fragments: usize,
}

impl Assembler {
    /// Whether a message has begun and not ended.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// What the frame completes, if it completes something.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<Option<Incoming>, Violation> {
        let Frame { last, kind, payload } = frame;
        match kind {
            Kind::Ping => Ok(Some(Incoming::Ping(payload))),
            Kind::Pong => Ok(Some(Incoming::Pong)),
            Kind::Close => close(payload).map(Some),
            Kind::Text if self.partial.is_some() => Err(Violation::Fragments),
            Kind::Text if last => text(payload.into()).map(Some),
            Kind::Text => {
                self.partial = Some(Partial { bytes: payload.into(), fragments: 1 });
                Ok(None)
            }
            Kind::Continuation => {
                let mut partial = self.partial.take().ok_or(Violation::Fragments)?;
                partial.fragments += 1;
                if partial.bytes.len() + payload.len() > acp::MAX_MESSAGE {
                    return Err(Violation::TooLarge);
                }
                if partial.fragments > MAX_FRAGMENTS {
                    return Err(Violation::TooManyFragments);
                }
                partial.bytes.extend_from_slice(&payload);
                if last {
                    return text(partial.bytes).map(Some);
                }
                self.partial = Some(partial);
                Ok(None)
            }
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<Incoming, Violation> {
    String::from_utf8(bytes).map(Incoming::Text).map_err(|_| Violation::Utf8)
}

fn close(mut payload: Bytes) -> Result<Incoming, Violation> {
    match payload.len() {
        0 => Ok(Incoming::Close(None)),
        1 => Err(Violation::Close),
        _ => {
            let code = payload.get_u16();
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(Violation::Close);
            }
            match std::str::from_utf8(&payload) {
                Ok(_) => Ok(Incoming::Close(Some(code))),
                Err(_) => Err(Violation::Utf8),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::frame::take;
    use bytes::BytesMut;
    use proptest::prelude::*;

    /// A frame as a client sends it; `first` is the first byte of the header.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).expect("small")),
            length @ 126..=0xFFFF => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(length).expect("small").to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    }

    fn read(bytes: &[u8], chunk: usize) -> Result<Vec<Incoming>, Violation> {
        let (mut buffer, mut assembler, mut out) =
            (BytesMut::new(), Assembler::default(), Vec::new());
        for chunk in bytes.chunks(chunk.max(1)) {
            buffer.extend_from_slice(chunk);
            while let Some(frame) = take(&mut buffer)? {
                out.extend(assembler.push(frame)?);
            }
        }
        Ok(out)
    }

    fn text(text: &str) -> Incoming {
        Incoming::Text(text.to_owned())
    }

    #[test]
    fn each_broken_rule_is_its_own_violation() {
        let long = |first: u8, length: &[u8]| [&[first], length, &[0; 4]].concat();
        for (bytes, violation) in [
            (vec![0x81, 0x01, b'x'], Violation::Unmasked),
            (masked(0xC1, b"x"), Violation::Reserved),
            (masked(0xA1, b"x"), Violation::Reserved),
            (masked(0x91, b"x"), Violation::Reserved),
            (masked(0x83, b"x"), Violation::Opcode),
            (masked(0x8B, b"x"), Violation::Opcode),
            (long(0x81, &[0xFE, 0, 125]), Violation::Length),
            (long(0x81, &[0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]), Violation::Length),
            (masked(0x09, b"x"), Violation::Control),
            (masked(0x89, &[0; 126]), Violation::Control),
            (masked(0x80, b"x"), Violation::Fragments),
            ([masked(0x01, b"x"), masked(0x81, b"y")].concat(), Violation::Fragments),
            (masked(0x88, &[3]), Violation::Close),
            (masked(0x88, &1005_u16.to_be_bytes()), Violation::Close),
            (masked(0x88, &[0x03, 0xE8, 0xFF]), Violation::Utf8),
            (masked(0x82, b"x"), Violation::Binary),
            (masked(0x81, &[0xC3]), Violation::Utf8),
            (long(0x81, &[0xFF, 0, 0, 0, 0, 0, 0x10, 0, 1]), Violation::TooLarge),
            (
                long(0x81, &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
                Violation::TooLarge,
            ),
        ] {
            assert_eq!(read(&bytes, usize::MAX), Err(violation), "{bytes:02x?}");
            assert_eq!(read(&bytes, 1), Err(violation), "{bytes:02x?} byte by byte");
        }
    }

    #[test]
    fn fragments_join_across_control_frames_and_utf8_may_split_between_them() {
        let bytes = [
            masked(0x01, &[b'a', 0xC3]),
            masked(0x89, b"p"),
            masked(0x00, &[0xA9]),
            masked(0x8A, b""),
            masked(0x80, b""),
            masked(0x88, &1000_u16.to_be_bytes()),
        ]
        .concat();
        let expected = vec![
            Incoming::Ping(Bytes::from_static(b"p")),
            Incoming::Pong,
            text("aé"),
            Incoming::Close(Some(1000)),
        ];
        assert_eq!(read(&bytes, 3), Ok(expected));
    }

    #[test]
    fn a_message_is_bounded_in_bytes_and_in_fragments() {
        let half = vec![b'x'; acp::MAX_MESSAGE / 2];
        let whole = [masked(0x01, &half), masked(0x80, &half)].concat();
        assert_eq!(read(&whole, 65_536).map(|messages| messages.len()), Ok(1));
        let more = [masked(0x01, &half), masked(0x00, &half), masked(0x80, b"x")].concat();
        assert_eq!(read(&more, 65_536), Err(Violation::TooLarge));

        let fragments = |count: usize| {
            let mut bytes = masked(0x01, b"x");
            bytes.extend((2..count).flat_map(|_| masked(0x00, b"x")));
            bytes.extend(masked(0x80, b"x"));
            bytes
        };
        assert_eq!(read(&fragments(MAX_FRAGMENTS), 4096).map(|messages| messages.len()), Ok(1));
        assert_eq!(read(&fragments(MAX_FRAGMENTS + 1), 4096), Err(Violation::TooManyFragments));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_chunks_change_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), chunk in 1_usize..40,
        ) {
            prop_assert_eq!(read(&bytes, chunk), read(&bytes, usize::MAX));
        }

        #[test]
        fn what_a_client_sends_is_what_arrives(
            parts in proptest::collection::vec(".{0,300}", 1..5), chunk in 1_usize..400,
        ) {
            let mut bytes = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                let first = if at == 0 { 1 } else { 0 } | if at + 1 == parts.len() { 0x80 } else { 0 };
                bytes.extend(masked(first, part.as_bytes()));
            }
            prop_assert_eq!(read(&bytes, chunk), Ok(vec![Incoming::Text(parts.concat())]));
        }
    }
}
