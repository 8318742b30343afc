//! The tools that tell how the run's environment stands: their names, texts and arguments. It parses; it decides
//! nothing.

use serde::Deserialize;

use super::{Texts, decode, invalid, place};
use crate::refusal::Refusal;
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Environment,
    Diff,
    Audit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Environment,
    /// The cursor is bound to the patch, which is not known yet.
    Diff {
        path: RelPath,
        cursor: Option<String>,
    },
    Audit {
        after: u64,
        limit: u64,
    },
}

const AUDIT_LIMIT: u64 = 100;
const AUDIT_MOST: u64 = 500;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::Environment, Self::Diff, Self::Audit];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Environment => "environment_status",
            Self::Diff => "workspace_diff",
            Self::Audit => "mutation_audit",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Environment => Texts {
                description: "Tell how the private copy stands: whether commands can run and in which image, its limits, its digests, how much changed against the workspace, and what was withheld from it.",
                schema: r#"{"additionalProperties":false,"properties":{},"type":"object"}"#,
            },
            Self::Diff => Texts {
                description: "Show what the private copy changed against the workspace as a unified diff, page by page. It is for reading; whole bytes are what is imported. When truncated is true, call again with the same path and cursor = nextCursor.",
                schema: r#"{"additionalProperties":false,"properties":{"cursor":{"description":"nextCursor of the page before","type":"string"},"path":{"description":"a file, or a directory to look below; the whole copy if absent","type":"string"}},"type":"object"}"#,
            },
            Self::Audit => Texts {
                description: "List the edits of this run that were applied (apply_edits, move_file, quarantine_file, restore_file), oldest first, with digests before and after. What commands changed is in workspace_diff instead.",
                schema: r#"{"additionalProperties":false,"properties":{"after":{"description":"list what follows this number; 0 if absent","minimum":0,"type":"integer"},"limit":{"description":"100 if absent","maximum":500,"minimum":1,"type":"integer"}},"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Environment => decode::<Nothing>(bytes).map(|_| Arguments::Environment),
            Self::Diff => {
                let Diff { path, cursor } = decode(bytes)?;
                let path = path.as_deref().map_or_else(|| Ok(RelPath::root()), place)?;
                Ok(Arguments::Diff { path, cursor })
            }
            Self::Audit => {
                let Audit { after, limit } = decode(bytes)?;
                let limit = limit.unwrap_or(AUDIT_LIMIT);
                if !(1..=AUDIT_MOST).contains(&limit) {
                    return Err(invalid(format!("limit must be 1 to {AUDIT_MOST}")));
                }
                Ok(Arguments::Audit { after: after.unwrap_or(0), limit })
            }
        }
    }
}

/// The arguments of a tool that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    path: Option<String>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Audit {
    after: Option<u64>,
    limit: Option<u64>,
}
