//! Where a page ended, as a text that a model hands back: bound to the request that it came from. It opens
//! nothing; a cursor of another request, or an altered one, is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use event::Digest;

use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

const DOMAIN: &str = "harness.cursor.v1";
const MARK: usize = 8;
const HEAD: usize = MARK + 8;

/// What a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Binding([u8; MARK]);

/// The last thing that was shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) path: RelPath,
    pub(crate) number: u64,
}

impl Binding {
    /// Each part with its length first, so that no two requests share one.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        let mut mark = [0; MARK];
        mark.copy_from_slice(&Digest::of_parts(DOMAIN, &bytes).as_bytes()[..MARK]);
        Self(mark)
    }

    pub(crate) fn encode(self, place: &Place) -> String {
        let mut bytes = self.0.to_vec();
        bytes.extend_from_slice(&place.number.to_be_bytes());
        bytes.extend_from_slice(place.path.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub(crate) fn decode(self, text: &str) -> Result<Place, Refusal> {
        let stale = || Refusal::from(Reason::CursorStale);
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| stale())?;
        let (head, path) = bytes.split_at_checked(HEAD).ok_or_else(stale)?;
        let (mark, number) = head.split_at(MARK);
        if mark != self.0 {
            return Err(stale());
        }
        let number = u64::from_be_bytes(number.try_into().map_err(|_| stale())?);
        let path = match path {
            [] => RelPath::root(),
            path => RelPath::parse(path).map_err(|_| stale())?,
        };
        Ok(Place { path, number })
    }
}

#[cfg(test)]
mod tests {
    use super::{Binding, Place};
    use crate::refusal::Reason;
    use crate::tree::RelPath;

    #[test]
    fn a_cursor_is_good_for_its_own_request_only() {
        let own = Binding::of(&[b"search", b"a"]);
        let place = Place { path: RelPath::parse(b"d/\xff").unwrap(), number: 7 };
        let text = own.encode(&place);
        assert_eq!(own.decode(&text).unwrap(), place);
        let root = Place { path: RelPath::root(), number: 1 };
        assert_eq!(own.decode(&own.encode(&root)).unwrap(), root);
        for other in [Binding::of(&[b"search", b"b"]), Binding::of(&[b"searcha", b""])] {
            assert_eq!(other.decode(&text).unwrap_err().reason, Reason::CursorStale);
        }
        for altered in ["", "!", &text[1..], &text[..8], &format!("{text}é")] {
            assert_eq!(own.decode(altered).unwrap_err().reason, Reason::CursorStale, "{altered}");
        }
    }
}
