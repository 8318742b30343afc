//! One file of a walk, read to its end once: what is copied is what is hashed, and what is hashed is what was
//! screened. It decides nothing about names.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use event::Digest;
use rustix::fs::{AtFlags, Gid, Mode, Uid};

use super::{Bounds, ScanError, Target};
use crate::tree::blobs::{Hasher, Kept, Pack};
use crate::tree::content::Screen;
use crate::tree::inventory::CARRIED_MODE;
use crate::tree::{Dir, Meta, Node, Reason};

const CHUNK: usize = 256 * 1024;

/// What one thread reads with.
pub(super) struct Reader {
    chunk: Vec<u8>,
    pack: Option<Pack>,
}

/// What becomes of a file whose bytes hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secret {
    StaysOut,
    IsNoted,
}

/// A file that was read.
pub(super) struct Taken {
    pub(super) node: Node,
    /// What its copy is known by.
    pub(super) written: Option<Meta>,
    pub(super) holds_secret: bool,
}

impl Reader {
    pub(super) fn new(pack: Option<Pack>) -> Self {
        Self { chunk: vec![0; CHUNK], pack }
    }

    pub(super) fn finish(self) -> io::Result<Vec<Kept>> {
        self.pack.map_or(Ok(Vec::new()), Pack::finish)
    }

    pub(super) fn read(
        &mut self,
        file: File,
        seen: &Meta,
        secret: Secret,
        copy: Option<(&Dir, &Target<'_>)>,
        entry: &[u8],
        bounds: &Bounds,
    ) -> Result<Result<Taken, Reason>, ScanError> {
        let failed = |error| match copy {
            Some((copy, _)) => copy_error(copy, bounds, error),
            None => ScanError::Copy(error),
        };
        let mut made: Option<File> = None;
        let read = self.pass_through(file, seen, secret, |bytes| {
            let Some((copy, _)) = copy else { return Ok(()) };
            let made = match &mut made {
                Some(made) => made,
                None => made.insert(copy.create_file(entry).map_err(failed)?),
            };
            made.write_all(bytes).map_err(failed)
        })?;
        let (digest, holds_secret) = match read {
            Ok(read) => read,
            Err(reason) => {
                if let (Some(_), Some((copy, _))) = (made, copy) {
                    rustix::fs::unlinkat(copy, entry, AtFlags::empty())
                        .map_err(|error| ScanError::Copy(error.into()))?;
                }
                return Ok(Err(reason));
            }
        };
        let written = match (made, copy) {
            (Some(made), Some((_, target))) => {
                own(&made, seen.mode, target.owner).map_err(ScanError::Copy)?;
                let watched = target.watch.is_some();
                watched.then(|| Meta::of_file(&made)).transpose().map_err(ScanError::Copy)?
            }
            _ => None,
        };
        let node = Node::File { mode: seen.mode, size: seen.size, digest };
        Ok(Ok(Taken { node, written, holds_secret }))
    }

    /// Gives the bytes on in order, at least once and last at the end; nothing of a file that is refused at its
    /// beginning.
    fn pass_through(
        &mut self,
        mut file: File,
        seen: &Meta,
        secret: Secret,
        mut give: impl FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<Result<(Digest, bool), Reason>, ScanError> {
        let mut hasher = Hasher::default();
        let mut screen = Screen::default();
        let mut holds_secret = false;
        let mut size: u64 = 0;
        loop {
            let length = match file.read(&mut self.chunk) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Ok(Err(self.refuse(Reason::Unreadable))),
            };
            size += length as u64;
            if size > seen.size || length == 0 && size != seen.size {
                return Ok(Err(self.refuse(Reason::Raced)));
            }
            let bytes = &self.chunk[..length];
            holds_secret = holds_secret || screen.finds_secret(bytes);
            if holds_secret && secret == Secret::StaysOut {
                return Ok(Err(self.refuse(Reason::SecretContent)));
            }
            hasher.update(bytes);
            give(bytes)?;
            if let Some(pack) = &mut self.pack {
                pack.add(bytes).map_err(ScanError::Copy)?;
            }
            // Less than was asked for is the end of a regular file.
            if size == seen.size && length < CHUNK {
                break;
            }
        }
        let digest = hasher.finish().map_err(ScanError::Copy)?;
        if let Some(pack) = &mut self.pack {
            pack.keep(digest);
        }
        Ok(Ok((digest, holds_secret)))
    }

    fn refuse(&mut self, reason: Reason) -> Reason {
        if let Some(pack) = &mut self.pack {
            pack.discard();
        }
        reason
    }
}

/// A place with limits says that it is full, but not of what; everything else is a fault.
pub(super) fn copy_error(copy: &Dir, bounds: &Bounds, error: io::Error) -> ScanError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let inodes_left = || rustix::fs::fstatvfs(copy).map_or(u64::MAX, |stat| stat.f_favail);
    match full {
        false => ScanError::Copy(error),
        true if inodes_left() == 0 => ScanError::Entries(bounds.entries),
        true => ScanError::Full(bounds.total_bytes),
    }
}

/// Owner first: changing it clears bits of the mode.
pub(super) fn own(file: impl rustix::fd::AsFd, mode: u32, owner: Option<u32>) -> io::Result<()> {
    if let Some(owner) = owner {
        rustix::fs::fchown(&file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & CARRIED_MODE))?;
    Ok(())
}
