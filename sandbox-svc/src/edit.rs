//! Edits of the private copy, file by file: what they would come to, worked out against what is there now. It
//! reads the copy and writes nothing.

pub(crate) mod look;
mod propose;
pub(crate) mod text;

use std::collections::BTreeMap;

use event::Digest;
use event::id::CallId;
use receipt::{Diff, EditOperation, PatchEntry, PathText, Totals};

use crate::patch::unified::{Side, render};
use crate::patch::{Entry, Patch, encode, file_state};
use crate::tool::edit::id_text;
use crate::tree::{Node, RelPath};

pub(crate) use propose::{Proposer, Quarantined, stale};

const DOMAIN: &str = "harness.edit.v1";
/// Of the diff that a person and a model are shown.
const DIFF_BYTES: usize = 64 * 1024;

/// What kind of edit it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Move { source: RelPath, destination: RelPath },
    Quarantine { id: CallId },
    Restore { id: CallId },
}

/// Where the bytes of a new file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Supply {
    Bytes(Vec<u8>),
    /// A file of the copy, which goes away.
    Copy(RelPath),
    /// What was quarantined.
    Kept,
}

/// An edit that could be applied to the copy as it is.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) operation: Operation,
    /// Its entries, and what of them never goes to the workspace.
    pub(crate) patch: Patch,
    pub(crate) digest: Digest,
    /// By digest of the bytes.
    pub(crate) supplies: BTreeMap<Digest, Supply>,
    pub(crate) diff: Diff,
}

/// The proposal's id: digest of its entries.
pub(crate) fn digest(entries: &[Entry]) -> Digest {
    Digest::of_parts(DOMAIN, &encode(entries))
}

impl Proposal {
    /// `before` holds the old bytes of what may be shown line by line.
    fn new(
        operation: Operation,
        patch: Patch,
        supplies: BTreeMap<Digest, Supply>,
        before: &BTreeMap<RelPath, Vec<u8>>,
    ) -> Self {
        let diff = shown(&diff_of(&operation, &patch, &supplies, before));
        let digest = digest(&patch.entries);
        Self { operation, patch, digest, supplies, diff }
    }

    /// As a plan shows it.
    pub(crate) fn to_plan(&self, protected: Vec<PathText>) -> receipt::Edit {
        let Self { operation, patch, digest, diff, supplies: _ } = self;
        let entry = |entry: &Entry| PatchEntry {
            op: entry.change.op(),
            path: path_text(&entry.path),
            before: entry.change.before().map(file_state),
            after: entry.change.after().map(file_state),
        };
        receipt::Edit {
            digest: *digest,
            operation: match operation {
                Operation::Apply => EditOperation::Apply,
                Operation::Move { source, destination } => EditOperation::Move {
                    source: path_text(source),
                    destination: path_text(destination),
                },
                Operation::Quarantine { id } => EditOperation::Quarantine { id: id_text(*id) },
                Operation::Restore { id } => EditOperation::Restore { id: id_text(*id) },
            },
            totals: Totals { entries: patch.entries.len() as u64, bytes: patch.written_bytes() },
            entries: patch.entries.iter().map(entry).collect(),
            protected,
            not_carried: (!patch.not_carried.is_empty()).then(|| receipt::NotCarried {
                total: patch.not_carried.len() as u64,
                entries: patch.not_carried.iter().map(stays).collect(),
            }),
            diff: diff.clone(),
        }
    }
}

fn stays(entry: &crate::tree::NotCarried) -> receipt::NotCarriedEntry {
    receipt::NotCarriedEntry {
        path: path_text(&entry.path),
        reason: entry.reason.as_str().to_owned(),
    }
}

fn path_text(path: &RelPath) -> PathText {
    PathText::from_bytes(path.as_bytes())
}

fn diff_of(
    operation: &Operation,
    patch: &Patch,
    supplies: &BTreeMap<Digest, Supply>,
    before: &BTreeMap<RelPath, Vec<u8>>,
) -> String {
    if let Operation::Move { source, destination } = operation {
        return format!(
            "diff a/{source} b/{destination}\nrename from {source}\nrename to {destination}\n"
        );
    }
    let mut diff = String::new();
    for entry in &patch.entries {
        if diff.len() > DIFF_BYTES {
            break;
        }
        let kept_out = patch.not_carried.iter().any(|stays| stays.path == entry.path);
        let old = entry.change.before().map(|node| side(node, before.get(&entry.path), kept_out));
        let new = entry.change.after().map(|node| {
            let bytes = match supplies.get(&node.digest()) {
                Some(Supply::Bytes(bytes)) => Some(bytes),
                Some(Supply::Copy(_) | Supply::Kept) | None => None,
            };
            side(node, bytes, kept_out)
        });
        diff.push_str(&render(entry, old.as_ref(), new.as_ref()));
    }
    diff
}

/// A zero byte makes it be shown by size and digest.
fn side<'a>(node: &'a Node, bytes: Option<&Vec<u8>>, kept_out: bool) -> Side<'a> {
    let bytes = match bytes {
        Some(bytes) if !kept_out => bytes.clone(),
        Some(_) | None => vec![0],
    };
    Side { node, bytes }
}

/// What may not be shown is not shown in part.
fn shown(diff: &str) -> Diff {
    if event::redact::holds_secret(&serde_json::Value::from(diff)) {
        return Diff::Withheld {};
    }
    let text = crate::answer::clip(diff, DIFF_BYTES).to_owned();
    if text.len() < diff.len() { Diff::Cut { text } } else { Diff::Whole { text } }
}
