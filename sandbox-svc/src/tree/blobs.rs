//! The bytes of a base, each under its digest, in a private directory that no container sees. Contents are
//! checked against their name whenever they are read.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use event::Digest;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::tree::{Dir, Kind};

const PART: &[u8] = b"part";
const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Blobs(Dir);

#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error("the kept bytes are missing or damaged")]
    Damaged,
    #[error("the kept bytes cannot be read")]
    Unreadable(#[source] io::Error),
}

impl Blobs {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Dir::open(path).map(Self)
    }

    /// A file to write the bytes into; `keep` names it. One writer at a time.
    pub(crate) fn begin(&self) -> io::Result<File> {
        match rustix::fs::unlinkat(&self.0, PART, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => (),
            Err(error) => return Err(error.into()),
        }
        self.0.create_file(PART)
    }

    pub(crate) fn keep(&self, digest: Digest) -> io::Result<()> {
        let name = name(digest);
        let done = rustix::fs::renameat_with(&self.0, PART, &self.0, &name, RenameFlags::NOREPLACE);
        match done {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Ok(rustix::fs::unlinkat(&self.0, PART, AtFlags::empty())?),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn put_file(&self, mut file: File) -> io::Result<Digest> {
        let mut part = self.begin()?;
        let mut hasher = Hasher::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => {
                    hasher.update(&chunk[..length]);
                    part.write_all(&chunk[..length])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        let digest = hasher.finish()?;
        self.keep(digest)?;
        Ok(digest)
    }

    /// Makes everything that is kept durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        for name in self.0.names(usize::MAX).map_err(|_| unreadable())?.unwrap_or_default() {
            let seen = self.0.look(&name).map_err(|_| unreadable())?.ok_or_else(unreadable)?;
            self.0.open_file(&name, &seen).map_err(|_| unreadable())?.sync_all()?;
        }
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Whoever reads on compares what comes with the digest.
    pub(crate) fn open_bytes(&self, digest: Digest, size: u64) -> Result<File, BlobError> {
        let name = name(digest);
        let seen = self.0.look(&name).ok().flatten().filter(|meta| meta.kind == Kind::File);
        let seen = seen.filter(|meta| meta.size == size).ok_or(BlobError::Damaged)?;
        self.0.open_file(&name, &seen).map_err(|_| BlobError::Damaged)
    }

    /// The bytes of that digest.
    pub(crate) fn read(&self, digest: Digest, size: u64) -> Result<Vec<u8>, BlobError> {
        let file = self.open_bytes(digest, size)?;
        let mut bytes = Vec::new();
        file.take(size.saturating_add(1)).read_to_end(&mut bytes).map_err(BlobError::Unreadable)?;
        if Digest::of(&bytes) == digest { Ok(bytes) } else { Err(BlobError::Damaged) }
    }
}

fn unreadable() -> io::Error {
    io::Error::other("a kept file cannot be read")
}

fn name(digest: Digest) -> Vec<u8> {
    hex::encode(digest.as_bytes()).into_bytes()
}

/// SHA-256 of bytes that arrive in pieces.
#[derive(Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> io::Result<Digest> {
        let bytes: [u8; 32] = self.0.finalize().into();
        Digest::from_bytes(&bytes).map_err(|_| io::Error::other("a digest has 32 bytes"))
    }
}
