//! What is in the workspace now, against what the patch expects there. It only looks.

use std::collections::BTreeSet;
use std::io::Read as _;

use event::Digest;

use crate::import::{Conflict, Conflicts, Import, ImportError, Owner, Owners, conflict};
use crate::patch::{Change, Entry};
use crate::tree::blobs::Hasher;
use crate::tree::{Dir, Kind, Meta, Node, Reason, RelPath};

const CHUNK: usize = 64 * 1024;

/// Whether the workspace is what the patch was made for. Everything that is not is named.
pub(crate) fn check(import: &Import<'_>) -> Result<(), ImportError> {
    let paths = |wanted: fn(&Change) -> bool| -> BTreeSet<&RelPath> {
        let wanted = import.entries.iter().filter(|entry| wanted(&entry.change));
        wanted.map(|entry| &entry.path).collect()
    };
    let expected = Expected {
        host: import.host,
        deleted: paths(|change| matches!(change, Change::Delete { .. })),
        made: paths(|change| matches!(change, Change::Create { after } if after.is_directory())),
    };
    let mut found: Vec<_> =
        import.entries.iter().flat_map(|entry| expected.conflicts(entry)).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    // What is in the way of one entry may be in the way of another.
    found.dedup_by(|one, other| one.path == other.path);
    match Conflicts::of(found) {
        None => Ok(()),
        Some(conflicts) => Err(ImportError::Conflict(Box::new(conflicts))),
    }
}

/// What the patch itself makes of the workspace.
struct Expected<'a> {
    host: &'a Dir,
    deleted: BTreeSet<&'a RelPath>,
    made: BTreeSet<&'a RelPath>,
}

impl Expected<'_> {
    fn conflicts(&self, entry: &Entry) -> Vec<Conflict> {
        let path = &entry.path;
        let Ok(place) = find(self.host, path) else { return vec![plain(path, UNREACHABLE)] };
        match (&entry.change, place) {
            (Change::Create { .. }, None) => {
                let parent = path.parent().unwrap_or_default();
                if self.made.contains(&parent) { Vec::new() } else { vec![plain(path, NO_PLACE)] }
            }
            (Change::Create { .. }, Some(place)) => match place.dir.look(place.name) {
                Ok(None) => Vec::new(),
                Ok(Some(_)) if self.deleted.contains(path) => Vec::new(),
                Ok(Some(_)) if !place.is_spelled_so() => vec![plain(path, SPELLED_OTHERWISE)],
                Ok(Some(_)) => vec![differs(path, "exists", None, place.digest())],
                Err(_) => vec![plain(path, "cannot be looked at")],
            },
            (Change::Update { before, .. } | Change::Delete { before }, Some(place)) => {
                match holds(&place.dir, place.name, before) {
                    Ok(true) if matches!(entry.change, Change::Delete { .. }) => {
                        self.stay_behind(entry, before)
                    }
                    Ok(true) => Vec::new(),
                    Ok(false) if matches!(place.dir.look(place.name), Ok(None)) => {
                        vec![differs(path, "is gone", Some(before.digest()), None)]
                    }
                    Ok(false) => {
                        let (expected, actual) = (Some(before.digest()), place.digest());
                        vec![differs(path, "changed on the host", expected, actual)]
                    }
                    Err(_) => vec![plain(path, "cannot be read")],
                }
            }
            (Change::Update { before, .. } | Change::Delete { before }, None) => {
                vec![differs(path, "is gone", Some(before.digest()), None)]
            }
        }
    }

    /// A directory that goes may hold nothing that stays.
    fn stay_behind(&self, entry: &Entry, before: &Node) -> Vec<Conflict> {
        if !before.is_directory() {
            return Vec::new();
        }
        let directory = &entry.path;
        let names = self.host.descend(directory).and_then(|dir| dir.names(usize::MAX));
        let Ok(names) = names else { return vec![plain(directory, "cannot be read")] };
        let paths = names.unwrap_or_default().into_iter().map(|name| directory.join(&name));
        paths
            .filter(|path| !self.deleted.contains(path))
            .map(|path| plain(&path, "is in a directory that the patch deletes"))
            .collect()
    }
}

const UNREACHABLE: &str = "cannot be reached";
const NO_PLACE: &str = "has no directory to be in";
const SPELLED_OTHERWISE: &str =
    "is another spelling of a name that is there, and the host takes both for one";

fn plain(path: &RelPath, what: &'static str) -> Conflict {
    differs(path, what, None, None)
}

fn differs(
    path: &RelPath,
    what: &'static str,
    expected: Option<Digest>,
    actual: Option<Digest>,
) -> Conflict {
    Conflict { path: path.clone(), what, expected, actual }
}

/// Whose the entries are that the patch replaces or removes, as far as they are there.
pub(crate) fn owners(import: &Import<'_>) -> Owners {
    let replaced = import.entries.iter().filter(|entry| entry.change.before().is_some());
    let owner = |entry: &Entry| {
        let place = find(import.host, &entry.path).ok()??;
        let meta = place.dir.look(place.name).ok()??;
        Some((entry.path.clone(), Owner { uid: meta.uid, gid: meta.gid }))
    };
    replaced.filter_map(owner).collect()
}

/// A directory of the workspace and a name in it, which may be free.
pub(super) struct Place<'a> {
    pub(super) dir: Dir,
    pub(super) name: &'a [u8],
}

/// Where `path` is or would be; nothing when its directory is missing or something else.
pub(super) fn find<'a>(root: &Dir, path: &'a RelPath) -> Result<Option<Place<'a>>, Reason> {
    let mut here = root.descend(&RelPath::root())?;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        if components.peek().is_none() {
            return Ok(Some(Place { dir: here, name: component }));
        }
        match here.look(component)? {
            Some(meta) if meta.kind == Kind::Directory => here = here.open_directory(component)?,
            Some(_) | None => return Ok(None),
        }
    }
    Ok(None)
}

impl Place<'_> {
    pub(super) fn look(&self, path: &RelPath) -> Result<Option<Meta>, ImportError> {
        self.dir.look(self.name).map_err(|_| conflict(path, "cannot be looked at"))
    }

    /// Whether the directory lists the name in this spelling; a host that folds names finds others as well.
    fn is_spelled_so(&self) -> bool {
        let names = self.dir.names(usize::MAX).ok().flatten();
        // What cannot be told apart is no other spelling.
        names.is_none_or(|names| names.iter().any(|name| name == self.name))
    }

    /// Of what is there now, for the record; nothing where it cannot be read.
    fn digest(&self) -> Option<Digest> {
        let meta = self.dir.look(self.name).ok()??;
        match meta.kind {
            Kind::Link => Some(Digest::of(&self.dir.read_link(self.name).ok()?)),
            Kind::File => file_digest(&self.dir, self.name, &meta).ok()?,
            Kind::Directory | Kind::Special => None,
        }
    }

    pub(super) fn holds(&self, path: &RelPath, node: &Node) -> Result<bool, ImportError> {
        holds(&self.dir, self.name, node).map_err(|_| conflict(path, "cannot be read"))
    }
}

/// Whether the entry is exactly `node`: kind, mode and bytes.
pub(super) fn holds(dir: &Dir, name: &[u8], node: &Node) -> Result<bool, Reason> {
    let Some(meta) = dir.look(name)? else { return Ok(false) };
    match (meta.kind, node) {
        (Kind::Directory, Node::Directory { mode }) => Ok(meta.mode == *mode),
        (Kind::Link, Node::Link { target }) => Ok(dir.read_link(name)? == *target),
        (Kind::File, Node::File { mode, size, digest }) => {
            if meta.mode != *mode || meta.size != *size {
                return Ok(false);
            }
            Ok(file_digest(dir, name, &meta)? == Some(*digest))
        }
        (Kind::File | Kind::Directory | Kind::Link | Kind::Special, _) => Ok(false),
    }
}

fn file_digest(dir: &Dir, name: &[u8], meta: &Meta) -> Result<Option<Digest>, Reason> {
    let mut file = dir.open_file(name, meta)?;
    let mut hasher = Hasher::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finish().ok()),
            Ok(length) => hasher.update(&chunk[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(_) => return Err(Reason::Unreadable),
        }
    }
}
