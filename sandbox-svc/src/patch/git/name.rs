//! Names as git writes them in a patch: as they are where nothing can be mistaken, in quotes with escapes
//! otherwise. It only spells.

use std::fmt;

/// A path, with the letter of its side before it where it stands in a diff's header.
pub(super) struct Name<'a> {
    side: Option<u8>,
    path: &'a [u8],
}

impl<'a> Name<'a> {
    pub(super) fn bare(path: &'a [u8]) -> Self {
        Self { side: None, path }
    }

    pub(super) fn under(side: u8, path: &'a [u8]) -> Self {
        Self { side: Some(side), path }
    }

    /// A blank is quoted as well, though git would not: what follows it is never taken for something else.
    fn is_quoted(&self) -> bool {
        !self.path.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
    }
}

pub(super) fn old_and_new(old: &[u8], new: &[u8]) -> String {
    format!("{} {}", Name::under(b'a', old), Name::under(b'b', new))
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.is_quoted() { "\"" } else { "" };
        f.write_str(quote)?;
        if let Some(side) = self.side {
            write!(f, "{}/", char::from(side))?;
        }
        for byte in self.path {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                other => write!(f, "\\{other:03o}")?,
            }
        }
        f.write_str(quote)
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, old_and_new};

    #[test]
    fn what_could_be_mistaken_is_quoted() {
        let bare = |path: &[u8]| Name::bare(path).to_string();
        assert_eq!(bare(b"src/-a~"), "src/-a~");
        assert_eq!(bare(b"a b"), "\"a b\"");
        assert_eq!(bare(b"a\nb\t\"\\"), "\"a\\012b\\011\\\"\\\\\"");
        assert_eq!(bare("é".as_bytes()), "\"\\303\\251\"");
        assert_eq!(bare(b"\xff"), "\"\\377\"");
        assert_eq!(old_and_new(b"a", b"b c"), "a/a \"b/b c\"");
    }
}
