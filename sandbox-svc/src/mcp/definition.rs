//! A tool as its server defines it, under one digest: what a person was shown and what is called are the same only
//! while that digest is. What the server says of the tool's effects is kept to be shown and read by nothing.

use std::collections::BTreeMap;

use event::Digest;
use serde_json::{Map, Value};

/// A definition that no plan and no model could be shown in full.
const BYTES: usize = 32 * 1024;
/// What a definition consists of; icons and the like are nobody's concern.
const MEMBERS: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) digest: Digest,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Value,
    /// Such as `readOnlyHint`.
    pub(crate) hints: BTreeMap<String, bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTool {
    #[error("a definition is larger than {BYTES} bytes or has no canonical form")]
    TooLarge,
    #[error("two tools have the same name")]
    Twice,
}

impl Definition {
    pub(super) fn of(tool: &rmcp::model::Tool) -> Result<Self, BadTool> {
        let value = serde_json::to_value(tool).map_err(|_| BadTool::TooLarge)?;
        let mut members = Map::new();
        for name in MEMBERS {
            if let Some(member) = value.get(name) {
                members.insert(name.to_owned(), member.clone());
            }
        }
        let whole = Value::Object(members);
        let bytes = event::canon::to_bytes(&whole).map_err(|_| BadTool::TooLarge)?;
        if bytes.len() > BYTES {
            return Err(BadTool::TooLarge);
        }
        let hints = whole["annotations"].as_object().into_iter().flatten();
        let hints = hints.filter_map(|(name, value)| Some((name.clone(), value.as_bool()?)));
        Ok(Self {
            name: tool.name.to_string(),
            digest: Digest::of(&bytes),
            description: tool.description.as_ref().map(ToString::to_string),
            input_schema: whole["inputSchema"].clone(),
            hints: hints.collect(),
        })
    }
}
