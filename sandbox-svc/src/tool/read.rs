//! The tools that look at the private copy: their names, texts and arguments. It parses; it decides nothing.

use serde::Deserialize;

use super::{Texts, decode, invalid, place};
use crate::refusal::Refusal;
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    ListFiles,
    ReadFile,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile { path: RelPath, start: u64, end: Option<u64> },
}

const LIST_LIMIT: usize = 200;
const LIST_MOST: usize = 500;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::ListFiles, Self::ReadFile];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::ListFiles => Texts {
                description: "List files of the private copy, with sizes and digests, in path order.",
                schema: r#"{"additionalProperties":false,"properties":{"after":{"description":"list what follows this path","type":"string"},"limit":{"maximum":500,"minimum":1,"type":"integer"},"path":{"description":"a directory; the whole tree if absent","type":"string"}},"type":"object"}"#,
            },
            Self::ReadFile => Texts {
                description: "Read lines of a text file of the private copy, with the digest of the whole file.",
                schema: r#"{"additionalProperties":false,"properties":{"endLine":{"minimum":1,"type":"integer"},"path":{"type":"string"},"startLine":{"minimum":1,"type":"integer"}},"required":["path"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
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

#[cfg(test)]
mod tests {
    use super::Tool;
    use crate::refusal::Reason;

    #[test]
    fn a_path_is_a_place_in_the_copy() {
        for path in ["../x", "/etc/passwd", "a//b", "a/./b", ""] {
            let text = format!(r#"{{"path":"{path}"}}"#);
            let refused = Tool::ReadFile.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::PathInvalid, "{path}");
        }
    }
}
