//! The names that an image has, layer over layer: directories, links and programs, without contents. It follows
//! nothing; where a name leads is `program`'s to say.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::tar::{Entry, Kind};

/// More names than this, or longer ones in all, are not held.
const ENTRIES: usize = 500_000;
const NAME_BYTES: usize = 64 * 1024 * 1024;
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    Directory,
    Link(String),
    /// A file that may be run; `first` is the name that its content has in the archive, where that is another.
    Program {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<String>,
    },
    /// Any other file.
    Plain,
}

/// By path, without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the image has more names than are held")]
pub(crate) struct TooMany;

/// What one layer says, in its order.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    entries: Vec<(String, Said)>,
    bytes: usize,
}

#[derive(Debug, Clone)]
enum Said {
    Is(Node),
    SameAs(String),
    /// Gone, from the layers below.
    Gone,
    /// Only this layer has something in it.
    Opaque,
}

impl Layer {
    /// What cannot be named by a command is left out.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), TooMany> {
        let Some(path) = plain(&entry.path) else { return Ok(()) };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let beside = |name: &str| match parent {
            "" => name.to_owned(),
            parent => format!("{parent}/{name}"),
        };
        let (path, said) = match name.strip_prefix(WHITEOUT) {
            Some(_) if name == OPAQUE => (parent.to_owned(), Said::Opaque),
            // The engine's own notes.
            Some(gone) if gone.starts_with(WHITEOUT) => return Ok(()),
            Some(gone) => (beside(gone), Said::Gone),
            None => (path.clone(), said(entry)),
        };
        self.bytes += path.len();
        if self.entries.len() >= ENTRIES || self.bytes > NAME_BYTES {
            return Err(TooMany);
        }
        self.entries.push((path, said));
        Ok(())
    }
}

fn said(entry: &Entry) -> Said {
    match entry.kind {
        Kind::Directory => Said::Is(Node::Directory),
        Kind::File if entry.mode & 0o111 != 0 => Said::Is(Node::Program { first: None }),
        Kind::File | Kind::Special => Said::Is(Node::Plain),
        Kind::Link => match std::str::from_utf8(&entry.link) {
            Ok(target) => Said::Is(Node::Link(target.to_owned())),
            Err(_) => Said::Is(Node::Plain),
        },
        Kind::HardLink => match plain(&entry.link) {
            Some(target) => Said::SameAs(target),
            None => Said::Is(Node::Plain),
        },
    }
}

/// Without leading and final slashes; nothing for the root, for what is not text and for what would climb.
fn plain(path: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(path).ok()?;
    let parts: Vec<&str> =
        text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

impl Index {
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Every name of the same file, the path itself among them.
    pub(crate) fn names_of(&self, path: &str) -> BTreeSet<String> {
        let first = match self.get(path) {
            Some(Node::Program { first: Some(first) }) => first.as_str(),
            _ => path,
        };
        let same = self.nodes.iter().filter(|(_, node)| match node {
            Node::Program { first: Some(other) } => other == first,
            _ => false,
        });
        let others = same.map(|(name, _)| name.clone());
        others.chain([first.to_owned(), path.to_owned()]).collect()
    }

    /// Lays a layer over what is there: first what it takes away, then what it brings.
    pub(super) fn lay(&mut self, layer: Layer) -> Result<(), TooMany> {
        for (path, said) in &layer.entries {
            match said {
                Said::Gone => self.remove(path),
                Said::Opaque => self.remove_below(path),
                Said::Is(_) | Said::SameAs(_) => (),
            }
        }
        for (path, said) in layer.entries {
            match said {
                Said::Is(Node::Directory) => self.directory(&path),
                Said::Is(node) => self.put(path, node),
                Said::SameAs(target) => {
                    let node = match self.get(&target) {
                        Some(Node::Program { first }) => Node::Program {
                            first: Some(first.clone().unwrap_or_else(|| target.clone())),
                        },
                        Some(node) => node.clone(),
                        None => Node::Plain,
                    };
                    self.put(path, node);
                }
                Said::Gone | Said::Opaque => (),
            }
            if self.nodes.len() > ENTRIES {
                return Err(TooMany);
            }
        }
        Ok(())
    }

    /// Files that nobody can run are of no use any more.
    pub(super) fn without_plain_files(mut self) -> Self {
        self.nodes.retain(|_, node| *node != Node::Plain);
        self
    }

    fn put(&mut self, path: String, node: Node) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.remove(&path);
        self.nodes.insert(path, node);
    }

    /// A directory stays what it was; anything else makes room.
    fn directory(&mut self, path: &str) {
        if self.get(path) == Some(&Node::Directory) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if !path.is_empty() {
            self.remove(path);
            self.nodes.insert(path.to_owned(), Node::Directory);
        }
    }

    fn remove(&mut self, path: &str) {
        if self.nodes.remove(path) == Some(Node::Directory) {
            self.remove_below(path);
        }
    }

    fn remove_below(&mut self, directory: &str) {
        if directory.is_empty() {
            self.nodes.clear();
            return;
        }
        // Zero comes right after the slash.
        let (from, to) = (format!("{directory}/"), format!("{directory}0"));
        let below: Vec<String> = self.nodes.range(from..to).map(|(path, _)| path.clone()).collect();
        for path in below {
            self.nodes.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Index, Layer, Node};
    use crate::program::tar::{Entry, Kind};

    fn layer(entries: &[(&str, Kind, u32, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (path, kind, mode, link) in entries {
            let (path, link) = (path.as_bytes().to_vec(), link.as_bytes().to_vec());
            layer.take(&Entry { path, kind: *kind, mode: *mode, link }).unwrap();
        }
        layer
    }

    fn index(layers: &[&[(&str, Kind, u32, &str)]]) -> Vec<(String, Node)> {
        let mut index = Index::default();
        for entries in layers {
            index.lay(layer(entries)).unwrap();
        }
        index.nodes.into_iter().collect()
    }

    fn program(path: &str) -> (String, Node) {
        (path.to_owned(), Node::Program { first: None })
    }

    fn directory(path: &str) -> (String, Node) {
        (path.to_owned(), Node::Directory)
    }

    #[test]
    fn names_that_climb_or_are_no_text_are_left_out() {
        let mut layer = Layer::default();
        for path in [&b"../etc/x"[..], b"a/../../x", b"\xff", b"", b"/", b"./"] {
            let path = path.to_vec();
            let entry = Entry { path, kind: Kind::File, mode: 0o755, link: Vec::new() };
            layer.take(&entry).unwrap();
        }
        assert!(layer.entries.is_empty());
    }

    #[test]
    fn a_later_layer_takes_away_and_replaces_what_earlier_ones_have() {
        let base = [
            ("./bin/", Kind::Directory, 0o755, ""),
            ("./bin/a", Kind::File, 0o755, ""),
            ("./bin/b", Kind::File, 0o755, ""),
            ("./opt/x/tool", Kind::File, 0o755, ""),
            ("./opt0", Kind::File, 0o755, ""),
            ("./usr", Kind::Link, 0o777, "opt"),
        ];
        let gone = [
            ("bin/.wh.a", Kind::File, 0o600, ""),
            ("opt/.wh.x", Kind::File, 0o600, ""),
            ("usr/y", Kind::File, 0o755, ""),
        ];
        let expected = [
            directory("bin"),
            program("bin/b"),
            directory("opt"),
            program("opt0"),
            directory("usr"),
            program("usr/y"),
        ];
        assert_eq!(index(&[&base, &gone]), expected);
        let opaque = [
            ("bin/c", Kind::File, 0o755, ""),
            ("bin/.wh..wh..opq", Kind::File, 0o600, ""),
            (".wh..wh.plnk/1", Kind::File, 0o600, ""),
            (".wh.opt", Kind::File, 0o600, ""),
            (".wh.usr", Kind::File, 0o600, ""),
        ];
        let expected = [
            directory(".wh..wh.plnk"),
            (".wh..wh.plnk/1".to_owned(), Node::Plain),
            directory("bin"),
            program("bin/c"),
            program("opt0"),
        ];
        assert_eq!(index(&[&base, &opaque]), expected);
    }

    #[test]
    fn hard_links_are_all_names_of_one_file() {
        let mut index = Index::default();
        let entries = [
            ("bin/[", Kind::File, 0o755, ""),
            ("bin/busybox", Kind::HardLink, 0, "bin/["),
            ("bin/sh", Kind::HardLink, 0, "bin/busybox"),
            ("bin/lost", Kind::HardLink, 0, "bin/nowhere"),
        ];
        index.lay(layer(&entries)).unwrap();
        let all = ["bin/[", "bin/busybox", "bin/sh"].map(str::to_owned);
        for name in &all {
            assert_eq!(index.names_of(name), all.clone().into(), "{name}");
        }
        assert_eq!(index.get("bin/lost"), Some(&Node::Plain));
    }
}
