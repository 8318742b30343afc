//! A path inside a tree: bytes, relative, without empty, `.` or `..` components. It never touches a disk.

use std::fmt;

/// `PATH_MAX` without its final zero.
const MAX_BYTES: usize = 4095;
const MAX_COMPONENT: usize = 255;

/// The empty path is the tree itself. Parents sort before what is in them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct RelPath(Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPath {
    #[error("the path is empty")]
    Empty,
    #[error("the path is absolute")]
    Absolute,
    #[error("the path has an empty, '.' or '..' component")]
    Component,
    #[error("the path holds a zero byte")]
    Zero,
    #[error("the path or one of its components is too long")]
    TooLong,
}

impl RelPath {
    pub(crate) fn root() -> Self {
        Self::default()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadPath> {
        match bytes.first() {
            None => return Err(BadPath::Empty),
            Some(b'/') => return Err(BadPath::Absolute),
            Some(_) => (),
        }
        if bytes.contains(&0) {
            return Err(BadPath::Zero);
        }
        if bytes.len() > MAX_BYTES {
            return Err(BadPath::TooLong);
        }
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." | b".." => return Err(BadPath::Component),
                long if long.len() > MAX_COMPONENT => return Err(BadPath::TooLong),
                _ => (),
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    /// As a person writes it: `.` is the tree itself, and a final slash says nothing.
    pub(crate) fn parse_text(text: &str) -> Result<Self, BadPath> {
        match text.strip_prefix("./").unwrap_or(text).trim_end_matches('/') {
            "." if !text.starts_with('/') => Ok(Self::root()),
            "" if text == "./" => Ok(Self::root()),
            plain => Self::parse(plain.as_bytes()),
        }
    }

    /// One component more; a directory entry's name is valid by nature.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !self.is_root() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    /// Whether a path that was joined from entries' names is short enough to be one.
    pub(crate) fn is_nameable(&self) -> bool {
        self.0.len() <= MAX_BYTES
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    pub(crate) fn depth(&self) -> usize {
        self.components().count()
    }

    /// The directory it is in, and its name there; nothing for the tree itself.
    pub(crate) fn split(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self::root(), &self.0),
        })
    }

    pub(crate) fn parent(&self) -> Option<Self> {
        self.split().map(|(parent, _)| parent)
    }

    /// Whether `self` is inside the directory `other`.
    pub(crate) fn is_below(&self, other: &Self) -> bool {
        match self.0.strip_prefix(other.as_bytes()) {
            Some(rest) if other.is_root() => !rest.is_empty(),
            Some(rest) => rest.first() == Some(&b'/'),
            None => false,
        }
    }

    /// The path, then each directory on the way to it, the nearest first, and the root.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// What a rule of the manifest is asked about: bytes that are not UTF-8 appear as U+FFFD there.
    pub(crate) fn to_subject(&self) -> String {
        if self.is_root() {
            return ".".to_owned();
        }
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// For people: controls, direction marks and bytes that are not UTF-8 are escaped.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        Escaped(&self.0).fmt(f)
    }
}

/// Bytes of a name or of a link, in one line.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_plain(character) {
                    write!(f, "{character}")?;
                } else {
                    write!(f, "{}", character.escape_unicode())?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{BadPath, RelPath};

    #[test]
    fn only_plain_relative_paths_are_paths() {
        let cases: [(&[u8], Option<BadPath>); 12] = [
            (b"a", None),
            (b"a/b", None),
            (b"a\n\xff", None),
            (b"", Some(BadPath::Empty)),
            (b"/a", Some(BadPath::Absolute)),
            (b"a/", Some(BadPath::Component)),
            (b"a//b", Some(BadPath::Component)),
            (b"./a", Some(BadPath::Component)),
            (b"a/..", Some(BadPath::Component)),
            (b"..", Some(BadPath::Component)),
            (b"a\0b", Some(BadPath::Zero)),
            (&[b'a'; 256], Some(BadPath::TooLong)),
        ];
        for (bytes, refused) in cases {
            assert_eq!(RelPath::parse(bytes).err(), refused, "{bytes:?}");
        }
    }

    #[test]
    fn people_may_write_a_dot_and_a_final_slash() {
        let parse = |text| RelPath::parse_text(text).map(|path| path.as_bytes().to_vec());
        assert_eq!(parse("."), Ok(b"".to_vec()));
        assert_eq!(parse("./"), Ok(b"".to_vec()));
        assert_eq!(parse("./src/"), Ok(b"src".to_vec()));
        assert_eq!(parse("src/../x"), Err(BadPath::Component));
        assert_eq!(parse("/"), Err(BadPath::Empty));
        assert_eq!(parse("/etc"), Err(BadPath::Absolute));
        assert_eq!(parse(""), Err(BadPath::Empty));
    }

    #[test]
    fn a_path_knows_its_directory() {
        let path = RelPath::parse(b"a/b/c").unwrap();
        assert_eq!(path.split(), Some((RelPath::parse(b"a/b").unwrap(), b"c".as_slice())));
        assert!(path.is_below(&RelPath::parse(b"a").unwrap()));
        assert!(path.is_below(&RelPath::root()));
        assert!(!path.is_below(&path));
        assert!(!RelPath::parse(b"ab").unwrap().is_below(&RelPath::parse(b"a").unwrap()));
        assert_eq!(path.depth(), 3);
    }

    #[test]
    fn display_escapes_what_a_terminal_would_obey() {
        let path = RelPath::parse(b"a\x1b]0;\n\xff\xe2\x80\xae").unwrap();
        assert_eq!(path.to_string(), "a\\u{1b}]0;\\u{a}\\xff\\u{202e}");
    }
}
