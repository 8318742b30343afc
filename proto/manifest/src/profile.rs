//! What a child of a run may do at most: a fixed list of tools each. It narrows what the manifest allows and never adds
//! to it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whom a run delegates to; the subject of the action `delegate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Reads.
    Explorer,
    /// Reads, edits the private copy and runs commands in it.
    Implementer,
    /// Reads, and runs the manifest's own checks.
    Tester,
    /// Reads, and looks at what was changed.
    Reviewer,
}

const READ: &[&str] = &[
    "environment_status",
    "inspect_patch",
    "list_files",
    "read_file",
    "read_files",
    "search_files",
    "search_many",
    "workspace_diff",
];
const CHANGE: &[&str] = &[
    "apply_edits",
    "move_file",
    "process.exec",
    "propose_edits",
    "quarantine_file",
    "restore_file",
    "run_batch",
];
const CHECK: &[&str] = &["run_check"];
const AUDIT: &[&str] = &["mutation_audit"];

impl Profile {
    pub const ALL: [Self; 4] = [Self::Explorer, Self::Implementer, Self::Tester, Self::Reviewer];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explorer => "explorer",
            Self::Implementer => "implementer",
            Self::Tester => "tester",
            Self::Reviewer => "reviewer",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    /// Whether the profile has the tool at all. What is on no list is denied: `import_patch`, which reaches the workspace;
    /// `delegate`, so that a child has no child; every remote tool.
    pub fn has(self, tool: &str) -> bool {
        let lists: &[&[&str]] = match self {
            Self::Explorer => &[READ],
            Self::Implementer => &[READ, CHANGE, CHECK, AUDIT],
            Self::Tester => &[READ, CHECK],
            Self::Reviewer => &[READ, AUDIT],
        };
        lists.iter().any(|list| list.contains(&tool))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn no_profile_reaches_the_workspace_or_has_a_child_or_a_tool_that_nobody_listed() {
        for profile in Profile::ALL {
            for tool in ["import_patch", "delegate", "remote.tool", "", "READ_FILE"] {
                assert!(!profile.has(tool), "{profile} {tool}");
            }
            assert!(profile.has("read_file"), "{profile}");
            assert_eq!(Profile::named(profile.as_str()), Some(profile));
        }
    }

    #[test]
    fn only_an_implementer_changes_the_copy() {
        for tool in super::CHANGE {
            let those = Profile::ALL.into_iter().filter(|profile| profile.has(tool));
            assert_eq!(those.collect::<Vec<_>>(), [Profile::Implementer], "{tool}");
        }
    }
}
