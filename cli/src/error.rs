//! What a person sees of a failure: one line that says what happened and what to do, and an exit code.
use std::{error, fmt, process::ExitCode};

use crate::escape;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// The run failed; for `audit verify`: the ledger was changed.
    Failed,
    Usage,
    /// `doctor` found a blocking problem.
    Blocked,
    /// `audit verify`: entries are missing.
    Incomplete,
    /// `audit verify`: there was nothing that could be verified.
    Unusable,
}

impl Exit {
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Blocked => 3,
            Self::Incomplete => 4,
            Self::Unusable => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that knows what its reader can do about it.
pub trait Explain: error::Error + Send + Sync + 'static {
    fn exit(&self) -> Exit;
    /// A short imperative, without a final dot.
    fn advice(&self) -> String;
    /// Where there is more than one fault: a line for each, told before the line that sums them up.
    fn details(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Any command's failure.
pub struct Error(Box<dyn Explain>);

impl<E: Explain> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl Error {
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }

    /// One line for each of several faults, with nothing in it that a terminal would obey.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        self.0.details().iter().map(|line| escape::line(line)).collect()
    }

    /// "what: its cause; what to do", on one line, with nothing in it that a terminal would obey.
    #[must_use]
    pub fn line(&self) -> String {
        let what = Causes(self.0.as_ref()).to_string();
        format!("{}; {}", escape::line(&what), escape::line(&self.0.advice()))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (exit {})", self.0, self.exit().code())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// An error and its causes, joined by colons; a cause that its parent has already said is left out.
pub(crate) struct Causes<'a>(pub(crate) &'a dyn error::Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(said.trim_end())?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !said.contains(&text) {
                write!(f, ": {}", text.trim_end())?;
            }
            said = text;
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("can not read {path}")]
    struct Unreadable {
        path: &'static str,
        source: std::io::Error,
    }
    impl Explain for Unreadable {
        fn exit(&self) -> Exit {
            Exit::Usage
        }
        fn advice(&self) -> String {
            "give another file".to_owned()
        }
    }

    #[test]
    fn a_failure_is_one_line_that_says_what_why_and_what_to_do() {
        let source = std::io::Error::other("broken\ndisk \x1b[31m");
        let error = Error::from(Unreadable { path: "a\u{202e}b", source });
        assert_eq!(
            error.line(),
            "can not read a\\u{202e}b: broken\\ndisk \\u{1b}[31m; give another file"
        );
        assert_eq!(error.exit().code(), 2);
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Blocked,
            Exit::Incomplete,
            Exit::Unusable,
        ];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 5]);
    }
}
