//! What a plan says of a tool server: which one, and the tool with its arguments in full. What the server says of
//! the tool is shown beside it and decides nothing.

use std::collections::BTreeMap;

use event::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tool server as the manifest names it; its command is the plan's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolServer {
    pub server: String,
    /// Absent where the server's tools are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub tool: String,
    /// Of the tool's name, title, description, schemas and hints, as the server listed them last.
    pub definition: Digest,
    pub arguments: Map<String, Value>,
    /// The server's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the server says of the tool, such as `readOnlyHint`; shown, and believed by nobody.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hints: BTreeMap<String, bool>,
}
