//! A path inside the workspace in its one spelling. What would lead elsewhere is refused, never resolved; it
//! never touches a disk.

use std::fmt;

const MAX_BYTES: usize = 4_096;

/// Relative, segments joined by single slashes; `.` is the workspace itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkPath {
    text: String,
    directory: bool,
}

/// Why a text is no path inside the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadPath {
    #[error("the path is empty")]
    Empty,
    #[error("the path is absolute")]
    Absolute,
    #[error("the path has a .. segment; it is not resolved")]
    Parent,
    #[error("the path holds a backslash")]
    Backslash,
    #[error("the path holds a NUL character")]
    Nul,
    #[error("the path is longer than {MAX_BYTES} bytes")]
    TooLong,
}

impl WorkPath {
    /// `./x`, `a//b` and `a/./b` are spellings of `x` and `a/b`; a final slash says that it is a directory.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if text.is_empty() {
            return Err(BadPath::Empty);
        }
        if text.starts_with('/') {
            return Err(BadPath::Absolute);
        }
        if text.contains('\\') {
            return Err(BadPath::Backslash);
        }
        if text.contains('\0') {
            return Err(BadPath::Nul);
        }
        if text.len() > MAX_BYTES {
            return Err(BadPath::TooLong);
        }
        let mut normal = String::with_capacity(text.len());
        for segment in text.split('/') {
            match segment {
                "" | "." => continue,
                ".." => return Err(BadPath::Parent),
                _ => {}
            }
            if !normal.is_empty() {
                normal.push('/');
            }
            normal.push_str(segment);
        }
        let directory = text.ends_with('/') || text.ends_with("/.") || normal.is_empty();
        if normal.is_empty() {
            normal.push('.');
        }
        Ok(Self { text: normal, directory })
    }

    /// Without a final slash.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_directory(&self) -> bool {
        self.directory
    }

    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.text.split('/')
    }

    /// What patterns are held against: a directory ends in a slash, so that a pattern for everything in it
    /// covers the directory too.
    pub(crate) fn subject(&self, directory: bool) -> String {
        if directory && self.text != "." { format!("{}/", self.text) } else { self.text.clone() }
    }
}

impl fmt::Display for WorkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::{BadPath, WorkPath};

    #[test]
    fn what_leads_elsewhere_is_refused_and_not_resolved() {
        for (text, expected) in [
            ("", BadPath::Empty),
            ("/", BadPath::Absolute),
            ("/etc/passwd", BadPath::Absolute),
            ("..", BadPath::Parent),
            ("src/../.git/config", BadPath::Parent),
            ("a/..", BadPath::Parent),
            ("a\\b", BadPath::Backslash),
            ("..\\x", BadPath::Backslash),
            ("a\0b", BadPath::Nul),
        ] {
            assert_eq!(WorkPath::parse(text), Err(expected), "{text:?}");
        }
        assert_eq!(WorkPath::parse(&"a".repeat(4_097)), Err(BadPath::TooLong));
    }

    #[test]
    fn spellings_of_one_path_are_one_path() {
        for (text, expected, directory) in [
            ("src/x", "src/x", false),
            ("./src/x", "src/x", false),
            ("src//x", "src/x", false),
            ("src/./x/", "src/x", true),
            (".", ".", true),
            ("./", ".", true),
            ("...", "...", false),
            ("a\nb", "a\nb", false),
        ] {
            let path = WorkPath::parse(text).unwrap();
            assert_eq!((path.as_str(), path.is_directory()), (expected, directory), "{text:?}");
        }
    }
}
