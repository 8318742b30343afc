//! The head of a request: one CONNECT and nothing else. It reads at most 8 KiB, and what follows the head is not
//! looked at here.

/// The whole head, its empty line included.
pub(crate) const HEAD_BYTES: usize = 8 * 1024;
const HEADERS: usize = 64;

/// A complete head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What is to be connected to, as it was written.
    pub authority: Vec<u8>,
    /// Where the tunnel's first byte is.
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadHead {
    #[error("the method is not CONNECT")]
    Method,
    #[error("the head is not that of one HTTP/1 request")]
    Form,
    #[error("the head is longer than {HEAD_BYTES} bytes")]
    Long,
}

impl Head {
    /// Nothing yet while the head is incomplete. Lines end in CR LF alone: what two readers could read as two different
    /// heads is not a head.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, BadHead> {
        let within = &bytes[..bytes.len().min(HEAD_BYTES)];
        let Some(end) = within.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() >= HEAD_BYTES { Err(BadHead::Long) } else { Ok(None) };
        };
        let lines = Lines(&within[..end + 2]);
        let mut lines = lines.collect::<Result<Vec<_>, _>>()?.into_iter();
        let request = lines.next().ok_or(BadHead::Form)?;
        let authority = authority(request)?.to_vec();
        if lines.len() > HEADERS || !lines.all(is_header) {
            return Err(BadHead::Form);
        }
        Ok(Some(Self { authority, length: end + 4 }))
    }
}

fn authority(line: &[u8]) -> Result<&[u8], BadHead> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(authority), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BadHead::Form);
    };
    let token = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic);
    if !token(method) || !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        return Err(BadHead::Form);
    }
    if method != b"CONNECT" {
        return Err(BadHead::Method);
    }
    if authority.is_empty() { Err(BadHead::Form) } else { Ok(authority) }
}

/// A header, which says nothing to us: only that the head is well formed. A `Content-Length` or `Transfer-Encoding`
/// would leave open where the tunnel begins.
fn is_header(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
    let (name, value) = line.split_at(colon);
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let frames = [&b"content-length"[..], b"transfer-encoding"];
    !name.is_empty()
        && name.iter().all(token)
        && value.iter().all(|byte| *byte == b'\t' || (0x20..0x7f).contains(byte) || *byte >= 0x80)
        && !frames.iter().any(|frame| name.eq_ignore_ascii_case(frame))
}

/// Lines that end in CR LF; a lone CR or LF is a fault.
struct Lines<'b>(&'b [u8]);

impl<'b> Iterator for Lines<'b> {
    type Item = Result<&'b [u8], BadHead>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.0.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = self.0.split_at(end);
        self.0 = &rest[2..];
        let whole = !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        Some(if whole { Ok(line) } else { Err(BadHead::Form) })
    }
}
