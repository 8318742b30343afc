//! What a model is told of an edit: of one that could be applied, and of one that was. It only phrases.

use manifest::Decision;
use receipt::Diff;
use serde_json::{Value, json};

use super::patch::{entry_value, stays};
use super::{document, text};
use crate::edit::Proposal;
use crate::patch::Entry;
use crate::tree::RelPath;

/// What would be written, and how the rules decide each write.
pub(super) fn proposed(proposal: &Proposal, writes: &[(RelPath, Decision)]) -> Value {
    let Proposal { patch, digest, diff, .. } = proposal;
    let write = |(path, decision): &(RelPath, Decision)| json!({ "path": text(path), "effect": decision.effect.as_str(), "rule": decision.rule });
    let mut value = json!({
        "proposalId": digest.to_string(),
        "totals": { "entries": patch.entries.len(), "bytes": patch.written_bytes() },
        "changes": changed(&patch.entries),
        "writes": writes.iter().map(write).collect::<Vec<_>>(),
        "notCarried": patch.not_carried.iter().map(stays).collect::<Vec<_>>(),
        "diffTruncated": matches!(diff, Diff::Cut { .. }),
    });
    match diff.text() {
        Some(diff) => value["diff"] = diff.into(),
        None => value["diffWithheld"] = true.into(),
    }
    document("edit-proposal", value)
}

/// Each path with its states before and after.
pub(crate) fn changed(entries: &[Entry]) -> Vec<Value> {
    entries.iter().map(entry_value).collect()
}
