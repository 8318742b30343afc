//! The tools that look at the private copy: their names, texts and arguments. It parses; it decides nothing.

use serde::Deserialize;

use super::cursor::Binding;
use super::{Texts, decode, invalid, place};
use crate::refusal::Refusal;
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    ListFiles,
    ReadFile,
    ReadFiles,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile(Slice),
    ReadFiles(Vec<Slice>),
}

/// Lines of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) path: RelPath,
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
}

const LIST_LIMIT: usize = 200;
const LIST_MOST: usize = 500;
const SLICES: usize = 20;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::ListFiles, Self::ReadFile, Self::ReadFiles];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::ReadFiles => "read_files",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::ListFiles => Texts {
                description: "List files and directories of the private copy, at any depth, in path order, with sizes and digests. When truncated is true, call again with the same path and cursor = nextCursor.",
                schema: r#"{"additionalProperties":false,"properties":{"after":{"description":"list what follows this path; instead of cursor","type":"string"},"cursor":{"description":"nextCursor of the page before","type":"string"},"limit":{"description":"entries in this page; 200 if absent","maximum":500,"minimum":1,"type":"integer"},"path":{"description":"a directory; the whole copy if absent","type":"string"}},"type":"object"}"#,
            },
            Self::ReadFile => Texts {
                description: "Read lines of a text file of the private copy: 400 lines from startLine on unless endLine says otherwise, at most 2000. The result has the digest of the whole file (for expectedDigest of an edit), totalLines and the kind of line endings. Files over 1 MiB and binary files are refused.",
                schema: r#"{"additionalProperties":false,"properties":{"endLine":{"description":"last line, included","minimum":1,"type":"integer"},"path":{"type":"string"},"startLine":{"description":"first line; 1 if absent","minimum":1,"type":"integer"}},"required":["path"],"type":"object"}"#,
            },
            Self::ReadFiles => Texts {
                description: "Read up to 20 slices of text files in one call, in the order asked for; each is as in read_file. A file is read once however often it is named. A slice that cannot be read says why, and the others are still answered. All contents together have at most 128 KiB.",
                schema: r#"{"additionalProperties":false,"properties":{"slices":{"items":{"additionalProperties":false,"properties":{"endLine":{"minimum":1,"type":"integer"},"path":{"type":"string"},"startLine":{"minimum":1,"type":"integer"}},"required":["path"],"type":"object"},"maxItems":20,"minItems":1,"type":"array"}},"required":["slices"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::ListFiles => list(decode(bytes)?),
            Self::ReadFile => slice(decode(bytes)?).map(Arguments::ReadFile),
            Self::ReadFiles => {
                let ReadMany { slices } = decode(bytes)?;
                if !(1..=SLICES).contains(&slices.len()) {
                    return Err(invalid(format!("there must be 1 to {SLICES} slices")));
                }
                let slices = slices.into_iter().map(slice).collect::<Result<_, _>>()?;
                Ok(Arguments::ReadFiles(slices))
            }
        }
    }
}

/// A cursor belongs to the directory that is listed.
pub(crate) fn list_binding(path: &RelPath) -> Binding {
    Binding::of(&[b"list", path.as_bytes()])
}

fn list(asked: List) -> Result<Arguments, Refusal> {
    let List { path, limit, after, cursor } = asked;
    let limit = limit.unwrap_or(LIST_LIMIT);
    if !(1..=LIST_MOST).contains(&limit) {
        return Err(invalid(format!("limit must be 1 to {LIST_MOST}")));
    }
    let path = path.as_deref().map_or_else(|| Ok(RelPath::root()), place)?;
    let after = match (after, cursor) {
        (Some(_), Some(_)) => return Err(invalid("give either after or cursor")),
        (Some(after), None) => Some(place(&after)?),
        (None, Some(cursor)) => Some(list_binding(&path).decode(&cursor)?.path),
        (None, None) => None,
    };
    Ok(Arguments::ListFiles { path, limit, after })
}

fn slice(asked: Read) -> Result<Slice, Refusal> {
    let Read { path, start_line, end_line: end } = asked;
    let start = start_line.unwrap_or(1);
    if start == 0 || end.is_some_and(|end| end < start) {
        return Err(invalid("lines count from 1, and endLine is not before startLine"));
    }
    Ok(Slice { path: place(&path)?, start, end })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    path: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Read {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadMany {
    slices: Vec<Read>,
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

    #[test]
    fn slices_and_pages_are_bounded() {
        let many = vec![r#"{"path":"a"}"#; 21].join(",");
        for (tool, text, reason) in [
            (Tool::ReadFiles, "{}".to_owned(), Reason::ArgumentsInvalid),
            (Tool::ReadFiles, r#"{"slices":[]}"#.to_owned(), Reason::ArgumentsInvalid),
            (Tool::ReadFiles, format!(r#"{{"slices":[{many}]}}"#), Reason::ArgumentsInvalid),
            (
                Tool::ReadFiles,
                r#"{"slices":[{"path":"a","startLine":2,"endLine":1}]}"#.to_owned(),
                Reason::ArgumentsInvalid,
            ),
            (Tool::ReadFile, r#"{"path":"a","startLine":0}"#.to_owned(), Reason::ArgumentsInvalid),
            (Tool::ListFiles, r#"{"limit":501}"#.to_owned(), Reason::ArgumentsInvalid),
            (Tool::ListFiles, r#"{"after":"a","cursor":"x"}"#.to_owned(), Reason::ArgumentsInvalid),
            (Tool::ListFiles, r#"{"cursor":"x"}"#.to_owned(), Reason::CursorStale),
        ] {
            let refused = tool.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, reason, "{text}");
        }
    }
}
