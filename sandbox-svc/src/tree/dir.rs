//! Directories by descriptor, entries by one name at a time: `openat2` beneath the directory, never
//! through a link, never onto another file system. What was opened is compared with what was looked at.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, ResolveFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use crate::tree::{Reason, RelPath, Stamp};

/// How often an interrupted or raced `openat2` is tried again.
const OPEN_TRIES: usize = 16;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const QUIET: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
/// How far a file's size may exceed its blocks before it is looked at for holes.
const SPARSE_SLACK: u64 = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    /// FIFO, socket, device.
    Special,
}

/// What one look at an entry said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    /// Permission bits with set-id and sticky bits, without the type.
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    blocks: u64,
    device: u64,
    inode: u64,
    changed: (i64, u32),
}

impl Meta {
    /// Device and inode.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// When the entry's bytes, mode, links or name last changed; nobody sets this back.
    pub(crate) fn changed(&self) -> (i64, u32) {
        self.changed
    }

    fn of(fd: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Self, Errno> {
        Ok(Self::from(&rustix::fs::statx(fd, name, flags, StatxFlags::BASIC_STATS)?))
    }

    fn from(stat: &Statx) -> Self {
        let mode = RawMode::from(stat.stx_mode);
        let kind = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Kind::Special,
        };
        Self {
            kind,
            mode: mode & 0o7777,
            links: stat.stx_nlink,
            size: stat.stx_size,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            blocks: stat.stx_blocks,
            device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            inode: stat.stx_ino,
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    pub(crate) fn of_file(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(file.as_fd(), b"", AtFlags::EMPTY_PATH)?)
    }

    fn looks_sparse(&self) -> bool {
        self.size > self.blocks.saturating_mul(512).saturating_add(SPARSE_SLACK)
    }
}

/// Everything that one look can say of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closer {
    pub(crate) meta: Meta,
    pub(crate) stamp: Stamp,
    /// Something is mounted there.
    pub(crate) is_mount: bool,
}

impl Closer {
    fn of(fd: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Self, Errno> {
        let stat = rustix::fs::statx(fd, name, flags, StatxFlags::BASIC_STATS)?;
        Ok(Self {
            meta: Meta::from(&stat),
            stamp: Stamp::of(&stat),
            is_mount: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }

    /// Of what is open already.
    pub(crate) fn of_open(open: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(open.as_fd(), b"", AtFlags::EMPTY_PATH)?)
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Dir {
    /// Opens a directory of the configuration; its path is the operator's, and trusted.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    pub(crate) fn meta(&self) -> io::Result<Meta> {
        Meta::of_file(self)
    }

    /// Device, inode and time of birth, which tell a new mount from the one whose numbers it got.
    pub(crate) fn birth(&self) -> io::Result<(u64, u64, i64, u32)> {
        let (device, inode) = self.meta()?.identity();
        let stat = rustix::fs::statx(self, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
        let born = stat.stx_btime;
        Ok((device, inode, born.tv_sec, born.tv_nsec))
    }

    /// Looks at an entry without following it; nothing when there is none.
    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<Meta>, Reason> {
        // A look must not mount anything either.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match Meta::of(self.as_fd(), name, flags) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(refusal(error)),
        }
    }

    /// As `look`, with all that it said.
    pub(crate) fn look_closer(&self, name: &[u8]) -> Result<Option<Closer>, Reason> {
        match Closer::of(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(seen) => Ok(Some(seen)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(refusal(error)),
        }
    }

    /// Opens a file or directory, whatever it is like otherwise. What opened is what `seen` was.
    pub(crate) fn open_as_seen(&self, name: &[u8], seen: &Meta) -> Result<OwnedFd, Reason> {
        let kind = match seen.kind {
            Kind::File => OFlags::empty(),
            Kind::Directory => OFlags::DIRECTORY,
            Kind::Link | Kind::Special => return Err(Reason::Special),
        };
        let open = self.open_quietly(name, OFlags::RDONLY | kind).map_err(refusal)?;
        let meta = Meta::of_file(&open).map_err(|_| Reason::Unreadable)?;
        match meta.kind == seen.kind && meta.identity() == seen.identity() {
            true => Ok(open),
            false => Err(Reason::Raced),
        }
    }

    pub(crate) fn open_directory(&self, name: &[u8]) -> Result<Self, Reason> {
        self.open_quietly(name, OFlags::RDONLY | OFlags::DIRECTORY).map(Self).map_err(refusal)
    }

    /// Opens a directory of the tree by its path, one component at a time.
    pub(crate) fn descend(&self, path: &RelPath) -> Result<Self, Reason> {
        let mut here = Self(self.0.try_clone().map_err(|_| Reason::Unreadable)?);
        for component in path.components() {
            here = here.open_directory(component)?;
        }
        Ok(here)
    }

    /// Opens a regular file for reading: what opened is what `seen` was, has one link and no holes.
    pub(crate) fn open_file(&self, name: &[u8], seen: &Meta) -> Result<File, Reason> {
        let file = File::from(self.open_quietly(name, OFlags::RDONLY).map_err(refusal)?);
        let meta = Meta::of_file(&file).map_err(|_| Reason::Unreadable)?;
        if meta.kind != seen.kind || meta.identity() != seen.identity() {
            return Err(Reason::Raced);
        }
        if meta.kind != Kind::File {
            return Err(Reason::Special);
        }
        if meta.links != 1 {
            return Err(Reason::Linked);
        }
        if meta.looks_sparse() && has_holes(&file, meta.size) {
            return Err(Reason::Sparse);
        }
        Ok(file)
    }

    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Reason> {
        match rustix::fs::readlinkat(self, name, Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            Err(Errno::INVAL | Errno::NOENT) => Err(Reason::Raced),
            Err(error) => Err(refusal(error)),
        }
    }

    /// The names in the directory, sorted; nothing when there are more than `limit`.
    pub(crate) fn names(&self, limit: usize) -> Result<Option<Vec<Vec<u8>>>, Reason> {
        let listing = rustix::fs::Dir::read_from(self).map_err(refusal)?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(refusal)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == limit {
                return Ok(None);
            }
            names.push(name.to_vec());
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    /// Makes a new file for writing; an entry of that name is an error.
    pub(crate) fn create_file(&self, name: &[u8]) -> io::Result<File> {
        let flags = QUIET | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(rustix::fs::openat(self, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a new directory, private until its mode is set.
    pub(crate) fn create_directory(&self, name: &[u8]) -> io::Result<Self> {
        rustix::fs::mkdirat(self, name, Mode::RWXU)?;
        Ok(Self(self.open_quietly(name, OFlags::RDONLY | OFlags::DIRECTORY)?))
    }

    fn open_quietly(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        // Not ours to touch the access time, unless the kernel lets only the owner say so.
        match self.open_beneath(name, flags | QUIET | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_beneath(name, flags | QUIET),
            done => done,
        }
    }

    fn open_beneath(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut last = Errno::AGAIN;
        for _ in 0..OPEN_TRIES {
            match rustix::fs::openat2(self, name, flags, Mode::empty(), BENEATH) {
                Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
                done => return done,
            }
        }
        Err(last)
    }
}

fn has_holes(file: &File, size: u64) -> bool {
    let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0));
    let back = rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0));
    !(matches!(hole, Ok(at) if at >= size) && back.is_ok())
}

/// What the kernel's answer says about the entry.
fn refusal(error: Errno) -> Reason {
    match error {
        Errno::XDEV => Reason::OtherFileSystem,
        Errno::NAMETOOLONG => Reason::PathTooLong,
        Errno::NXIO | Errno::NODEV => Reason::Special,
        // A link, a missing entry or another kind where a look had seen something else.
        Errno::LOOP | Errno::NOENT | Errno::NOTDIR | Errno::AGAIN | Errno::INTR => Reason::Raced,
        _ => Reason::Unreadable,
    }
}
