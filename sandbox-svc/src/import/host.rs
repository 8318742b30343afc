//! What is in the workspace now, against what the patch expects there. It only looks.

use std::collections::BTreeSet;
use std::io::Read as _;

use event::Digest;

use crate::import::{Import, ImportError, conflict};
use crate::patch::Change;
use crate::tree::blobs::Hasher;
use crate::tree::{Dir, Kind, Meta, Node, Reason, RelPath};

const CHUNK: usize = 64 * 1024;

/// Whether the workspace is what the patch was made for.
pub(crate) fn check(import: &Import<'_>) -> Result<(), ImportError> {
    let mut deleted = BTreeSet::new();
    let mut made = BTreeSet::new();
    for entry in import.entries {
        match &entry.change {
            Change::Delete { .. } => {
                deleted.insert(&entry.path);
            }
            Change::Create { after } if after.is_directory() => {
                made.insert(&entry.path);
            }
            Change::Create { .. } | Change::Update { .. } => (),
        }
    }
    for entry in import.entries {
        let path = &entry.path;
        let place = find(import.host, path).map_err(|_| conflict(path, "cannot be reached"))?;
        match (&entry.change, place) {
            (Change::Create { .. }, None) => {
                let parent = path.parent().unwrap_or_default();
                if !made.contains(&parent) {
                    return Err(conflict(path, "has no directory to be in"));
                }
            }
            (Change::Create { .. }, Some(place)) => {
                if place.look(path)?.is_some() && !deleted.contains(path) {
                    return Err(differs(path, "exists", None, place.digest()));
                }
            }
            (Change::Update { before, .. } | Change::Delete { before }, Some(place)) => {
                if !place.holds(path, before)? {
                    let (expected, actual) = (Some(before.digest()), place.digest());
                    return Err(differs(path, "changed on the host", expected, actual));
                }
                if matches!(entry.change, Change::Delete { .. }) && before.is_directory() {
                    only_deleted(import.host, path, &deleted)?;
                }
            }
            (Change::Update { before, .. } | Change::Delete { before }, None) => {
                return Err(differs(path, "is gone", Some(before.digest()), None));
            }
        }
    }
    Ok(())
}

fn differs(
    path: &RelPath,
    what: &'static str,
    expected: Option<Digest>,
    actual: Option<Digest>,
) -> ImportError {
    ImportError::Conflict { path: path.clone(), what, expected, actual }
}

/// A directory that goes may hold nothing that stays.
fn only_deleted(
    host: &Dir,
    directory: &RelPath,
    deleted: &BTreeSet<&RelPath>,
) -> Result<(), ImportError> {
    let unreadable = |_| conflict(directory, "cannot be read");
    let names =
        host.descend(directory).and_then(|dir| dir.names(usize::MAX)).map_err(unreadable)?;
    for name in names.unwrap_or_default() {
        let path = directory.join(&name);
        if !deleted.contains(&path) {
            return Err(conflict(&path, "is in a directory that the patch deletes"));
        }
    }
    Ok(())
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
