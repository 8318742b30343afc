//! A patch as `git apply` takes it: text as a unified diff, everything else as git's binary patch, so that the export
//! is text whatever it carries. Git knows of a file's mode only whether it may be executed, and of no empty
//! directory; what it does not carry is told in a comment before the first diff.

mod base85;
mod name;

use std::collections::BTreeMap;
use std::time::Duration;

use event::Digest;
use miniz_oxide::deflate::compress_to_vec_zlib;
use similar::TextDiff;

use crate::patch::{Change, Entry};
use crate::tree::{Node, RelPath};

use base85::encode_lines;
use name::{Name, old_and_new};

/// Text that is larger is carried as git's binary patch, which needs no comparison.
const MAX_TEXT: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_millis(500);
const CONTEXT_LINES: usize = 3;
/// Of compression; what it saves beyond is not worth its time.
const LEVEL: u8 = 6;
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// One file or link as git sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Object<'a> {
    path: &'a RelPath,
    node: &'a Node,
}

/// One diff of the export.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Diff<'a> {
    Made(Object<'a>),
    Gone(Object<'a>),
    Changed(Object<'a>, Object<'a>),
    /// The same bytes and mode under another name.
    Renamed(Object<'a>, Object<'a>),
}

/// What `git apply` is to be given, diff by diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export<'a> {
    diffs: Vec<Diff<'a>>,
    /// What git cannot carry, for people.
    silent: Vec<String>,
}

/// The bytes of one file.
pub(crate) type Read<'a, E> = dyn FnMut(&RelPath, &Node) -> Result<Vec<u8>, E> + 'a;

impl<'a> Export<'a> {
    pub(crate) fn of(entries: &'a [Entry]) -> Self {
        let mut silent = Vec::new();
        let (mut gone, mut made, mut changed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for Entry { path, change } in entries {
            if let Some(told) = not_carried(path, change, entries) {
                silent.push(told);
            }
            let before = change.before().filter(|node| !node.is_directory());
            let after = change.after().filter(|node| !node.is_directory());
            match (before, after) {
                (None, None) => (),
                (Some(node), None) => {
                    gone.insert(path, node);
                }
                (None, Some(node)) => {
                    made.insert(path, node);
                }
                (Some(before), Some(after)) if kind(before) == kind(after) => {
                    let is_seen =
                        git_mode(before) != git_mode(after) || before.digest() != after.digest();
                    if is_seen {
                        let object = |node| Object { path, node };
                        changed.push(Diff::Changed(object(before), object(after)));
                    }
                }
                // To git a file and a link are two, the one gone before the other is made.
                (Some(before), Some(after)) => {
                    gone.insert(path, before);
                    made.insert(path, after);
                }
            }
        }
        let mut diffs = renames(&mut gone, &mut made);
        let object = |(path, node)| Object { path, node };
        // Deletes come first, so that what is made finds its place free.
        diffs.extend(gone.into_iter().map(object).map(Diff::Gone));
        diffs.extend(changed);
        diffs.extend(made.into_iter().map(object).map(Diff::Made));
        Self { diffs, silent }
    }

    /// What is in another place with the same bytes and mode.
    pub(crate) fn renamed(&self) -> impl Iterator<Item = (&'a RelPath, &'a RelPath)> {
        self.diffs.iter().filter_map(|diff| match diff {
            Diff::Renamed(from, to) => Some((from.path, to.path)),
            Diff::Made(_) | Diff::Gone(_) | Diff::Changed(..) => None,
        })
    }

    /// What git will not do, one line each, before everything else: `git apply` passes over it.
    pub(crate) fn preamble(&self) -> String {
        self.silent.iter().map(|line| format!("# git does not carry: {line}\n")).collect()
    }

    /// The diff at that place; nothing beyond the last.
    pub(crate) fn render<E>(&self, at: usize, read: &mut Read<'_, E>) -> Result<Option<String>, E> {
        let mut bytes = |Object { path, node }: &Object<'_>| match node {
            Node::Link { target } => Ok(target.clone()),
            Node::File { .. } | Node::Directory { .. } => read(path, node),
        };
        Ok(Some(match self.diffs.get(at) {
            None => return Ok(None),
            Some(Diff::Renamed(from, to)) => {
                let (from, to) = (from.path.as_bytes(), to.path.as_bytes());
                format!(
                    "diff --git {}\nsimilarity index 100%\nrename from {}\nrename to {}\n",
                    old_and_new(from, to),
                    Name::bare(from),
                    Name::bare(to)
                )
            }
            Some(Diff::Made(object)) => {
                let new = bytes(object)?;
                let path = object.path.as_bytes();
                let mode = git_mode(object.node);
                let mut text =
                    format!("diff --git {}\nnew file mode {mode}\n", old_and_new(path, path));
                body(&mut text, None, Some((path, &new)));
                text
            }
            Some(Diff::Gone(object)) => {
                let old = bytes(object)?;
                let path = object.path.as_bytes();
                let mode = git_mode(object.node);
                let mut text =
                    format!("diff --git {}\ndeleted file mode {mode}\n", old_and_new(path, path));
                body(&mut text, Some((path, &old)), None);
                text
            }
            Some(Diff::Changed(before, after)) => {
                let (old, new) = (bytes(before)?, bytes(after)?);
                let path = before.path.as_bytes();
                let (was, now) = (git_mode(before.node), git_mode(after.node));
                let mut text = format!("diff --git {}\n", old_and_new(path, path));
                if was != now {
                    text.push_str(&format!("old mode {was}\nnew mode {now}\n"));
                }
                body(&mut text, Some((path, &old)), Some((path, &new)));
                text
            }
        }))
    }
}

/// The same file or link, gone in one place and made in another. One that is made is the renaming of one.
fn renames<'a>(
    gone: &mut BTreeMap<&'a RelPath, &'a Node>,
    made: &mut BTreeMap<&'a RelPath, &'a Node>,
) -> Vec<Diff<'a>> {
    let mut by_state: BTreeMap<(&'static str, Digest), Vec<(&'a RelPath, &'a Node)>> =
        BTreeMap::new();
    // Where both are of one path, that path changes its kind.
    for (path, node) in gone.iter().filter(|(path, _)| !made.contains_key(*path)) {
        // Empty files are all alike.
        if node.size() > 0 {
            by_state.entry((git_mode(node), node.digest())).or_default().push((path, node));
        }
    }
    let mut renamed = Vec::new();
    let is_free = |path: &RelPath, gone: &BTreeMap<&RelPath, &Node>| {
        !path.ancestors().any(|path| gone.contains_key(&path))
            && !gone.keys().any(|other| other.is_below(path))
    };
    for (path, node) in made.iter() {
        let Some(sources) = by_state.get_mut(&(git_mode(node), node.digest())) else { continue };
        // What needs another delete first is left as delete and create.
        if !is_free(path, gone) {
            continue;
        }
        if let Some((from, was)) = sources.pop() {
            renamed.push((Object { path: from, node: was }, Object { path, node }));
        }
    }
    for (from, to) in &renamed {
        gone.remove(from.path);
        made.remove(to.path);
    }
    renamed.into_iter().map(|(from, to)| Diff::Renamed(from, to)).collect()
}

fn kind(node: &Node) -> u8 {
    match node {
        Node::Directory { .. } => 0,
        Node::File { .. } => 1,
        Node::Link { .. } => 2,
    }
}

fn git_mode(node: &Node) -> &'static str {
    match node {
        Node::Link { .. } => "120000",
        Node::File { mode, .. } if mode & 0o100 != 0 => "100755",
        Node::File { .. } | Node::Directory { .. } => "100644",
    }
}

/// What of an entry is lost to git, in words.
fn not_carried(path: &RelPath, change: &Change, entries: &[Entry]) -> Option<String> {
    let usual = |node: &Node| match node {
        Node::File { mode, .. } => matches!(mode & 0o777, 0o644 | 0o755),
        Node::Directory { mode } => mode & 0o777 == 0o755,
        Node::Link { .. } => true,
    };
    let is_empty = |path: &RelPath| !entries.iter().any(|entry| entry.path.is_below(path));
    match (change, change.after()) {
        (Change::Create { after: Node::Directory { .. } }, _) if is_empty(path) => {
            Some(format!("the new directory {path}, which is empty"))
        }
        (Change::Delete { before: Node::Directory { .. } }, _) if is_empty(path) => {
            Some(format!("that the directory {path}, which is empty, is gone"))
        }
        (Change::Update { before, after }, _)
            if before.mode() != after.mode()
                && (after.is_directory()
                    || git_mode(before) == git_mode(after)
                    || !usual(after)) =>
        {
            Some(format!("the mode {} of {path}", after.mode_text()))
        }
        (Change::Create { .. }, Some(after)) if !usual(after) => {
            Some(format!("the mode {} of {path}", after.mode_text()))
        }
        _ => None,
    }
}

type Side<'a> = Option<(&'a [u8], &'a [u8])>;

/// What follows the header of a diff: nothing, hunks, or git's binary patch.
fn body(text: &mut String, old: Side<'_>, new: Side<'_>) {
    let bytes = |side: Side<'_>| side.map_or(&[][..], |(_, bytes)| bytes).to_vec();
    let (before, after) = (bytes(old), bytes(new));
    if before == after {
        return;
    }
    match (as_text(&before), as_text(&after)) {
        (Some(before), Some(after)) => hunks(text, old, new, before, after),
        (None, _) | (_, None) => binary(text, old, new),
    }
}

/// What a diff can carry line by line: UTF-8 without zero bytes, with lines that end as git's do.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let small = bytes.len() <= MAX_TEXT && !bytes.contains(&0);
    std::str::from_utf8(bytes).ok().filter(|_| small)
}

fn hunks(text: &mut String, old: Side<'_>, new: Side<'_>, before: &str, after: &str) {
    let name = |letter: u8, side: Side<'_>| match side {
        Some((path, _)) => Name::under(letter, path).to_string(),
        None => "/dev/null".to_owned(),
    };
    text.push_str(&format!("--- {}\n+++ {}\n", name(b'a', old), name(b'b', new)));
    // A carriage return alone ends no line here, nor does any of Unicode's line ends.
    let lines =
        |text: &str| -> Vec<String> { text.split_inclusive('\n').map(str::to_owned).collect() };
    let (before, after) = (lines(before), lines(after));
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let after: Vec<&str> = after.iter().map(String::as_str).collect();
    let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&before, &after);
    for group in diff.grouped_ops(CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| {
            // An empty side begins after the line before it.
            let begins = if start == end { start } else { start + 1 };
            format!("{begins},{}", end - start)
        };
        text.push_str(&format!(
            "@@ -{} +{} @@\n",
            range(first.old_range().start, last.old_range().end),
            range(first.new_range().start, last.new_range().end)
        ));
        for op in &group {
            let (tag, was, now) = op.as_tag_tuple();
            if tag == similar::DiffTag::Equal {
                put_lines(text, ' ', &before[was]);
            } else {
                put_lines(text, '-', &before[was]);
                put_lines(text, '+', &after[now]);
            }
        }
    }
}

fn put_lines(text: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Both ways, so that it can be taken back as well.
fn binary(text: &mut String, old: Side<'_>, new: Side<'_>) {
    let id =
        |side: Side<'_>| side.map_or_else(|| NO_OBJECT.to_owned(), |(_, bytes)| object_id(bytes));
    text.push_str(&format!("index {}..{}\nGIT binary patch\n", id(old), id(new)));
    for side in [new, old] {
        let bytes = side.map_or(&[][..], |(_, bytes)| bytes);
        text.push_str(&format!("literal {}\n", bytes.len()));
        encode_lines(text, &compress_to_vec_zlib(bytes, LEVEL));
        text.push('\n');
    }
}

/// What git calls these bytes; it compares that before it applies a binary patch.
fn object_id(bytes: &[u8]) -> String {
    use sha1::{Digest as _, Sha1};
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex::encode(hasher.finalize())
}

#[cfg(test)]
mod tests;
