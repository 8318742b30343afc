//! The bytes of a base, kept in a private directory that no container sees: in packs with one index, and after imports
//! also each under its digest. Contents are checked against their digest whenever they are read.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use event::Digest;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::tree::{Dir, Kind};

const PART: &[u8] = b"part";
const INDEX: &[u8] = b"index";
const CHUNK: usize = 64 * 1024;
/// What a pack gathers before it writes: one call for many small files.
const GATHERED: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Blobs(Dir);

#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error("the kept bytes are missing or damaged")]
    Damaged,
    #[error("the kept bytes cannot be read")]
    Unreadable(#[source] io::Error),
}

/// Where the bytes of a digest are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    digest: Digest,
    pack: u32,
    at: u64,
    size: u64,
}

impl Kept {
    const BYTES: usize = 32 + 4 + 8 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.digest.as_bytes());
        bytes.extend_from_slice(&self.pack.to_be_bytes());
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.extend_from_slice(&self.size.to_be_bytes());
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (digest, rest) = bytes.split_first_chunk::<32>()?;
        let (pack, rest) = rest.split_first_chunk::<4>()?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let size = rest.first_chunk::<8>()?;
        Some(Self {
            digest: Digest::from_bytes(digest).ok()?,
            pack: u32::from_be_bytes(*pack),
            at: u64::from_be_bytes(*at),
            size: u64::from_be_bytes(*size),
        })
    }
}

/// A file that many files' bytes go into, one after the other, by one thread.
#[derive(Debug)]
pub(crate) struct Pack {
    file: File,
    number: u32,
    gathered: Vec<u8>,
    /// Where the present file began, and where its next byte goes.
    began: u64,
    at: u64,
    kept: Vec<Kept>,
}

impl Pack {
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        if self.gathered.len() + bytes.len() > GATHERED {
            self.file.write_all(&self.gathered)?;
            self.gathered.clear();
        }
        if bytes.len() > GATHERED {
            return self.file.write_all(bytes);
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    /// What was added since the last file is a file.
    pub(crate) fn keep(&mut self, digest: Digest) {
        let size = self.at - self.began;
        self.kept.push(Kept { digest, pack: self.number, at: self.began, size });
        self.began = self.at;
    }

    /// What was added since the last file is nothing.
    pub(crate) fn discard(&mut self) {
        self.began = self.at;
    }

    pub(crate) fn finish(mut self) -> io::Result<Vec<Kept>> {
        self.file.write_all(&self.gathered)?;
        Ok(self.kept)
    }
}

impl Blobs {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Dir::open(path).map(Self)
    }

    /// A new pack; the directory holds none of that number.
    pub(crate) fn pack(&self, number: usize) -> io::Result<Pack> {
        let number = u32::try_from(number).map_err(io::Error::other)?;
        let file = self.0.create_file(&pack_name(number))?;
        Ok(Pack {
            file,
            number,
            gathered: Vec::with_capacity(GATHERED),
            began: 0,
            at: 0,
            kept: Vec::new(),
        })
    }

    /// Makes what the packs hold readable.
    pub(crate) fn index(&self, mut kept: Vec<Kept>) -> io::Result<()> {
        kept.sort_by_key(|kept| kept.digest);
        kept.dedup_by_key(|kept| kept.digest);
        let mut bytes = Vec::with_capacity(kept.len() * Kept::BYTES);
        for kept in &kept {
            kept.encode(&mut bytes);
        }
        self.0.create_file(INDEX)?.write_all(&bytes)
    }

    /// Keeps the bytes of one more file under their digest.
    pub(crate) fn put_file(&self, mut file: impl io::Read) -> io::Result<Digest> {
        match rustix::fs::unlinkat(&self.0, PART, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => (),
            Err(error) => return Err(error.into()),
        }
        let mut part = self.0.create_file(PART)?;
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
        let name = name(digest);
        let done = rustix::fs::renameat_with(&self.0, PART, &self.0, &name, RenameFlags::NOREPLACE);
        match done {
            Ok(()) => (),
            Err(Errno::EXIST) => rustix::fs::unlinkat(&self.0, PART, AtFlags::empty())?,
            Err(error) => return Err(error.into()),
        }
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
    pub(crate) fn open_bytes(
        &self,
        digest: Digest,
        size: u64,
    ) -> Result<io::Take<File>, BlobError> {
        // One byte more than there may be shows a file that is too long.
        match self.open_file(&name(digest))? {
            Some(file) => Ok(file.take(size.saturating_add(1))),
            None => self.open_packed(digest, size),
        }
    }

    /// Succeeds when there is nothing of that digest, as well.
    pub(crate) fn forget(&self, digest: Digest) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, name(digest), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes of that digest.
    pub(crate) fn read(&self, digest: Digest, size: u64) -> Result<Vec<u8>, BlobError> {
        let mut bytes = Vec::new();
        self.open_bytes(digest, size)?.read_to_end(&mut bytes).map_err(BlobError::Unreadable)?;
        if Digest::of(&bytes) == digest { Ok(bytes) } else { Err(BlobError::Damaged) }
    }

    fn open_packed(&self, digest: Digest, size: u64) -> Result<io::Take<File>, BlobError> {
        let index = self.open_file(INDEX)?.ok_or(BlobError::Damaged)?;
        let kept = find(&index, digest).map_err(BlobError::Unreadable)?;
        let kept = kept.filter(|kept| kept.size == size).ok_or(BlobError::Damaged)?;
        let mut pack = self.open_file(&pack_name(kept.pack))?.ok_or(BlobError::Damaged)?;
        pack.seek(SeekFrom::Start(kept.at)).map_err(BlobError::Unreadable)?;
        Ok(pack.take(size))
    }

    fn open_file(&self, name: &[u8]) -> Result<Option<File>, BlobError> {
        match self.0.look(name) {
            Ok(None) => Ok(None),
            Ok(Some(meta)) if meta.kind == Kind::File => {
                self.0.open_file(name, &meta).map(Some).map_err(|_| BlobError::Damaged)
            }
            Ok(Some(_)) | Err(_) => Err(BlobError::Damaged),
        }
    }
}

fn unreadable() -> io::Error {
    io::Error::other("a kept file cannot be read")
}

fn name(digest: Digest) -> Vec<u8> {
    hex::encode(digest.as_bytes()).into_bytes()
}

fn pack_name(number: u32) -> Vec<u8> {
    format!("pack-{number}").into_bytes()
}

/// Halves the index until the digest is found; nothing of it is held in memory.
fn find(index: &File, digest: Digest) -> io::Result<Option<Kept>> {
    let (mut from, mut to) = (0, index.metadata()?.len() / Kept::BYTES as u64);
    let mut bytes = [0; Kept::BYTES];
    while from < to {
        let middle = from + (to - from) / 2;
        index.read_exact_at(&mut bytes, middle * Kept::BYTES as u64)?;
        let kept = Kept::decode(&bytes).ok_or_else(|| io::Error::other("a digest has 32 bytes"))?;
        match kept.digest.as_bytes().cmp(digest.as_bytes()) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return Ok(Some(kept)),
        }
    }
    Ok(None)
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use event::Digest;

    use super::{BlobError, Blobs};

    fn filled(at: &Path, files: &[&[u8]]) -> Blobs {
        let blobs = Blobs::open(at).unwrap();
        let mut pack = blobs.pack(3).unwrap();
        for bytes in files {
            let (one, other) = bytes.split_at(bytes.len() / 2);
            pack.add(one).unwrap();
            pack.add(other).unwrap();
            pack.keep(Digest::of(bytes));
            pack.add(b"of a file that was refused").unwrap();
            pack.discard();
        }
        blobs.index(pack.finish().unwrap()).unwrap();
        blobs
    }

    #[test]
    fn packed_bytes_are_found_by_their_digest_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let large = vec![7; 3 << 20];
        let files: [&[u8]; 5] = [b"one", b"", b"two", &large, b"one"];
        let blobs = filled(dir.path(), &files);
        for bytes in files {
            let read = blobs.read(Digest::of(bytes), bytes.len() as u64).unwrap();
            assert_eq!(read, bytes);
        }
        let absent = blobs.read(Digest::of(b"three"), 5);
        assert!(matches!(absent, Err(BlobError::Damaged)), "{absent:?}");
        let other_size = blobs.read(Digest::of(b"one"), 4);
        assert!(matches!(other_size, Err(BlobError::Damaged)), "{other_size:?}");
    }

    #[test]
    fn damaged_bytes_are_never_given_out() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = filled(dir.path(), &[b"one", b"two"]);
        let mut pack = fs::read(dir.path().join("pack-3")).unwrap();
        pack[1] ^= 1;
        fs::write(dir.path().join("pack-3"), pack).unwrap();
        assert!(matches!(blobs.read(Digest::of(b"one"), 3), Err(BlobError::Damaged)));
        assert_eq!(blobs.read(Digest::of(b"two"), 3).unwrap(), b"two");
        fs::write(dir.path().join("pack-3"), b"on").unwrap();
        assert!(matches!(blobs.read(Digest::of(b"two"), 3), Err(BlobError::Damaged)));
        fs::write(dir.path().join("index"), b"").unwrap();
        assert!(matches!(blobs.read(Digest::of(b"two"), 3), Err(BlobError::Damaged)));
    }

    #[test]
    fn bytes_of_an_import_are_kept_beside_the_packs() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = filled(dir.path(), &[b"one"]);
        let file = dir.path().join("new");
        fs::write(&file, "three").unwrap();
        for _ in 0..2 {
            let digest = blobs.put_file(fs::File::open(&file).unwrap()).unwrap();
            assert_eq!(digest, Digest::of(b"three"));
        }
        assert_eq!(blobs.read(Digest::of(b"three"), 5).unwrap(), b"three");
        assert_eq!(blobs.read(Digest::of(b"one"), 3).unwrap(), b"one");
    }
}
