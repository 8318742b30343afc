//! The tools that run programs: their names, texts and arguments. It parses; it decides nothing.

use std::time::Duration;

use serde::Deserialize;

use super::{Texts, decode, invalid};
use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Exec,
    Batch,
    Check,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Exec { argv: Vec<String>, stdin: Option<String>, timeout: Option<Duration> },
    Batch { commands: Vec<Vec<String>>, timeout: Option<Duration> },
    Check { name: String, expected: Option<Vec<String>>, timeout: Option<Duration> },
}

const ARGV_MOST: usize = 256;
const ARGUMENT_BYTES: usize = 8192;
const ARGV_BYTES: usize = 64 * 1024;
const STDIN_BYTES: usize = 64 * 1024;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::Exec, Self::Batch, Self::Check];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "process.exec",
            Self::Batch => "run_batch",
            Self::Check => "run_check",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Exec => Texts {
                description: "Run a program in the private copy. It has no network but for the hosts that the task allows, by HTTPS through the proxy in HTTPS_PROXY. The arguments are passed as they are; no shell reads them. Where the task mounts parts of the workspace, what is written there is in the workspace at once and the rest is for reading.",
                schema: r#"{"additionalProperties":false,"properties":{"argv":{"items":{"type":"string"},"maxItems":256,"minItems":1,"type":"array"},"stdin":{"description":"What the program reads on its standard input, at most 65536 bytes; nothing if absent.","maxLength":65536,"type":"string"},"timeoutSeconds":{"minimum":1,"type":"integer"}},"required":["argv"],"type":"object"}"#,
            },
            Self::Batch => Texts {
                description: "Run up to 32 programs in the private copy, one after the other, up to the first that fails. They share one container, one time limit and one approval, and the result says how each ended. As with process.exec, no shell reads the arguments and the network is only what the task allows. Each program must exist before the first one runs.",
                schema: r#"{"additionalProperties":false,"properties":{"commands":{"description":"An argument list for each program; at most 256 arguments in all.","items":{"items":{"type":"string"},"maxItems":256,"minItems":1,"type":"array"},"maxItems":32,"minItems":1,"type":"array"},"timeoutSeconds":{"description":"For all of them together.","minimum":1,"type":"integer"}},"required":["commands"],"type":"object"}"#,
            },
            Self::Check => Texts {
                description: "Run one of the checks that the task names, such as its tests, in the private copy as process.exec would. A name that the task does not have is refused with those that it has.",
                schema: r#"{"additionalProperties":false,"properties":{"expectedArgv":{"description":"Refuse unless the check is exactly this argument list.","items":{"type":"string"},"maxItems":256,"type":"array"},"name":{"type":"string"},"timeoutSeconds":{"minimum":1,"type":"integer"}},"required":["name"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Exec => {
                let Exec { argv, stdin, timeout_seconds } = decode(bytes)?;
                fits(&argv)?;
                if stdin.as_ref().is_some_and(|text| text.len() > STDIN_BYTES) {
                    return Err(invalid(format!("stdin may have {STDIN_BYTES} bytes")));
                }
                Ok(Arguments::Exec { argv, stdin, timeout: timeout(timeout_seconds)? })
            }
            Self::Batch => {
                let Batch { commands, timeout_seconds } = decode(bytes)?;
                all_fit(&commands)?;
                Ok(Arguments::Batch { commands, timeout: timeout(timeout_seconds)? })
            }
            Self::Check => {
                let Check { name, expected_argv, timeout_seconds } = decode(bytes)?;
                let timeout = timeout(timeout_seconds)?;
                Ok(Arguments::Check { name, expected: expected_argv, timeout })
            }
        }
    }
}

/// Whether a call of this tool has a container.
pub(crate) fn is_one(name: &str) -> bool {
    Tool::ALL.iter().any(|tool| tool.as_str() == name)
}

/// The input in the arguments of a call whose plan says that it has one.
pub(crate) fn stdin_of(arguments: &[u8]) -> Result<Option<String>, Refusal> {
    match Tool::Exec.arguments(arguments)? {
        Arguments::Exec { stdin, .. } => Ok(stdin),
        Arguments::Batch { .. } | Arguments::Check { .. } => Ok(None),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    argv: Vec<String>,
    stdin: Option<String>,
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Batch {
    commands: Vec<Vec<String>>,
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Check {
    name: String,
    expected_argv: Option<Vec<String>>,
    timeout_seconds: Option<u64>,
}

fn timeout(seconds: Option<u64>) -> Result<Option<Duration>, Refusal> {
    match seconds {
        Some(0) => Err(invalid("timeoutSeconds must be at least 1")),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// Together no more than a single command may have.
fn all_fit(commands: &[Vec<String>]) -> Result<(), Refusal> {
    let most = sandbox_init::MAX_COMMANDS;
    if !(1..=most).contains(&commands.len()) {
        return Err(invalid(format!("there must be 1 to {most} commands")));
    }
    for argv in commands {
        fits(argv)?;
    }
    let words = || commands.iter().flatten();
    if words().count() > ARGV_MOST || words().map(String::len).sum::<usize>() > ARGV_BYTES {
        let most = format!("{ARGV_MOST} arguments and {ARGV_BYTES} bytes");
        return Err(invalid(format!("all commands together may have {most}")));
    }
    Ok(())
}

fn fits(argv: &[String]) -> Result<(), Refusal> {
    let whole: usize = argv.iter().map(String::len).sum();
    if argv.first().is_none_or(String::is_empty) || argv.len() > ARGV_MOST {
        return Err(invalid(format!(
            "argv must name a program and have at most {ARGV_MOST} items"
        )));
    }
    if whole > ARGV_BYTES || argv.iter().any(|item| item.len() > ARGUMENT_BYTES) {
        return Err(invalid(format!(
            "an item of argv may have {ARGUMENT_BYTES} bytes, all of them {ARGV_BYTES}"
        )));
    }
    if argv.iter().any(|item| item.contains('\0')) {
        return Err(invalid("an item of argv holds a zero byte"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Arguments, Tool};
    use crate::refusal::Reason;

    #[test]
    fn arguments_are_strict() {
        let exec = Tool::Exec.arguments(br#"{"argv":["sh","-c","x"],"timeoutSeconds":5}"#).unwrap();
        let argv = ["sh", "-c", "x"].map(str::to_owned).to_vec();
        let timeout = Some(Duration::from_secs(5));
        assert_eq!(exec, Arguments::Exec { argv, stdin: None, timeout });
        for text in [
            "",
            "[]",
            "null",
            "{}",
            r#"{"argv":[]}"#,
            r#"{"argv":[""]}"#,
            r#"{"argv":"ls"}"#,
            r#"{"argv":["ls"],"env":{}}"#,
            r#"{"argv":["l\u0000s"]}"#,
            r#"{"argv":["ls"],"argv":["rm"]}"#,
            r#"{"argv":["ls"],"timeoutSeconds":0}"#,
            r#"{"argv":["ls"],"timeoutSeconds":1.5}"#,
            r#"{"argv":["ls"],"stdin":["x"]}"#,
            r#"{"argv":["ls"],"commands":[["ls"]]}"#,
        ] {
            let refused = Tool::Exec.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::ArgumentsInvalid, "{text}");
        }
    }

    fn reason(tool: Tool, arguments: &serde_json::Value) -> Result<Arguments, Reason> {
        tool.arguments(arguments.to_string().as_bytes()).map_err(|refused| refused.reason)
    }

    #[test]
    fn an_input_is_bounded_in_bytes() {
        let of = |text: String| reason(Tool::Exec, &json!({ "argv": ["cat"], "stdin": text }));
        let argv = vec!["cat".to_owned()];
        let text = "x".repeat(65_536);
        let stdin = Some(text.clone());
        assert_eq!(of(text), Ok(Arguments::Exec { argv, stdin, timeout: None }));
        assert_eq!(of("x".repeat(65_537)), Err(Reason::ArgumentsInvalid));
        assert_eq!(of("é".repeat(32_769)), Err(Reason::ArgumentsInvalid));
    }

    #[test]
    fn a_batch_is_bounded_as_a_whole() {
        for commands in [
            json!([]),
            json!(null),
            json!("true"),
            json!(["true"]),
            json!([["true"], []]),
            json!([["true"], [""]]),
            json!([["true"], ["a\u{0}"]]),
            json!(vec![["true"]; 33]),
            json!(vec![vec!["x"; 129]; 2]),
            json!(vec![vec!["x".repeat(8000)]; 9]),
        ] {
            let refused = reason(Tool::Batch, &json!({ "commands": commands }));
            assert_eq!(refused, Err(Reason::ArgumentsInvalid), "{commands}");
        }
        for more in [json!({ "stdin": "x" }), json!({ "timeoutSeconds": 0 })] {
            let mut arguments = json!({ "commands": [["true"]] });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(reason(Tool::Batch, &arguments), Err(Reason::ArgumentsInvalid), "{more}");
        }
        for commands in [json!(vec![["true"]; 32]), json!(vec![vec!["x"; 128]; 2])] {
            let arguments = json!({ "commands": commands });
            let commands = serde_json::from_value(commands).unwrap();
            let whole = Arguments::Batch { commands, timeout: None };
            assert_eq!(reason(Tool::Batch, &arguments), Ok(whole));
        }
    }

    #[test]
    fn a_check_is_named_and_nothing_else_is_taken() {
        let arguments = json!({ "name": "unit", "expectedArgv": ["a"], "timeoutSeconds": 2 });
        let (name, expected) = ("unit".to_owned(), Some(vec!["a".to_owned()]));
        let whole = Arguments::Check { name, expected, timeout: Some(Duration::from_secs(2)) };
        assert_eq!(reason(Tool::Check, &arguments), Ok(whole));
        for arguments in [
            json!({}),
            json!({ "name": 1 }),
            json!({ "name": "unit", "argv": ["a"] }),
            json!({ "name": "unit", "stdin": "a" }),
            json!({ "name": "unit", "expectedArgv": "a" }),
            json!({ "name": "unit", "timeoutSeconds": 0 }),
        ] {
            assert_eq!(reason(Tool::Check, &arguments), Err(Reason::ArgumentsInvalid));
        }
    }
}
