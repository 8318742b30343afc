//! Which program a command would start: looked for in the image's names and in the private copy as the container
//! would have them, links followed inside of those only. It starts nothing and reads no contents.

mod export;
mod images;
mod index;
mod tar;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::{BTreeSet, VecDeque};

use crate::engine::WORKSPACE;
use crate::tree::{self, Inventory, RelPath};

pub(crate) use images::{Images, Unread};
pub(crate) use index::Index;
use index::Node;

/// As many links as a kernel follows.
const LINKS: usize = 40;
/// What the container has instead of the image's own, beside the workspace.
const MOUNTED: [&str; 4] = ["dev", "proc", "sys", "tmp"];

/// What a container has where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    pub(crate) image: &'a Index,
    pub(crate) copy: &'a Inventory,
    /// The image's search path.
    pub(crate) path: &'a str,
}

/// A program that would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// As found.
    pub(crate) path: String,
    /// Behind every link.
    pub(crate) resolved: String,
    /// Other names of the same file, where the image has it under several.
    pub(crate) others: BTreeSet<String>,
    /// It is the run's own file, not the image's.
    pub(crate) workspace: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("{name} is nowhere in the image's PATH {path}")]
    InPath { name: String, path: String },
    #[error(
        "{name} is no program of the image or the workspace; PATH {path} is not searched for a name with a slash"
    )]
    Named { name: String, path: String },
}

enum Seen {
    Directory,
    Program,
    Link(String),
    Other,
}

impl Layout<'_> {
    /// What the name would start, with the workspace as the working directory.
    pub(crate) fn find(&self, name: &str) -> Result<Program, NotFound> {
        let (name, path) = (name.to_owned(), self.path.to_owned());
        if name.contains('/') {
            let at =
                if name.starts_with('/') { name.clone() } else { format!("{WORKSPACE}/{name}") };
            return self.program(&at).ok_or(NotFound::Named { name, path });
        }
        // A directory that is not absolute would lead into the workspace, and the engine refuses it.
        let absolute = self.path.split(':').filter(|directory| directory.starts_with('/'));
        absolute
            .map(|directory| format!("{}/{name}", directory.trim_end_matches('/')))
            .find_map(|at| self.program(&at))
            .ok_or(NotFound::InPath { name, path })
    }

    fn program(&self, at: &str) -> Option<Program> {
        let real = self.walk(at)?;
        let workspace = in_workspace(&real).is_some();
        let slashed = |name: String| format!("/{name}");
        let others = match workspace {
            true => BTreeSet::new(),
            false => self.image.names_of(&real).into_iter().filter(|name| *name != real).collect(),
        };
        Some(Program {
            path: at.to_owned(),
            resolved: slashed(real),
            others: others.into_iter().map(slashed).collect(),
            workspace,
        })
    }

    /// The file behind every link, if it may be run; without a leading slash.
    fn walk(&self, at: &str) -> Option<String> {
        let mut ahead: VecDeque<String> = parts(at).collect();
        let mut done: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = ahead.pop_front() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part);
            match self.look(&done.join("/"))? {
                Seen::Directory => (),
                Seen::Program if ahead.is_empty() => return Some(done.join("/")),
                Seen::Program | Seen::Other => return None,
                Seen::Link(target) => {
                    links += 1;
                    if links > LINKS {
                        return None;
                    }
                    done.pop();
                    if target.starts_with('/') {
                        done.clear();
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        ahead.push_front(part);
                    }
                }
            }
        }
        None
    }

    fn look(&self, path: &str) -> Option<Seen> {
        match in_workspace(path) {
            Some("") => return Some(Seen::Directory),
            Some(inside) => return self.look_in_copy(inside),
            None => (),
        }
        if MOUNTED.contains(&path.split('/').next().unwrap_or(path)) {
            return None;
        }
        Some(match self.image.get(path)? {
            Node::Directory => Seen::Directory,
            Node::Program { .. } => Seen::Program,
            Node::Link(target) => Seen::Link(target.clone()),
            Node::Plain => Seen::Other,
        })
    }

    fn look_in_copy(&self, path: &str) -> Option<Seen> {
        let path = RelPath::parse(path.as_bytes()).ok()?;
        Some(match self.copy.get(&path)? {
            tree::Node::Directory { .. } => Seen::Directory,
            tree::Node::File { mode, .. } if mode & 0o111 != 0 => Seen::Program,
            tree::Node::File { .. } => Seen::Other,
            tree::Node::Link { target } => Seen::Link(String::from_utf8(target.clone()).ok()?),
        })
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned)
}

/// The path below the workspace.
fn in_workspace(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(WORKSPACE.trim_start_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

#[cfg(test)]
mod tests {
    use event::Digest;
    use proptest::prelude::*;

    use super::export::Export;
    use super::testing::{Made, archive, directory, file, hard, link};
    use super::{Index, Layout, Program};
    use crate::tree::{Inventory, Node, RelPath};

    const PATH: &str = "bin:/usr/local/bin:/usr/bin/:/bin";

    fn image() -> Index {
        read(&[
            directory("usr/bin/"),
            link("bin", "usr/bin"),
            file("usr/bin/busybox", 0o755, b"x"),
            link("usr/bin/sh", "busybox"),
            link("usr/bin/mytool", "/usr/lib/../bin/python3"),
            directory("usr/lib/"),
            file("usr/bin/python3.11", 0o755, b"x"),
            link("usr/bin/python3", "python3.11"),
            file("usr/bin/plain", 0o644, b"x"),
            link("usr/bin/loop", "loop"),
            link("usr/bin/out", "../../../../workspace/tool"),
            link("usr/bin/tmp", "/tmp/x"),
            file("tmp/x", 0o755, b"x"),
            link("usr/bin/lost", "nowhere"),
            file("usr/bin/innocent", 0o755, b"x"),
            hard("usr/bin/perl", "usr/bin/innocent"),
            file("usr/local/bin/plain", 0o755, b"x"),
            file("workspace/shadowed", 0o755, b"x"),
        ])
    }

    fn read(entries: &[Made]) -> Index {
        let layer = archive(entries);
        let mut export = Export::default();
        let list = br#"[{"Layers":["a"]}]"#;
        let whole = archive(&[file("a", 0o644, &layer), file("manifest.json", 0o644, list)]);
        export.feed(&whole).unwrap();
        export.finish().unwrap()
    }

    fn copy() -> Inventory {
        let mut copy = Inventory::default();
        let file = |mode| Node::File { mode, size: 1, digest: Digest::of(b"x") };
        let nodes = [
            ("tool", file(0o755)),
            ("notes", file(0o644)),
            ("dir", Node::Directory { mode: 0o755 }),
            ("dir/link", Node::Link { target: b"../tool".to_vec() }),
            ("py", Node::Link { target: b"/usr/bin/python3".to_vec() }),
            ("up", Node::Link { target: b"../bin/sh".to_vec() }),
        ];
        for (path, node) in nodes {
            copy.insert(RelPath::parse(path.as_bytes()).unwrap(), node);
        }
        copy
    }

    #[test]
    fn what_would_not_start_is_not_found_and_the_search_path_is_named() {
        let (image, copy) = (image(), copy());
        let layout = Layout { image: &image, copy: &copy, path: PATH };
        for name in ["nope", "loop", "tmp", "lost", "", ".", "..", "notes", "tool"] {
            let error = layout.find(name).unwrap_err().to_string();
            assert!(error.contains(PATH), "{error}");
        }
        for name in
            ["/bin/nope", "./notes", "./dir", "/tmp/x", "./shadowed", "/proc/self/exe", "./", "/"]
        {
            let error = layout.find(name).unwrap_err().to_string();
            assert!(error.contains(PATH), "{error}");
        }
    }

    #[test]
    fn a_program_is_what_is_behind_every_link() {
        let (image, copy) = (image(), copy());
        let layout = Layout { image: &image, copy: &copy, path: PATH };
        for (name, path, resolved, workspace) in [
            ("sh", "/usr/bin/sh", "/usr/bin/busybox", false),
            ("mytool", "/usr/bin/mytool", "/usr/bin/python3.11", false),
            ("plain", "/usr/local/bin/plain", "/usr/local/bin/plain", false),
            ("/bin/sh", "/bin/sh", "/usr/bin/busybox", false),
            ("out", "/usr/bin/out", "/workspace/tool", true),
            ("./tool", "/workspace/./tool", "/workspace/tool", true),
            ("dir/link", "/workspace/dir/link", "/workspace/tool", true),
            ("./py", "/workspace/./py", "/usr/bin/python3.11", false),
            ("./up", "/workspace/./up", "/usr/bin/busybox", false),
        ] {
            let (path, resolved) = (path.to_owned(), resolved.to_owned());
            let others = [].into();
            let expected = Program { path, resolved, others, workspace };
            assert_eq!(layout.find(name), Ok(expected), "{name}");
        }
        let innocent = layout.find("innocent").unwrap();
        assert_eq!(innocent.others, ["/usr/bin/perl".to_owned()].into());
    }

    proptest! {
        /// However links are knotted, a search ends, and at a file that the image or the copy has.
        #[test]
        fn no_link_leads_out(
            links in prop::collection::vec(("[ab]{1,2}", "(/|\\.\\./){0,3}([ab]{1,2}|bin|workspace|tmp|etc)(/[ab]{1,2}){0,2}"), 0..12),
            copied in prop::collection::vec(("[ab]{1,2}", "(/|\\.\\./){0,3}[ab]{1,2}"), 0..6),
            name in "(/bin/|\\./|\\.\\./)?[ab]{1,2}",
        ) {
            let mut entries = vec![directory("bin/"), file("bin/bb", 0o755, b"x"), directory("etc/")];
            entries.extend(links.iter().map(|(name, to)| link(&format!("bin/{name}"), to)));
            let image = read(&entries);
            let mut copy = copy();
            for (name, to) in &copied {
                let to = Node::Link { target: to.clone().into_bytes() };
                copy.insert(RelPath::parse(name.as_bytes()).unwrap(), to);
            }
            let layout = Layout { image: &image, copy: &copy, path: "/bin" };
            if let Ok(found) = layout.find(&name) {
                let files = ["/bin/bb", "/workspace/tool"];
                prop_assert!(files.contains(&found.resolved.as_str()), "{found:?}");
                prop_assert_eq!(found.workspace, found.resolved == files[1]);
            }
        }
    }
}
