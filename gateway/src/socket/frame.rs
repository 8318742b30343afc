//! Frames from a client: header rules first, so that a frame which must not be is refused before its payload comes.
use std::io::Cursor;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::Farewell;

/// A rule of the protocol or the dialect that the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("frame is not masked")]
    Unmasked,
    #[error("reserved bits are set")]
    Reserved,
    #[error("unknown opcode")]
    Opcode,
    #[error("length is not in its shortest form")]
    Length,
    #[error("control frame is fragmented or too long")]
    Control,
    #[error("fragments are out of order")]
    Fragments,
    #[error("close frame is malformed")]
    Close,
    #[error("frame or message was not completed in time")]
    Incomplete,
    #[error("binary messages are not taken")]
    Binary,
    #[error("text is not UTF-8")]
    Utf8,
    #[error("frame or message is too large")]
    TooLarge,
    #[error("message has too many fragments")]
    TooManyFragments,
}

impl Violation {
    pub(crate) fn farewell(self) -> Farewell {
        match self {
            Self::Unmasked => Farewell::new(1002, "frame is not masked"),
            Self::Reserved => Farewell::new(1002, "reserved bits are set"),
            Self::Opcode => Farewell::new(1002, "unknown opcode"),
            Self::Length => Farewell::new(1002, "length is not in its shortest form"),
            Self::Control => Farewell::new(1002, "control frame is fragmented or too long"),
            Self::Fragments => Farewell::new(1002, "fragments are out of order"),
            Self::Close => Farewell::new(1002, "close frame is malformed"),
            Self::Incomplete => Farewell::new(1002, "frame or message was not completed in time"),
            Self::Binary => Farewell::new(1003, "binary messages are not taken"),
            Self::Utf8 => Farewell::new(1007, "text is not UTF-8"),
            Self::TooLarge => Farewell::new(1009, "frame or message is too large"),
            Self::TooManyFragments => Farewell::new(1009, "message has too many fragments"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Continuation,
    Ping,
    Pong,
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) last: bool,
    pub(crate) kind: Kind,
    /// Unmasked.
    pub(crate) payload: Bytes,
}

/// Takes the next frame off the buffer, once it is complete.
pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, Violation> {
    let mut cursor = Cursor::new(&buffer[..]);
    let (header, length) = match FrameHeader::parse(&mut cursor) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(_) => return Err(Violation::Opcode),
    };
    let head = cursor.position();
    if head != u64::try_from(header.len(length)).unwrap_or(u64::MAX) {
        return Err(Violation::Length);
    }
    let (kind, mask) = judge(&header, length)?;
    let (Ok(head), Ok(length)) = (usize::try_from(head), usize::try_from(length)) else {
        return Err(Violation::TooLarge);
    };
    if buffer.len() < head + length {
        buffer.reserve(head + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(head);
    let mut payload = buffer.split_to(length);
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    Ok(Some(Frame { last: header.is_final, kind, payload: payload.freeze() }))
}

fn judge(header: &FrameHeader, length: u64) -> Result<(Kind, [u8; 4]), Violation> {
    if header.rsv1 || header.rsv2 || header.rsv3 {
        return Err(Violation::Reserved);
    }
    let mask = header.mask.ok_or(Violation::Unmasked)?;
    let kind = match header.opcode {
        OpCode::Data(Data::Text) => Kind::Text,
        OpCode::Data(Data::Continue) => Kind::Continuation,
        OpCode::Data(Data::Binary) => return Err(Violation::Binary),
        OpCode::Control(Control::Ping) => Kind::Ping,
        OpCode::Control(Control::Pong) => Kind::Pong,
        OpCode::Control(Control::Close) => Kind::Close,
        OpCode::Data(Data::Reserved(_)) | OpCode::Control(Control::Reserved(_)) => {
            return Err(Violation::Opcode);
        }
    };
    let control = matches!(kind, Kind::Ping | Kind::Pong | Kind::Close);
    if control && (!header.is_final || length > 125) {
        return Err(Violation::Control);
    }
    if usize::try_from(length).is_ok_and(|length| length <= acp::MAX_MESSAGE) {
        Ok((kind, mask))
    } else {
        Err(Violation::TooLarge)
    }
}
