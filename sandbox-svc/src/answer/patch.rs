//! What a model is told of the private copy's changes, entry by entry and as a diff for reading. Everything is
//! bounded, and bytes that are not those of the patch are never shown.

use std::io::Read as _;

use event::Digest;
use manifest::Rulebook;
use serde_json::{Value, json};

use super::{bytes_text, clip, text};
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::mounts;
use crate::patch::git::{Export, Read};
use crate::patch::unified::{Side, render, wants_bytes};
use crate::patch::{Entry, file_state};
use crate::planner::Stop;
use crate::refusal::Reason;
use crate::tree::{Blobs, Dir, Node, NotCarried, RelPath};

const SHOWN: usize = 200;
const DIFF_BYTES: usize = 64 * 1024;

pub(super) fn inspect(
    environment: &Environment,
    rulebook: &Rulebook,
    present: &Present,
) -> Result<Value, Stop> {
    let patch = &present.patch;
    let paths = |paths: &[&RelPath]| -> Vec<Value> {
        paths.iter().take(SHOWN).map(|path| text(path)).collect()
    };
    let mut diff = String::new();
    let mut whole = true;
    for entry in &patch.entries {
        if diff.len() > DIFF_BYTES {
            whole = false;
            break;
        }
        diff.push_str(&diff_of(environment, entry)?);
    }
    let stripped: Vec<&RelPath> = patch.stripped.iter().collect();
    let mut value = json!({
        "schemaVersion": 1,
        "kind": "environment-patch",
        "patch": present.digest.to_string(),
        "totals": { "entries": patch.entries.len(), "bytes": patch.written_bytes() },
        "entries": patch.entries.iter().take(SHOWN).map(entry_value).collect::<Vec<_>>(),
        "protected": paths(&patch.protected(rulebook.protected())),
        "deletions": paths(&patch.deletions()),
        "renames": Export::of(&patch.entries).renamed().take(SHOWN).map(renamed).collect::<Vec<_>>(),
        "notCarried": patch.not_carried.iter().take(SHOWN).map(stays).collect::<Vec<_>>(),
        "notCarriedTotal": patch.not_carried.len(),
        "setIdRemoved": paths(&stripped),
        "diff": clip(&diff, DIFF_BYTES),
        "diffTruncated": !whole || diff.len() > DIFF_BYTES,
    });
    let direct = mounts::allowed::written_directly(rulebook.manifest());
    if !direct.is_empty() {
        value["writtenDirectly"] = direct.into();
    }
    Ok(value)
}

fn renamed((from, to): (&RelPath, &RelPath)) -> Value {
    json!({ "from": text(from), "to": text(to) })
}

/// What is in the copy and does not come along.
pub(super) fn stays(entry: &NotCarried) -> Value {
    json!({ "path": text(&entry.path), "reason": entry.reason.as_str() })
}

pub(super) fn entry_value(entry: &Entry) -> Value {
    let mut value = json!({ "path": text(&entry.path), "op": op(entry) });
    for (name, node) in [("before", entry.change.before()), ("after", entry.change.after())] {
        if let Some(node) = node {
            let receipt::FileState { mode, sha256, size } = file_state(node);
            value[name] = json!({ "mode": mode, "sha256": sha256.to_string(), "size": size });
            if let Node::Link { target } = node {
                value[name]["target"] = bytes_text(target);
            }
        }
    }
    value
}

pub(crate) fn op(entry: &Entry) -> &'static str {
    match entry.change.op() {
        receipt::PatchOp::Create => "create",
        receipt::PatchOp::Update => "update",
        receipt::PatchOp::Delete => "delete",
    }
}

/// One entry as text for people. Blocks.
pub(super) fn diff_of(environment: &Environment, entry: &Entry) -> Result<String, Stop> {
    diff_with(entry, &mut |path, node| match entry.change.before() {
        Some(before) if before == node => base_bytes(environment, node),
        Some(_) | None => read_copy(environment, path, node),
    })
}

/// One entry as text for people, with bytes from wherever they are. Blocks.
pub(crate) fn diff_with<E>(entry: &Entry, read: &mut Read<'_, E>) -> Result<String, E> {
    let mut side = |node| match wants_bytes(node) {
        true => Ok(Side { node, bytes: read(&entry.path, node)? }),
        false => Ok(Side { node, bytes: Vec::new() }),
    };
    let before = entry.change.before().map(&mut side).transpose()?;
    let after = entry.change.after().map(&mut side).transpose()?;
    Ok(render(entry, before.as_ref(), after.as_ref()))
}

fn base_bytes(environment: &Environment, node: &Node) -> Result<Vec<u8>, Stop> {
    let path = environment.place.blobs();
    let blobs =
        Blobs::open(&path).map_err(Error::file("the kept bytes cannot be opened", path.clone()))?;
    Ok(blobs.read(node.digest(), node.size()).map_err(Error::from)?)
}

/// A file of the copy that is exactly the node. Blocks.
pub(crate) fn read_copy(
    environment: &Environment,
    path: &RelPath,
    node: &Node,
) -> Result<Vec<u8>, Stop> {
    let stale = || Stop::from(Reason::PlanStale);
    let copy = Dir::open(&environment.place.copy()).map_err(|_| stale())?;
    let (parent, name) = path.split().ok_or_else(stale)?;
    let parent = copy.descend(&parent).map_err(|_| stale())?;
    let seen = parent.look(name).map_err(|_| stale())?.ok_or_else(stale)?;
    let file = parent.open_file(name, &seen).map_err(|_| stale())?;
    let mut bytes = Vec::new();
    file.take(node.size().saturating_add(1)).read_to_end(&mut bytes).map_err(|_| stale())?;
    if Digest::of(&bytes) == node.digest() { Ok(bytes) } else { Err(stale()) }
}
