//! The tools a session offers and what their arguments may be. It parses; it decides nothing.

use std::time::Duration;

use event::Digest;
use manifest::Backend;
use proto::common::v1 as wire;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    ListFiles,
    ReadFile,
    Exec,
    InspectPatch,
    ImportPatch,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile { path: RelPath, start: u64, end: Option<u64> },
    Exec { argv: Vec<String>, timeout: Option<Duration> },
    InspectPatch,
    ImportPatch { digest: Option<Digest> },
}

const LIST_LIMIT: usize = 200;
const LIST_MOST: usize = 500;
const ARGV_MOST: usize = 256;
const ARGUMENT_BYTES: usize = 8192;
const ARGV_BYTES: usize = 64 * 1024;

impl Tool {
    const ALL: [Self; 5] =
        [Self::ListFiles, Self::ReadFile, Self::Exec, Self::InspectPatch, Self::ImportPatch];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::Exec => "process.exec",
            Self::InspectPatch => "inspect_patch",
            Self::ImportPatch => "import_patch",
        }
    }

    /// The tools of a session; without a back end there is no command tool.
    pub(crate) fn offered(backend: Backend) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |tool| match (tool, backend) {
            (Self::Exec, Backend::None) => false,
            (Self::ListFiles | Self::ReadFile | Self::InspectPatch | Self::ImportPatch, _)
            | (Self::Exec, Backend::Oci) => true,
        })
    }

    pub(crate) fn parse(name: &str, backend: Backend) -> Result<Self, Refusal> {
        Self::offered(backend)
            .find(|tool| tool.as_str() == name)
            .ok_or_else(|| Reason::ToolUnknown.into())
    }

    /// As a model sees it.
    pub(crate) fn to_wire(self) -> wire::Tool {
        let (description, schema) = match self {
            Self::ListFiles => (
                "List files of the private copy, with sizes and digests, in path order.",
                r#"{"additionalProperties":false,"properties":{"after":{"description":"list what follows this path","type":"string"},"limit":{"maximum":500,"minimum":1,"type":"integer"},"path":{"description":"a directory; the whole tree if absent","type":"string"}},"type":"object"}"#,
            ),
            Self::ReadFile => (
                "Read lines of a text file of the private copy, with the digest of the whole file.",
                r#"{"additionalProperties":false,"properties":{"endLine":{"minimum":1,"type":"integer"},"path":{"type":"string"},"startLine":{"minimum":1,"type":"integer"}},"required":["path"],"type":"object"}"#,
            ),
            Self::Exec => (
                "Run a program in the private copy, without network. The arguments are passed as they are; no shell reads them.",
                r#"{"additionalProperties":false,"properties":{"argv":{"items":{"type":"string"},"maxItems":256,"minItems":1,"type":"array"},"timeoutSeconds":{"minimum":1,"type":"integer"}},"required":["argv"],"type":"object"}"#,
            ),
            Self::InspectPatch => (
                "Show what the private copy changed against the workspace.",
                r#"{"additionalProperties":false,"properties":{},"type":"object"}"#,
            ),
            Self::ImportPatch => (
                "Write the private copy's changes to the workspace, all or none.",
                r#"{"additionalProperties":false,"properties":{"digest":{"description":"the patch that is meant; the present one if absent","type":"string"}},"type":"object"}"#,
            ),
        };
        wire::Tool {
            name: self.as_str().to_owned(),
            description: description.to_owned(),
            input_schema: schema.as_bytes().to_vec(),
        }
    }

    pub(crate) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::ListFiles => {
                let List { path, limit, after } = decode(bytes)?;
                let limit = limit.unwrap_or(LIST_LIMIT);
                if !(1..=LIST_MOST).contains(&limit) {
                    return Err(invalid(format!("limit must be 1 to {LIST_MOST}")));
                }
                let path = path.as_deref().map_or_else(|| Ok(RelPath::root()), place)?;
                Ok(Arguments::ListFiles {
                    path,
                    limit,
                    after: after.as_deref().map(place).transpose()?,
                })
            }
            Self::ReadFile => {
                let Read { path, start_line, end_line } = decode(bytes)?;
                let start = start_line.unwrap_or(1);
                if start == 0 || end_line.is_some_and(|end| end < start) {
                    return Err(invalid("lines count from 1, and endLine is not before startLine"));
                }
                Ok(Arguments::ReadFile { path: place(&path)?, start, end: end_line })
            }
            Self::Exec => {
                let Exec { argv, timeout_seconds } = decode(bytes)?;
                fits(&argv)?;
                if timeout_seconds == Some(0) {
                    return Err(invalid("timeoutSeconds must be at least 1"));
                }
                Ok(Arguments::Exec { argv, timeout: timeout_seconds.map(Duration::from_secs) })
            }
            Self::InspectPatch => decode::<Nothing>(bytes).map(|_| Arguments::InspectPatch),
            Self::ImportPatch => {
                let Import { digest } = decode(bytes)?;
                Ok(Arguments::ImportPatch { digest })
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    path: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Read {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    argv: Vec<String>,
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Import {
    digest: Option<Digest>,
}

/// Bounded and strict; what a model writes is anybody's text.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let value = event::canon::parse_untrusted(bytes)
        .map_err(|error| invalid(format!("the arguments are not acceptable JSON: {error}")))?;
    if !value.is_object() {
        return Err(invalid("the arguments are not an object"));
    }
    serde_json::from_value(value).map_err(|_| Reason::ArgumentsInvalid.into())
}

fn invalid(detail: impl std::fmt::Display) -> Refusal {
    Refusal::new(Reason::ArgumentsInvalid, detail)
}

fn place(text: &str) -> Result<RelPath, Refusal> {
    RelPath::parse_text(text).map_err(|error| Refusal::new(Reason::PathInvalid, error))
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

    use manifest::Backend;

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
        for path in ["../x", "/etc/passwd", "a//b", "a/./b", ""] {
            let text = format!(r#"{{"path":"{path}"}}"#);
            let refused = Tool::ReadFile.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::PathInvalid, "{path}");
        }
    }

    #[test]
    fn without_a_back_end_there_is_no_command_tool() {
        let names: Vec<_> = Tool::offered(Backend::None).map(Tool::as_str).collect();
        assert_eq!(names, ["list_files", "read_file", "inspect_patch", "import_patch"]);
        let refused = Tool::parse("process.exec", Backend::None).unwrap_err();
        assert_eq!(refused.reason, Reason::ToolUnknown);
    }

    #[test]
    fn every_schema_is_canonical_json() {
        for tool in Tool::offered(Backend::Oci) {
            assert!(event::canon::is_canonical(&tool.to_wire().input_schema), "{}", tool.as_str());
        }
    }
}
