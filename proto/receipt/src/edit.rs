//! What an edit of the private copy would write, as a person is shown it: states before and after, and a
//! bounded diff. It holds no file.

use event::Digest;
use serde::{Deserialize, Serialize};

use crate::path_text::PathText;
use crate::plan::{NotCarried, PatchEntry, Totals};

/// An edit by digest. Every entry is listed; the diff is for reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Digest of the entries: the proposal's id.
    pub digest: Digest,
    pub operation: EditOperation,
    pub totals: Totals,
    pub entries: Vec<PatchEntry>,
    /// Which of them tools run or obey on their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<PathText>,
    /// What is written to the private copy and never goes to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_carried: Option<NotCarried>,
    pub diff: Diff,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EditOperation {
    Apply,
    Move {
        source: PathText,
        destination: PathText,
    },
    /// The file goes out of the copy and is kept under this id.
    Quarantine {
        id: String,
    },
    /// The kept file comes back.
    Restore {
        id: String,
    },
}

/// A unified diff, as far as it can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "shown", rename_all = "snake_case", deny_unknown_fields)]
pub enum Diff {
    Whole {
        text: String,
    },
    /// The beginning of it.
    Cut {
        text: String,
    },
    /// It holds what may not be shown.
    Withheld {},
}

impl Diff {
    /// What there is to read.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Whole { text } | Self::Cut { text } => Some(text),
            Self::Withheld {} => None,
        }
    }
}
