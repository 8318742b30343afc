//! Walks a tree and says what is in it, copying on the way if asked. Strange entries are listed and left
//! out; only a tree that is too large as a whole fails the walk.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use rustix::fs::{AtFlags, Gid, Mode, Uid};

use crate::tree::blobs::Hasher;
use crate::tree::inventory::CARRIED_MODE;
use crate::tree::{
    Blobs, Dir, Inventory, Kind, Meta, Node, NotCarried, Reason, RelPath, Rules, name,
};

const CHUNK: usize = 64 * 1024;
const DEPTH: usize = 64;
const ENTRIES_PER_DIRECTORY: usize = 20_000;

/// What one walk may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Entries in all.
    pub(crate) entries: u64,
    /// Bytes in one file; a larger one is left out.
    pub(crate) file_bytes: u64,
    /// Bytes in all files.
    pub(crate) total_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error("it is deeper than {DEPTH} directories; no setting raises this")]
    Depth,
    #[error(
        "it has more than {0} entries; raise execution.limits.workspace_inodes in the manifest, and \
         sandbox-svc's --max-workspace-inodes where that is lower"
    )]
    Entries(u64),
    #[error(
        "a directory has more than {ENTRIES_PER_DIRECTORY} entries; no setting raises this, move some \
         of them"
    )]
    EntriesPerDirectory,
    #[error(
        "its files hold more than {0} bytes; raise execution.limits.workspace_bytes in the manifest, \
         and sandbox-svc's --max-workspace-bytes where that is lower"
    )]
    Bytes(u64),
    #[error("the root of the tree cannot be read")]
    Root,
    #[error(
        "it takes more than {0} bytes in whole pages; raise execution.limits.workspace_bytes in the \
         manifest, and sandbox-svc's --max-workspace-bytes where that is lower"
    )]
    Full(u64),
    #[error("the copy cannot be written")]
    Copy(#[source] io::Error),
}

/// Where the copy goes.
pub(crate) struct Target<'a> {
    /// A fresh private directory.
    pub(crate) tree: &'a Dir,
    /// Also keep each file's bytes under their digest.
    pub(crate) blobs: &'a Blobs,
    /// Whom the copy belongs to, where that is not this process.
    pub(crate) owner: Option<u32>,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub(crate) inventory: Inventory,
    pub(crate) not_carried: Vec<NotCarried>,
    /// Files whose set-id bits are not carried.
    pub(crate) stripped: Vec<RelPath>,
}

impl Found {
    /// Why the path, or a directory on the way to it, is left out.
    pub(crate) fn left_out(&self, path: &RelPath) -> Option<Reason> {
        let find = |path: RelPath| {
            let at = self.not_carried.binary_search_by(|entry| entry.path.cmp(&path)).ok()?;
            Some(self.not_carried[at].reason)
        };
        path.ancestors().find_map(find)
    }
}

pub(crate) fn scan(
    root: &Dir,
    rules: &Rules<'_>,
    bounds: &Bounds,
    target: Option<&Target<'_>>,
) -> Result<Found, ScanError> {
    let mut walk = Walk { rules, bounds, target, found: Found::default(), seen: 0, bytes: 0 };
    let here = root.descend(&RelPath::root()).map_err(|_| ScanError::Root)?;
    let copy = match target {
        Some(target) => Some(target.tree.descend(&RelPath::root()).map_err(|_| ScanError::Root)?),
        None => None,
    };
    let names = match here.names(ENTRIES_PER_DIRECTORY) {
        Ok(Some(names)) => names,
        Ok(None) => return Err(ScanError::EntriesPerDirectory),
        Err(_) => return Err(ScanError::Root),
    };
    let mut stack =
        vec![Frame { path: RelPath::root(), here, copy, names: names.into_iter(), mode: None }];
    while let Some(frame) = stack.last_mut() {
        match frame.names.next() {
            Some(entry) => {
                let path = frame.path.join(&entry);
                if let Some(below) = walk.visit(frame, &entry, path)? {
                    if stack.len() >= DEPTH {
                        return Err(ScanError::Depth);
                    }
                    stack.push(below);
                }
            }
            None => {
                if let Some(done) = stack.pop() {
                    done.finish(target)?;
                }
            }
        }
    }
    walk.found.not_carried.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(walk.found)
}

/// A directory that is being walked.
struct Frame {
    path: RelPath,
    here: Dir,
    copy: Option<Dir>,
    names: std::vec::IntoIter<Vec<u8>>,
    /// The mode the copy gets when everything is in it; a read-only directory cannot be filled.
    mode: Option<u32>,
}

impl Frame {
    fn finish(self, target: Option<&Target<'_>>) -> Result<(), ScanError> {
        if let (Some(copy), Some(mode), Some(target)) = (&self.copy, self.mode, target) {
            own(copy, mode, target.owner).map_err(ScanError::Copy)?;
        }
        Ok(())
    }
}

struct Walk<'a> {
    rules: &'a Rules<'a>,
    bounds: &'a Bounds,
    target: Option<&'a Target<'a>>,
    found: Found,
    seen: u64,
    bytes: u64,
}

impl Walk<'_> {
    /// Takes one entry; a directory that is carried comes back to be walked.
    fn visit(
        &mut self,
        frame: &Frame,
        entry: &[u8],
        path: RelPath,
    ) -> Result<Option<Frame>, ScanError> {
        self.seen += 1;
        if self.seen > self.bounds.entries {
            return Err(ScanError::Entries(self.bounds.entries));
        }
        let looked = match RelPath::parse(path.as_bytes()) {
            Ok(_) => frame.here.look(entry),
            Err(_) => Err(Reason::PathTooLong),
        };
        let meta = match looked {
            Ok(Some(meta)) => meta,
            Ok(None) => return Ok(self.leave(path, Reason::Raced)),
            Err(reason) => return Ok(self.leave(path, reason)),
        };
        if let Some(reason) = self.rules.excludes(&path, &meta) {
            return Ok(self.leave(path, reason));
        }
        match meta.kind {
            Kind::Directory => self.directory(frame, entry, path, &meta),
            Kind::File => self.file(frame, entry, path, &meta).map(|()| None),
            Kind::Link => self.link(frame, entry, path).map(|()| None),
            Kind::Special => Ok(self.leave(path, Reason::Special)),
        }
    }

    fn leave<T>(&mut self, path: RelPath, reason: Reason) -> Option<T> {
        self.found.not_carried.push(NotCarried { path, reason });
        None
    }

    fn directory(
        &mut self,
        frame: &Frame,
        entry: &[u8],
        path: RelPath,
        seen: &Meta,
    ) -> Result<Option<Frame>, ScanError> {
        let here = match frame.here.open_directory(entry) {
            Ok(here) => here,
            Err(reason) => return Ok(self.leave(path, reason)),
        };
        if here.meta().map(|meta| meta.identity()).ok() != Some(seen.identity()) {
            return Ok(self.leave(path, Reason::Raced));
        }
        let names = match here.names(ENTRIES_PER_DIRECTORY) {
            Ok(Some(names)) => names,
            Ok(None) => return Err(ScanError::EntriesPerDirectory),
            Err(reason) => return Ok(self.leave(path, reason)),
        };
        let copy = match &frame.copy {
            Some(copy) => {
                Some(copy.create_directory(entry).map_err(|error| self.copy_error(copy, error))?)
            }
            None => None,
        };
        self.found.inventory.insert(path.clone(), Node::Directory { mode: seen.mode });
        Ok(Some(Frame { path, here, copy, names: names.into_iter(), mode: Some(seen.mode) }))
    }

    fn file(
        &mut self,
        frame: &Frame,
        entry: &[u8],
        path: RelPath,
        seen: &Meta,
    ) -> Result<(), ScanError> {
        if seen.size > self.bounds.file_bytes {
            self.leave::<()>(path, Reason::TooLarge);
            return Ok(());
        }
        let file = match frame.here.open_file(entry, seen) {
            Ok(file) => file,
            Err(reason) => {
                self.leave::<()>(path, reason);
                return Ok(());
            }
        };
        self.bytes = self.bytes.saturating_add(seen.size);
        if self.bytes > self.bounds.total_bytes {
            return Err(ScanError::Bytes(self.bounds.total_bytes));
        }
        match self.read(frame, entry, file, seen)? {
            Ok(node) => {
                if seen.mode & !CARRIED_MODE != 0 {
                    self.found.stripped.push(path.clone());
                }
                self.found.inventory.insert(path, node);
            }
            Err(reason) => {
                self.leave::<()>(path, reason);
            }
        }
        Ok(())
    }

    /// Reads a file to its end, once: what is copied is what is hashed.
    fn read(
        &self,
        frame: &Frame,
        entry: &[u8],
        mut file: File,
        seen: &Meta,
    ) -> Result<Result<Node, Reason>, ScanError> {
        let mut chunk = vec![0; CHUNK];
        let mut hasher = Hasher::default();
        let mut copies: Option<(File, File)> = None;
        let mut size: u64 = 0;
        let refused = loop {
            let length = match file.read(&mut chunk) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break Some(Reason::Unreadable),
            };
            let bytes = &chunk[..length];
            if size == 0 && name::begins_like_a_private_key(bytes) {
                break Some(Reason::SecretContent);
            }
            if let (None, Some(target), Some(copy)) = (&copies, self.target, &frame.copy) {
                let copy = copy.create_file(entry).map_err(|error| self.copy_error(copy, error))?;
                copies = Some((copy, target.blobs.begin().map_err(ScanError::Copy)?));
            }
            if length == 0 {
                break (size != seen.size).then_some(Reason::Raced);
            }
            size += length as u64;
            if size > seen.size {
                break Some(Reason::Raced);
            }
            hasher.update(bytes);
            if let (Some((file, blob)), Some(copy)) = (&mut copies, &frame.copy) {
                file.write_all(bytes).map_err(|error| self.copy_error(copy, error))?;
                blob.write_all(bytes).map_err(ScanError::Copy)?;
            }
        };
        if let Some(reason) = refused {
            if let (Some(_), Some(copy)) = (&copies, &frame.copy) {
                rustix::fs::unlinkat(copy, entry, AtFlags::empty())
                    .map_err(|error| ScanError::Copy(error.into()))?;
            }
            return Ok(Err(reason));
        }
        let digest = hasher.finish().map_err(ScanError::Copy)?;
        if let (Some((copy, _)), Some(target)) = (copies, self.target) {
            own(&copy, seen.mode, target.owner).map_err(ScanError::Copy)?;
            target.blobs.keep(digest).map_err(ScanError::Copy)?;
        }
        Ok(Ok(Node::File { mode: seen.mode, size, digest }))
    }

    /// A place with limits says that it is full, but not of what; everything else is a fault.
    fn copy_error(&self, copy: &Dir, error: io::Error) -> ScanError {
        let full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let inodes_left = || rustix::fs::fstatvfs(copy).map_or(u64::MAX, |stat| stat.f_favail);
        match full {
            false => ScanError::Copy(error),
            true if inodes_left() == 0 => ScanError::Entries(self.bounds.entries),
            true => ScanError::Full(self.bounds.total_bytes),
        }
    }

    fn link(&mut self, frame: &Frame, entry: &[u8], path: RelPath) -> Result<(), ScanError> {
        let target = match frame.here.read_link(entry) {
            Ok(target) => target,
            Err(reason) => {
                self.leave::<()>(path, reason);
                return Ok(());
            }
        };
        if let Some(reason) = Rules::excludes_link(&path, &target) {
            self.leave::<()>(path, reason);
            return Ok(());
        }
        if let (Some(copy), Some(whose)) = (&frame.copy, self.target) {
            let make = || -> rustix::io::Result<()> {
                rustix::fs::symlinkat(target.as_slice(), copy, entry)?;
                let owner = whose.owner.map(Uid::from_raw);
                let group = whose.owner.map(Gid::from_raw);
                rustix::fs::chownat(copy, entry, owner, group, AtFlags::SYMLINK_NOFOLLOW)
            };
            make().map_err(|error| self.copy_error(copy, error.into()))?;
        }
        self.found.inventory.insert(path, Node::Link { target });
        Ok(())
    }
}

/// Owner first: changing it clears bits of the mode.
fn own(file: impl rustix::fd::AsFd, mode: u32, owner: Option<u32>) -> io::Result<()> {
    if let Some(owner) = owner {
        rustix::fs::fchown(&file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & CARRIED_MODE))?;
    Ok(())
}

#[cfg(test)]
mod tests;
