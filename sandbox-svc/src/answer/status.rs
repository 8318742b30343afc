//! What a model is told of its environment: how it stands, what changed as a diff in pages, and which edits were
//! applied. Everything is bounded.

use std::collections::BTreeMap;

use manifest::Rulebook;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::patch::diff_of;
use super::{clip, document, text};
use crate::environment::{Environment, Present};
use crate::patch::Patch;
use crate::planner::Stop;
use crate::planner::status::{Commands, Prepared};
use crate::store::{Kept, Mutation, Numbered};
use crate::tool::cursor::{Binding, Place};
use crate::tree::{Node, RelPath};

/// Of one page.
const DIFF_BYTES: usize = 64 * 1024;

pub(super) fn answer(
    environment: &Environment,
    rulebook: &Rulebook,
    prepared: &Prepared,
) -> Result<Value, Stop> {
    match prepared {
        Prepared::Environment { present, commands, kept } => {
            Ok(stands(environment, rulebook, present, commands.as_ref(), *kept))
        }
        Prepared::Diff { present, patch, binding, from } => {
            diff(environment, present, patch, *binding, from)
        }
        Prepared::Audit { rows, more } => Ok(audit(rows, *more)),
    }
}

fn stands(
    environment: &Environment,
    rulebook: &Rulebook,
    present: &Present,
    commands: Option<&Commands>,
    kept: Kept,
) -> Value {
    let Present { base, found, patch, digest } = present;
    let (mut files, mut directories, mut links, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    for (_, node) in found.inventory.iter() {
        bytes = bytes.saturating_add(node.size());
        match node {
            Node::File { .. } => files += 1,
            Node::Directory { .. } => directories += 1,
            Node::Link { .. } => links += 1,
        }
    }
    let mut withheld: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in environment.before.values() {
        *withheld.entry(reason.as_str()).or_default() += 1;
    }
    let commands = commands.map(|Commands { image, programs, limits }| {
        json!({ "image": image, "programs": programs, "limits": limits })
    });
    document(
        "environment-status",
        json!({
            "workspace": environment.workspace,
            "manifest": rulebook.manifest().digest.to_string(),
            "network": "none",
            "commands": commands,
            "baseDigest": base.digest().to_string(),
            "digest": found.inventory.digest().to_string(),
            "patchId": digest.to_string(),
            "changedEntries": patch.entries.len(),
            "changedBytes": patch.written_bytes(),
            "notCarried": patch.not_carried.len(),
            "contents": { "files": files, "directories": directories, "links": links, "bytes": bytes },
            "withheld": withheld,
            "quarantine": { "files": kept.files, "bytes": kept.bytes },
        }),
    )
}

/// A page begins at an entry and a byte of its text.
fn diff(
    environment: &Environment,
    present: &Present,
    patch: &Patch,
    binding: Binding,
    from: &Place,
) -> Result<Value, Stop> {
    let (mut page, mut entries) = (String::new(), 0_u64);
    let mut next = None;
    let ahead = patch.entries.iter().filter(|entry| entry.path >= from.path);
    // A path that is deleted and made anew has two entries and one text.
    let mut of_path: BTreeMap<&RelPath, Vec<_>> = BTreeMap::new();
    for entry in ahead {
        of_path.entry(&entry.path).or_default().push(entry);
    }
    for (path, path_entries) in of_path {
        if page.len() >= DIFF_BYTES {
            next = Some(Place { path: path.clone(), number: 0 });
            break;
        }
        let mut whole = String::new();
        for entry in path_entries {
            whole.push_str(&diff_of(environment, entry)?);
        }
        let begin = if *path == from.path { usize::try_from(from.number).unwrap_or(0) } else { 0 };
        let rest = whole.get(begin..).unwrap_or_default();
        let shown = clip(rest, DIFF_BYTES - page.len());
        page.push_str(shown);
        entries += 1;
        if shown.len() < rest.len() {
            next = Some(Place { path: path.clone(), number: (begin + shown.len()) as u64 });
            break;
        }
    }
    let mut value = json!({
        "patchId": present.digest.to_string(),
        "totals": { "entries": patch.entries.len(), "bytes": patch.written_bytes() },
        "paths": entries,
        "diff": page,
        "truncated": next.is_some(),
    });
    if let Some(next) = next {
        value["nextCursor"] = binding.encode(&next).into();
    }
    Ok(document("workspace-diff", value))
}

fn audit(rows: &[Numbered], more: bool) -> Value {
    let mutations: Vec<Value> = rows.iter().map(mutation).collect();
    document("mutation-audit", json!({ "mutations": mutations, "truncated": more }))
}

fn mutation(row: &Numbered) -> Value {
    let Numbered { number, mutation } = row;
    let Mutation { call, at_ms, operation, path, destination, before, after } = mutation;
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(*at_ms) * 1_000_000);
    let at = at.ok().and_then(|at| at.format(&Rfc3339).ok());
    let mut value = json!({
        "number": number,
        "callId": call.to_string(),
        "at": at,
        "operation": operation,
        "path": text(path),
    });
    if let Some(destination) = destination {
        value["destination"] = text(destination);
    }
    for (name, digest) in [("beforeDigest", before), ("afterDigest", after)] {
        if let Some(digest) = digest {
            value[name] = digest.to_string().into();
        }
    }
    value
}
