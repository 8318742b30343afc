//! What a tool wants to do, by name. It decides nothing.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a tool wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    FsRead,
    FsWrite,
    FsList,
    ProcessExec,
    Network,
    PatchImport,
    McpCall,
    Delegate,
}

impl Action {
    pub const ALL: [Self; 8] = [
        Self::FsRead,
        Self::FsWrite,
        Self::FsList,
        Self::ProcessExec,
        Self::Network,
        Self::PatchImport,
        Self::McpCall,
        Self::Delegate,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::FsRead => "fs.read",
            Self::FsWrite => "fs.write",
            Self::FsList => "fs.list",
            Self::ProcessExec => "process.exec",
            Self::Network => "network",
            Self::PatchImport => "patch.import",
            Self::McpCall => "mcp.call",
            Self::Delegate => "delegate",
        }
    }

    /// The action of that name; the reserved names are none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    /// Its subjects are paths of the workspace.
    pub fn is_about_paths(self) -> bool {
        matches!(self, Self::FsRead | Self::FsWrite | Self::FsList)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
