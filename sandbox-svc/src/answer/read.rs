//! What a model is told of the private copy's files: listings and windows of lines, bounded, and read as trees
//! that may change are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;

use event::Digest;
use manifest::Rulebook;
use serde_json::{Value, json};

use super::{bytes_text, clip, document, text};
use crate::edit::text::{has_bom, line_ending};
use crate::environment::Environment;
use crate::error::Error;
use crate::planner::Stop;
use crate::planner::read::Prepared;
use crate::refusal::{Reason, Refusal};
use crate::tool::cursor::Place;
use crate::tool::read::{Slice, list_binding};
use crate::tree::reason::Reason as Cause;
use crate::tree::scan::Found;
use crate::tree::{Dir, Kind, Node, RelPath};

/// The largest file that is read for a window of its lines.
const FILE_BYTES: u64 = 1 << 20;
const WINDOW_LINES: u64 = 400;
const MOST_LINES: u64 = 2_000;
const WINDOW_BYTES: usize = 128 * 1024;
/// Of all files of one call.
const SOURCE_BYTES: usize = 2 << 20;

pub(super) fn answer(
    environment: &Environment,
    rulebook: &Rulebook,
    prepared: &Prepared,
) -> Result<Value, Stop> {
    match prepared {
        Prepared::ListFiles { path, limit, after } => {
            list(environment, rulebook, path, *limit, after.as_ref())
        }
        Prepared::ReadFile(slice) => {
            let text = read_text(environment, rulebook, &slice.path)?;
            let mut value = document("file", text.facts(&slice.path));
            let Value::Object(window) = text.window(slice, WINDOW_BYTES) else { return Ok(value) };
            for (name, member) in window {
                value[name] = member;
            }
            Ok(value)
        }
        Prepared::ReadFiles(slices) => read_many(environment, rulebook, slices),
    }
}

/// Each file is read once; a slice that cannot be read does not spoil the others.
fn read_many(
    environment: &Environment,
    rulebook: &Rulebook,
    slices: &[Slice],
) -> Result<Value, Stop> {
    let mut texts: BTreeMap<&RelPath, Result<Text, Refusal>> = BTreeMap::new();
    let (mut left, mut sources) = (WINDOW_BYTES, SOURCE_BYTES);
    let mut shown = Vec::new();
    for slice in slices {
        if !texts.contains_key(&slice.path) {
            let text = match read_text(environment, rulebook, &slice.path) {
                Ok(text) if text.bytes.len() > sources => {
                    let detail = format!("all files together have more than {SOURCE_BYTES} bytes");
                    Err(Refusal::new(Reason::ResultTooLarge, detail))
                }
                Ok(text) => {
                    sources -= text.bytes.len();
                    Ok(text)
                }
                Err(Stop::Refused(refusal)) => Err(refusal),
                Err(stop @ Stop::Failed(_)) => return Err(stop),
            };
            texts.insert(&slice.path, text);
        }
        let mut value = match texts.get(&slice.path) {
            Some(Ok(text)) => text.window(slice, left),
            Some(Err(refusal)) => refused(refusal),
            None => continue,
        };
        left = left.saturating_sub(value["content"].as_str().map_or(0, str::len));
        value["path"] = text(&slice.path);
        shown.push(value);
    }
    let files: Vec<Value> = texts
        .iter()
        .filter_map(|(path, text)| text.as_ref().ok().map(|text| text.facts(path)))
        .collect();
    Ok(document("files", json!({ "files": files, "slices": shown })))
}

fn refused(refusal: &Refusal) -> Value {
    json!({ "error": { "reason": refusal.reason.as_str(), "detail": refusal.detail } })
}

fn list(
    environment: &Environment,
    rulebook: &Rulebook,
    path: &RelPath,
    limit: usize,
    after: Option<&RelPath>,
) -> Result<Value, Stop> {
    let found = environment.found(rulebook)?;
    if !is_there(environment, &found, path)? {
        return Err(Refusal::new(Reason::PathNotReadable, "it is not a directory").into());
    }
    let mut listed =
        found.inventory.below(path).filter(|(entry, _)| after.is_none_or(|after| *entry > after));
    let page: Vec<_> = listed.by_ref().take(limit).collect();
    let truncated = listed.next().is_some();
    let entries: Vec<Value> = page.iter().copied().map(listing).collect();
    let mut value = document(
        "file-list",
        json!({ "path": text(path), "entries": entries, "truncated": truncated }),
    );
    if let Some((last, _)) = page.last().filter(|_| truncated) {
        let place = Place { path: (*last).clone(), number: 0 };
        value["nextCursor"] = list_binding(path).encode(&place).into();
    }
    Ok(value)
}

/// Whether it is a directory; a place with nothing to show is refused with the reason.
pub(crate) fn is_there(
    environment: &Environment,
    found: &Found,
    path: &RelPath,
) -> Result<bool, Refusal> {
    match found.inventory.get(path) {
        Some(Node::Directory { .. }) => Ok(true),
        None if path.is_root() => Ok(true),
        Some(Node::File { .. } | Node::Link { .. }) => Ok(false),
        None => Err(absent(environment, Some(found), path)),
    }
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

/// A whole text file.
struct Text {
    bytes: Vec<u8>,
    digest: Digest,
}

impl Text {
    fn facts(&self, path: &RelPath) -> Value {
        let content = String::from_utf8_lossy(&self.bytes);
        json!({
            "path": text(path),
            "digest": self.digest.to_string(),
            "size": self.bytes.len(),
            "totalLines": content.split_inclusive('\n').count(),
            "lineEnding": line_ending(&self.bytes),
            "byteOrderMark": has_bom(&self.bytes),
            "finalNewline": self.bytes.ends_with(b"\n"),
            "utf8": matches!(content, Cow::Borrowed(_)),
        })
    }

    /// The lines that were asked for, as far as they fit.
    fn window(&self, slice: &Slice, most: usize) -> Value {
        let Slice { start, end, .. } = *slice;
        let content = String::from_utf8_lossy(&self.bytes);
        let lines: Vec<&str> = content.split_inclusive('\n').collect();
        let total = lines.len() as u64;
        let last = end.unwrap_or_else(|| start.saturating_add(WINDOW_LINES - 1));
        let last = last.min(start.saturating_add(MOST_LINES - 1)).min(total);
        let (mut window, mut cut) = (String::new(), false);
        let mut shown = start.saturating_sub(1);
        for line in lines.iter().skip(usize::try_from(start - 1).unwrap_or(usize::MAX)) {
            let full = window.len() + line.len() > most;
            if shown >= last || most == 0 || full && !window.is_empty() {
                break;
            }
            cut = full;
            window.push_str(clip(line, most));
            shown += 1;
        }
        let mut value = json!({
            "startLine": start,
            "endLine": shown,
            "truncated": start > 1 || shown < total || cut,
            "content": window,
        });
        if cut {
            value["lineCut"] = true.into();
        }
        value
    }
}

/// Why nothing can be said of a path: what was kept out of the copy is no missing file.
fn absent(environment: &Environment, found: Option<&Found>, path: &RelPath) -> Refusal {
    if let Some(reason) = environment.withheld(path) {
        let detail = format!("it is withheld from the private copy: {}", reason.as_str());
        return Refusal::new(Reason::PathNotReadable, detail);
    }
    let strange = found.and_then(|found| found.left_out(path));
    match strange {
        Some(reason) => not_carried(reason),
        None => Reason::PathNotFound.into(),
    }
}

fn not_carried(reason: Cause) -> Refusal {
    let detail = format!("what is there is not carried: {}", reason.as_str());
    Refusal::new(Reason::PathNotReadable, detail)
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
fn read_text(environment: &Environment, rulebook: &Rulebook, path: &RelPath) -> Result<Text, Stop> {
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
    if let Some(reason) = environment.kept_out(rulebook, path) {
        return Err(not_carried(reason).into());
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
    if environment.is_secret(path, &bytes) {
        return Err(not_carried(Cause::SecretContent).into());
    }
    let digest = Digest::of(&bytes);
    Ok(Text { bytes, digest })
}
