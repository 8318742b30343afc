//! What a model is told of the private copy's files: listings and windows of lines, bounded, and read as trees
//! that may change are read.

use std::io::Read as _;

use event::Digest;
use manifest::Rulebook;
use serde_json::{Value, json};

use super::{bytes_text, clip, text};
use crate::environment::Environment;
use crate::error::Error;
use crate::planner::Stop;
use crate::planner::read::Prepared;
use crate::refusal::{Reason, Refusal};
use crate::tree::blobs::Hasher;
use crate::tree::reason::Reason as Cause;
use crate::tree::scan::Found;
use crate::tree::{Dir, Kind, Node, RelPath};

/// The largest file that is read for a window of its lines.
const FILE_BYTES: u64 = 1 << 20;
const WINDOW_LINES: u64 = 400;
const MOST_LINES: u64 = 2_000;
const WINDOW_BYTES: usize = 128 * 1024;

pub(super) fn answer(
    environment: &Environment,
    rulebook: &Rulebook,
    prepared: &Prepared,
) -> Result<Value, Stop> {
    match prepared {
        Prepared::ListFiles { path, limit, after } => {
            list(environment, rulebook, path, *limit, after.as_ref())
        }
        Prepared::ReadFile { path, start, end } => read(environment, path, *start, *end),
    }
}

fn list(
    environment: &Environment,
    rulebook: &Rulebook,
    path: &RelPath,
    limit: usize,
    after: Option<&RelPath>,
) -> Result<Value, Stop> {
    let found = environment.found(rulebook)?;
    match found.inventory.get(path) {
        Some(Node::Directory { .. }) => (),
        None if path.is_root() => (),
        None => return Err(absent(environment, Some(&found), path).into()),
        Some(Node::File { .. } | Node::Link { .. }) => {
            return Err(Refusal::new(Reason::PathNotReadable, "it is not a directory").into());
        }
    }
    let mut listed =
        found.inventory.below(path).filter(|(entry, _)| after.is_none_or(|after| *entry > after));
    let entries: Vec<Value> = listed.by_ref().take(limit).map(listing).collect();
    let truncated = listed.next().is_some();
    Ok(json!({ "path": text(path), "entries": entries, "truncated": truncated }))
}

fn listing((path, node): (&RelPath, &Node)) -> Value {
    match node {
        Node::Directory { .. } => json!({ "path": text(path), "kind": "directory" }),
        Node::File { size, digest, .. } => {
            json!({ "path": text(path), "kind": "file", "size": size, "digest": digest.to_string() })
        }
        Node::Link { target } => {
            json!({ "path": text(path), "kind": "link", "target": bytes_text(target) })
        }
    }
}

fn read(
    environment: &Environment,
    path: &RelPath,
    start: u64,
    end: Option<u64>,
) -> Result<Value, Stop> {
    let (bytes, digest) = read_text(environment, path)?;
    let content = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    let total = lines.len() as u64;
    let last = end.unwrap_or_else(|| start.saturating_add(WINDOW_LINES - 1));
    let last = last.min(start.saturating_add(MOST_LINES - 1)).min(total);
    let mut window = String::new();
    let mut shown = start.saturating_sub(1);
    for line in lines.iter().skip(usize::try_from(start - 1).unwrap_or(usize::MAX)) {
        if shown >= last || window.len() + line.len() > WINDOW_BYTES && !window.is_empty() {
            break;
        }
        window.push_str(clip(line, WINDOW_BYTES));
        shown += 1;
    }
    Ok(json!({
        "path": text(path),
        "digest": digest.to_string(),
        "startLine": start,
        "endLine": shown,
        "totalLines": total,
        "truncated": start > 1 || shown < total,
        "utf8": matches!(content, std::borrow::Cow::Borrowed(_)),
        "content": window,
    }))
}

/// Why nothing can be said of a path: what was kept out of the copy is no missing file.
fn absent(environment: &Environment, found: Option<&Found>, path: &RelPath) -> Refusal {
    if let Some(reason) = environment.withheld(path) {
        let detail = format!("it is withheld from the private copy: {}", reason.as_str());
        return Refusal::new(Reason::PathNotReadable, detail);
    }
    let strange = found.and_then(|found| found.left_out(path));
    match strange {
        Some(reason) => {
            let detail = format!("what is there is not carried: {}", reason.as_str());
            Refusal::new(Reason::PathNotReadable, detail)
        }
        None => Reason::PathNotFound.into(),
    }
}

/// The directory that a path is in. A link on the way is never followed.
fn parent_of(environment: &Environment, copy: &Dir, path: &RelPath) -> Result<Dir, Refusal> {
    let unreadable = |detail: &str| Refusal::new(Reason::PathNotReadable, detail);
    let gone = || absent(environment, None, path);
    let (parent, _) = path.split().ok_or_else(|| unreadable("it is a directory"))?;
    let root = RelPath::root();
    let mut here = copy.descend(&root).map_err(|reason| unreadable(reason.as_str()))?;
    for name in parent.components() {
        let seen = here.look(name).map_err(|reason| unreadable(reason.as_str()))?;
        match seen.map(|seen| seen.kind) {
            Some(Kind::Directory) => (),
            Some(Kind::Link) => return Err(unreadable("a symbolic link is on the way to it")),
            Some(Kind::File | Kind::Special) | None => return Err(gone()),
        }
        here = here.open_directory(name).map_err(|reason| unreadable(reason.as_str()))?;
    }
    Ok(here)
}

/// The whole file: regular, with one link, without zero bytes, not too large.
fn read_text(environment: &Environment, path: &RelPath) -> Result<(Vec<u8>, Digest), Stop> {
    let copy = Dir::open(&environment.place.copy())
        .map_err(Error::file("the copy cannot be opened", environment.place.copy()))?;
    let unreadable = |detail: &'static str| Refusal::new(Reason::PathNotReadable, detail);
    let (_, name) = path.split().ok_or_else(|| unreadable("it is a directory"))?;
    let parent = parent_of(environment, &copy, path)?;
    let seen = match parent.look(name) {
        Ok(Some(seen)) => seen,
        Ok(None) => return Err(absent(environment, None, path).into()),
        Err(reason) => return Err(unreadable(reason.as_str()).into()),
    };
    match seen.kind {
        Kind::File => (),
        Kind::Directory => return Err(unreadable("it is a directory").into()),
        Kind::Link => return Err(unreadable("it is a symbolic link").into()),
        Kind::Special => return Err(unreadable(Cause::Special.as_str()).into()),
    }
    if seen.size > FILE_BYTES {
        return Err(unreadable("it is larger than 1 MiB").into());
    }
    let file = parent.open_file(name, &seen).map_err(|reason| unreadable(reason.as_str()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|_| unreadable("it cannot be read"))?;
    if bytes.len() as u64 != seen.size {
        return Err(unreadable("it changed while it was read").into());
    }
    if bytes.contains(&0) {
        return Err(unreadable("it is not text").into());
    }
    let mut hasher = Hasher::default();
    hasher.update(&bytes);
    let digest = hasher.finish().map_err(Error::file("a digest failed for", path.to_string()))?;
    Ok((bytes, digest))
}
