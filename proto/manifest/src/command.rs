//! A command as it is judged: its argv, and the program that the image would start for it. It resolves
//! nothing itself.

use serde::Serialize;

use crate::subject::exec_subject;

/// What a tool wants to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Command {
    pub argv: Vec<String>,
    /// As found in the image, when somebody looked.
    pub program: Option<ResolvedProgram>,
}

/// Where the image has the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolvedProgram {
    /// As found along `PATH`.
    pub path: String,
    /// Behind every link.
    pub resolved: Option<String>,
}

/// One file that is many programs and looks at the name it was called by.
const MULTI_CALL: [&str; 4] = ["busybox", "toybox", "coreutils", "uutils"];

impl ResolvedProgram {
    /// Whether its file is many programs and looks at the name it was called by.
    pub fn is_multi_call(&self) -> bool {
        is_multi_call(base_name(self.resolved.as_ref().unwrap_or(&self.path)))
    }
}

pub(crate) fn is_multi_call(name: &str) -> bool {
    MULTI_CALL.iter().any(|multi| name.starts_with(multi))
}

impl Command {
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), program: None }
    }

    /// The names of the program without their directories: as called, as found, as resolved.
    pub(crate) fn names(&self) -> Vec<&str> {
        let called = self.argv.first().map(|program| base_name(program));
        let mut names: Vec<&str> = called.into_iter().collect();
        let Some(ResolvedProgram { path, resolved }) = &self.program else { return names };
        let found = [Some(path), resolved.as_ref()].into_iter().flatten().map(|path| {
            let name = base_name(path);
            (name, is_multi_call(name))
        });
        // Which program such a file is, the name it was called by already says.
        for (name, multi) in found {
            if !multi && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The subjects that the same command has under its program's other names.
    pub(crate) fn aliases(&self) -> Vec<String> {
        let Some((called, rest)) = self.argv.split_first() else { return Vec::new() };
        let others = self.names().into_iter().filter(|name| name != called);
        others
            .map(|name| {
                let argv: Vec<String> =
                    [name.to_owned()].into_iter().chain(rest.iter().cloned()).collect();
                exec_subject(&argv)
            })
            .collect()
    }
}

pub(crate) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The argv whose subject this is; nothing when it is the subject of none.
pub fn parse_exec_subject(subject: &str) -> Option<Vec<String>> {
    let mut argv = Vec::new();
    let mut rest = subject;
    loop {
        let (token, after) = match rest.strip_prefix('\'') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(' ').unwrap_or(rest.len());
                let (token, after) = rest.split_at(end);
                (token.to_owned(), after)
            }
        };
        argv.push(token);
        match after.strip_prefix(' ') {
            Some(next) => rest = next,
            None if after.is_empty() => break,
            None => return None,
        }
    }
    (exec_subject(&argv) == subject).then_some(argv)
}

/// What stands before the closing quote, and what comes after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut token = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        token.push_str(before);
        match after.strip_prefix(r"\''") {
            Some(next) => {
                token.push('\'');
                rest = next;
            }
            None => return Some((token, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, ResolvedProgram, parse_exec_subject};
    use crate::subject::exec_subject;
    use proptest::prelude::*;

    #[test]
    fn what_no_argv_looks_like_is_no_subject() {
        for text in ["", " ls", "ls ", "a  b", "a;b", "'a", "'ab' c", "a'b", "\"a\"", "'a'b"] {
            assert_eq!(parse_exec_subject(text), None, "{text}");
        }
        assert_eq!(parse_exec_subject("''"), Some(vec![String::new()]));
    }

    #[test]
    fn a_file_that_is_many_programs_is_named_as_it_is_called() {
        let command = Command {
            argv: vec!["ls".into(), "-l".into()],
            program: Some(ResolvedProgram {
                path: "/bin/ls".into(),
                resolved: Some("/bin/busybox".into()),
            }),
        };
        assert_eq!(command.names(), ["ls"]);
        assert_eq!(command.aliases(), Vec::<String>::new());
    }

    #[test]
    fn a_link_to_a_program_is_that_program_too() {
        let command = Command {
            argv: vec!["./tool".into(), "x".into()],
            program: Some(ResolvedProgram {
                path: "/workspace/tool".into(),
                resolved: Some("/usr/bin/python3.11".into()),
            }),
        };
        assert_eq!(command.names(), ["tool", "python3.11"]);
        assert_eq!(command.aliases(), ["tool x", "python3.11 x"]);
    }

    proptest! {
        #[test]
        fn a_subject_is_read_back_as_its_argv(argv in prop::collection::vec("[a' \\\\*ä]{0,4}", 1..5)) {
            prop_assert_eq!(parse_exec_subject(&exec_subject(&argv)), Some(argv));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[a' \\\\]{0,12}") {
            if let Some(argv) = parse_exec_subject(&text) {
                prop_assert_eq!(exec_subject(&argv), text);
            }
        }
    }
}
