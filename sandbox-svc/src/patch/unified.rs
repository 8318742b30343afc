//! A patch as text for people: a unified diff of what is text, sizes and digests of what is not. It is for
//! reading only; whole bytes are what is imported.

use std::fmt::Write as _;
use std::time::Duration;

use similar::TextDiff;

use crate::patch::{Change, Entry};
use crate::tree::path::Escaped;
use crate::tree::{Node, RelPath};

/// Larger files are shown by size and digest.
pub(crate) const MAX_TEXT: u64 = 1024 * 1024;
/// After this a diff is still right, but no longer the shortest.
const PATIENCE: Duration = Duration::from_millis(500);
const CONTEXT_LINES: usize = 3;

/// One side of an entry: its bytes where they are needed and may be shown.
pub(crate) struct Side<'a> {
    pub(crate) node: &'a Node,
    pub(crate) bytes: Vec<u8>,
}

/// Whether the bytes of this state are wanted for the diff.
pub(crate) fn wants_bytes(node: &Node) -> bool {
    matches!(node, Node::File { size, .. } if *size <= MAX_TEXT)
}

pub(crate) fn render(entry: &Entry, before: Option<&Side<'_>>, after: Option<&Side<'_>>) -> String {
    let mut text = String::new();
    header(&mut text, entry);
    let old = before.map(Side::text);
    let new = after.map(Side::text);
    match (old.unwrap_or(Some("")), new.unwrap_or(Some(""))) {
        (Some(old), Some(new)) if old != new => {
            lines(&mut text, &entry.path, &entry.change, old, new);
        }
        (Some(_), Some(_)) => (),
        (None, _) | (_, None) => opaque(&mut text, &entry.change),
    }
    text
}

impl Side<'_> {
    /// Nothing when the bytes are not text.
    fn text(&self) -> Option<&str> {
        match self.node {
            // A link's text stands in the header.
            Node::Directory { .. } | Node::Link { .. } => Some(""),
            node if !wants_bytes(node) || self.bytes.contains(&0) => None,
            Node::File { .. } => std::str::from_utf8(&self.bytes).ok(),
        }
    }
}

fn header(text: &mut String, entry: &Entry) {
    let path = &entry.path;
    append(text, format_args!("diff a/{path} b/{path}\n"));
    match &entry.change {
        Change::Create { after } => append(text, format_args!("new {}\n", described(after))),
        Change::Delete { before } => append(text, format_args!("deleted {}\n", described(before))),
        Change::Update { before, after }
            if before.mode() != after.mode() || matches!(after, Node::Link { .. }) =>
        {
            append(text, format_args!("old {}\nnew {}\n", described(before), described(after)));
        }
        Change::Update { .. } => (),
    }
}

fn described(node: &Node) -> String {
    let mode = node.mode_text();
    match node {
        Node::Directory { .. } => format!("directory mode {mode}"),
        Node::File { .. } => format!("file mode {mode}"),
        // In quotes, so that a blank at its end is seen; no byte of it can end the line.
        Node::Link { target } => format!("link mode {mode} to \"{}\"", Escaped(target)),
    }
}

fn lines(text: &mut String, path: &RelPath, change: &Change, old: &str, new: &str) {
    let name = |side: &str, there: bool| {
        if there { format!("{side}/{path}") } else { "/dev/null".to_owned() }
    };
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let unified = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&name("a", change.before().is_some()), &name("b", change.after().is_some()))
        .to_string();
    text.push_str(&unified);
}

fn opaque(text: &mut String, change: &Change) {
    for (sign, state) in [('-', change.before()), ('+', change.after())] {
        if let Some(node) = state {
            append(text, format_args!("{sign} binary, {} bytes, {}\n", node.size(), node.digest()));
        }
    }
}

fn append(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    if text.write_fmt(arguments).is_err() {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use event::Digest;

    use super::{Side, render};
    use crate::patch::{Change, Entry};
    use crate::tree::{Node, RelPath};

    fn node(bytes: &[u8], mode: u32) -> Node {
        Node::File { mode, size: bytes.len() as u64, digest: Digest::of(bytes) }
    }

    fn rendered(old: Option<(&[u8], u32)>, new: Option<(&[u8], u32)>) -> String {
        let before = old.map(|(bytes, mode)| node(bytes, mode));
        let after = new.map(|(bytes, mode)| node(bytes, mode));
        let change = match (before.clone(), after.clone()) {
            (Some(before), Some(after)) => Change::Update { before, after },
            (None, Some(after)) => Change::Create { after },
            (Some(before), None) => Change::Delete { before },
            (None, None) => panic!("an entry has a side"),
        };
        let entry = Entry { path: RelPath::parse(b"a\n.txt").unwrap(), change };
        let side = |node: &'static Option<Node>, bytes: Option<(&[u8], u32)>| {
            node.as_ref().zip(bytes).map(|(node, (bytes, _))| Side { node, bytes: bytes.to_vec() })
        };
        let (before, after) = (Box::leak(Box::new(before)), Box::leak(Box::new(after)));
        render(&entry, side(before, old).as_ref(), side(after, new).as_ref())
    }

    #[test]
    fn text_is_shown_line_by_line() {
        assert_eq!(
            rendered(Some((b"one\ntwo\n", 0o644)), Some((b"one\n2\n", 0o755))),
            "diff a/a\\u{a}.txt b/a\\u{a}.txt\nold file mode 0644\nnew file mode 0755\n\
             --- a/a\\u{a}.txt\n+++ b/a\\u{a}.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        );
        assert_eq!(
            rendered(None, Some((b"x", 0o644))),
            "diff a/a\\u{a}.txt b/a\\u{a}.txt\nnew file mode 0644\n\
             --- /dev/null\n+++ b/a\\u{a}.txt\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_link_is_shown_by_mode_and_target() {
        let link = |target: &[u8]| Node::Link { target: target.to_vec() };
        let shown =
            |change| render(&Entry { path: RelPath::parse(b"l").unwrap(), change }, None, None);
        assert_eq!(
            shown(Change::Create { after: link(b"a/b") }),
            "diff a/l b/l\nnew link mode 120777 to \"a/b\"\n"
        );
        assert_eq!(
            shown(Change::Update { before: link(b"a"), after: link(b"b\n\xff ") }),
            "diff a/l b/l\nold link mode 120777 to \"a\"\n\
             new link mode 120777 to \"b\\u{a}\\xff \"\n"
        );
        assert_eq!(
            rendered(Some((b"one\n", 0o644)), None),
            "diff a/a\\u{a}.txt b/a\\u{a}.txt\ndeleted file mode 0644\n\
             --- a/a\\u{a}.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
        );
    }

    #[test]
    fn what_is_not_text_is_shown_by_size_and_digest() {
        for bytes in [b"caf\xe9".as_slice(), b"a\0b"] {
            assert_eq!(
                rendered(Some((bytes, 0o644)), Some((b"", 0o644))),
                format!(
                    "diff a/a\\u{{a}}.txt b/a\\u{{a}}.txt\n- binary, {} bytes, {}\n+ binary, 0 bytes, {}\n",
                    bytes.len(),
                    Digest::of(bytes),
                    Digest::of(b"")
                )
            );
        }
    }
}
