//! The tools that run programs: their names, texts and arguments. It parses; it decides nothing.

use std::time::Duration;

use serde::Deserialize;

use super::{Texts, decode, invalid};
use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Exec,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Exec { argv: Vec<String>, timeout: Option<Duration> },
}

const ARGV_MOST: usize = 256;
const ARGUMENT_BYTES: usize = 8192;
const ARGV_BYTES: usize = 64 * 1024;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::Exec];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "process.exec",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Exec => Texts {
                description: "Run a program in the private copy. It has no network but for the hosts that the task allows, by HTTPS through the proxy in HTTPS_PROXY. The arguments are passed as they are; no shell reads them. Where the task mounts parts of the workspace, what is written there is in the workspace at once and the rest is for reading.",
                schema: r#"{"additionalProperties":false,"properties":{"argv":{"items":{"type":"string"},"maxItems":256,"minItems":1,"type":"array"},"timeoutSeconds":{"minimum":1,"type":"integer"}},"required":["argv"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Exec => {
                let Exec { argv, timeout_seconds } = decode(bytes)?;
                fits(&argv)?;
                if timeout_seconds == Some(0) {
                    return Err(invalid("timeoutSeconds must be at least 1"));
                }
                Ok(Arguments::Exec { argv, timeout: timeout_seconds.map(Duration::from_secs) })
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    argv: Vec<String>,
    timeout_seconds: Option<u64>,
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

    use super::{Arguments, Tool};
    use crate::refusal::Reason;

    #[test]
    fn arguments_are_strict() {
        let exec = Tool::Exec.arguments(br#"{"argv":["sh","-c","x"],"timeoutSeconds":5}"#).unwrap();
        let argv = ["sh", "-c", "x"].map(str::to_owned).to_vec();
        assert_eq!(exec, Arguments::Exec { argv, timeout: Some(Duration::from_secs(5)) });
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
        ] {
            let refused = Tool::Exec.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::ArgumentsInvalid, "{text}");
        }
    }
}
