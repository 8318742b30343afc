//! What stands at a place of the private copy, by descriptors and without following a link: free, or a plain
//! file. Everything else cannot be edited, and is refused.

use std::fs::File;
use std::io::{self, Read as _};

use crate::refusal::{Reason, Refusal};
use crate::tree::blobs::Hasher;
use crate::tree::{Dir, Kind, Meta, Node, RelPath};

const CHUNK: usize = 64 * 1024;

pub(crate) enum Standing<'a> {
    /// With the directories that would have to be made first.
    Free {
        missing: Vec<RelPath>,
    },
    File(Seen<'a>),
}

/// A plain file with one name.
pub(crate) struct Seen<'a> {
    dir: Dir,
    name: &'a [u8],
    meta: Meta,
}

fn refused(path: &RelPath, what: &str) -> Refusal {
    Refusal::new(Reason::PathNotWritable, format!("{path} {what}"))
}

pub(crate) fn look<'a>(copy: &Dir, path: &'a RelPath) -> Result<Standing<'a>, Refusal> {
    let (parent, name) = path.split().ok_or_else(|| refused(path, "names no file"))?;
    let unreachable = |reason: crate::tree::Reason| refused(path, reason.as_str());
    let mut here = copy.descend(&RelPath::root()).map_err(unreachable)?;
    let mut way = RelPath::root();
    for component in parent.components() {
        way = way.join(component);
        match here.look(component).map_err(unreachable)?.map(|meta| meta.kind) {
            Some(Kind::Directory) => here = here.open_directory(component).map_err(unreachable)?,
            Some(Kind::Link) => {
                return Err(refused(
                    path,
                    "cannot be reached: a symbolic link is on the way to it",
                ));
            }
            Some(Kind::File | Kind::Special) => {
                return Err(refused(path, &format!("cannot be reached: {way} is no directory")));
            }
            None => return Ok(Standing::Free { missing: missing(&way, &parent) }),
        }
    }
    let Some(meta) = here.look(name).map_err(unreachable)? else {
        return Ok(Standing::Free { missing: Vec::new() });
    };
    match meta.kind {
        Kind::File if meta.links == 1 => Ok(Standing::File(Seen { dir: here, name, meta })),
        Kind::File => Err(refused(path, "has more than one hard link")),
        Kind::Directory => Err(refused(path, "is a directory")),
        Kind::Link => Err(refused(path, "is a symbolic link")),
        Kind::Special => Err(refused(path, "is neither file nor directory")),
    }
}

/// From the first directory that is not there down to the last.
fn missing(first: &RelPath, parent: &RelPath) -> Vec<RelPath> {
    let mut missing: Vec<_> =
        parent.ancestors().take_while(|path| path.depth() >= first.depth()).collect();
    missing.reverse();
    missing
}

impl Seen<'_> {
    pub(crate) fn size(&self) -> u64 {
        self.meta.size
    }

    pub(crate) fn open(&self, path: &RelPath) -> Result<File, Refusal> {
        self.dir.open_file(self.name, &self.meta).map_err(|reason| refused(path, reason.as_str()))
    }

    /// Kind, mode and digest, as it is now.
    pub(crate) fn node(&self, path: &RelPath) -> Result<Node, Refusal> {
        let mut file = self.open(path)?;
        let mut hasher = Hasher::default();
        let mut chunk = vec![0; CHUNK];
        let mut size: u64 = 0;
        loop {
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => {
                    size += length as u64;
                    hasher.update(&chunk[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(_) => return Err(refused(path, "cannot be read")),
            }
        }
        if size != self.meta.size {
            return Err(refused(path, "changed while it was read"));
        }
        let digest = hasher.finish().map_err(|_| refused(path, "cannot be read"))?;
        Ok(Node::File { mode: self.meta.mode, size, digest })
    }

    pub(crate) fn bytes(&self, path: &RelPath) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        let file = self.open(path)?;
        file.take(self.meta.size.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|_| refused(path, "cannot be read"))?;
        Ok(bytes)
    }
}
