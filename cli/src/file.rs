//! Files with exact modes and owners: written beside their place and renamed into it, so that a reader never sees
//! half of one and a planted link is replaced, not followed.
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::error::{Exit, Explain};

/// Nothing that this program reads whole is larger.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Who owns a file, when it is not whoever runs this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Mode and owner of something that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub mode: u32,
    pub owner: Option<Owner>,
}

impl Access {
    pub const PRIVATE: Self = Self { mode: 0o600, owner: None };
    pub const PRIVATE_DIR: Self = Self { mode: 0o700, owner: None };
    pub const PUBLIC: Self = Self { mode: 0o644, owner: None };
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can not {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} already exists", path.display())]
    Exists { path: PathBuf },
    #[error("{} is larger than {LIMIT} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is a {what}", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{} is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => Exit::Failed,
            Self::Io { .. }
            | Self::Exists { .. }
            | Self::TooLarge { .. }
            | Self::NotAFile { .. }
            | Self::NotText { .. } => Exit::Usage,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "check the path",
                io::ErrorKind::PermissionDenied => "check the permissions, or run as its owner",
                io::ErrorKind::StorageFull => "free some space",
                _ => "check the file and the disk",
            },
            Self::Exists { .. } => "it is never overwritten: move it away or choose another place",
            Self::NotAFile { .. } => "give a regular file; what a pipe brings, write to one first",
            Self::TooLarge { .. } | Self::NotText { .. } => "give another file",
        }
        .to_owned()
    }
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let file = regular(path)?;
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= LIMIT) {
        Ok(bytes)
    } else {
        Err(Error::TooLarge { path: path.to_owned() })
    }
}

/// Opens a file of which there is an end. A pipe or a device is never waited for.
pub(crate) fn regular(path: &Path) -> Result<File, Error> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|source| match fs::metadata(path) {
        // A socket can not even be opened.
        Ok(found) if !found.is_file() => not_a_file(path, found.file_type()),
        Ok(_) | Err(_) => failed("read", path)(source),
    })?;
    let found = file.metadata().map_err(failed("read", path))?.file_type();
    match found.is_file() {
        true => Ok(file),
        false => Err(not_a_file(path, found)),
    }
}

fn not_a_file(path: &Path, found: fs::FileType) -> Error {
    let what = match found {
        found if found.is_dir() => "directory",
        found if found.is_fifo() => "pipe",
        found if found.is_socket() => "socket",
        _ => "device",
    };
    Error::NotAFile { path: path.to_owned(), what }
}

pub fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|_| Error::NotText { path: path.to_owned() })
}

/// Replaces `path` by a file with these bytes.
pub fn write(path: &Path, bytes: &[u8], access: Access) -> Result<(), Error> {
    let beside = staged(path, bytes, access)?;
    fs::rename(&beside, path).map_err(|source| discard(&beside, failed("write", path)(source)))
}

/// Makes a new file; what exists is never replaced.
pub fn create(path: &Path, bytes: &[u8], access: Access) -> Result<(), Error> {
    let beside = staged(path, bytes, access)?;
    let linked = fs::hard_link(&beside, path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        _ => failed("create", path)(source),
    });
    fs::remove_file(&beside).map_err(failed("remove", &beside))?;
    linked
}

/// Makes a directory, or sets mode and owner of the one that is there. A link in its place is refused.
pub fn directory(path: &Path, access: Access) -> Result<(), Error> {
    match DirBuilder::new().mode(access.mode).create(path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(failed("read", path))?;
            if !found.is_dir() {
                return Err(failed("use as a directory", path)(
                    io::ErrorKind::NotADirectory.into(),
                ));
            }
        }
        Err(source) => return Err(failed("create", path)(source)),
    }
    let dir = File::open(path).map_err(failed("open", path))?;
    settle(&dir, path, access)
}

/// Makes a directory and those above it, as far as they are not there; each is its owner's alone.
pub(crate) fn private_path(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create", path))
}

/// Makes a directory that must not be there yet.
pub fn new_directory(path: &Path, access: Access) -> Result<(), Error> {
    DirBuilder::new().mode(access.mode).create(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        _ => failed("create", path)(source),
    })?;
    let dir = File::open(path).map_err(failed("open", path))?;
    settle(&dir, path, access)
}

fn staged(path: &Path, bytes: &[u8], access: Access) -> Result<PathBuf, Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed("write", path))?;
    let written = file
        .write_all(bytes)
        .map_err(failed("write", path))
        .and_then(|()| settle(&file, path, access))
        .and_then(|()| file.sync_all().map_err(failed("write", path)));
    match written {
        Ok(()) => Ok(beside),
        Err(error) => Err(discard(&beside, error)),
    }
}

fn settle(file: &File, path: &Path, access: Access) -> Result<(), Error> {
    if let Some(Owner { uid, gid }) = access.owner {
        std::os::unix::fs::fchown(file, Some(uid), Some(gid))
            .map_err(failed("change the owner of", path))?;
    }
    file.set_permissions(fs::Permissions::from_mode(access.mode))
        .map_err(failed("change the mode of", path))
}

/// The first error counts; what was staged is garbage either way.
fn discard(beside: &Path, error: Error) -> Error {
    drop(fs::remove_file(beside));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_written_file_has_its_mode_and_replaces_a_planted_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, b"secret", Access::PRIVATE).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert_eq!((fs::read_to_string(&link).unwrap().as_str(), mode(&link)), ("secret", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_created_file_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        create(&path, b"first", Access::PRIVATE).unwrap();
        assert!(matches!(create(&path, b"second", Access::PRIVATE), Err(Error::Exists { .. })));
        assert_eq!(read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_made_once_and_never_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (made, link) = (dir.path().join("made"), dir.path().join("link"));
        directory(&made, Access::PRIVATE_DIR).unwrap();
        directory(&made, Access { mode: 0o711, owner: None }).unwrap();
        assert_eq!(mode(&made), 0o711);
        std::os::unix::fs::symlink(&made, &link).unwrap();
        assert!(directory(&link, Access::PRIVATE_DIR).is_err());
        assert!(matches!(new_directory(&made, Access::PRIVATE_DIR), Err(Error::Exists { .. })));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (pipe, link) = (at("pipe"), at("link"));
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (path, what) in [
            (pipe, "pipe"),
            (link, "pipe"),
            (at("socket"), "socket"),
            (dir.path().to_owned(), "directory"),
            ("/dev/zero".into(), "device"),
        ] {
            let error = read(&path).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage, "{error}");
            assert_eq!(error.to_string(), format!("{} is a {what}", path.display()));
        }
        fs::write(at("text"), "text").unwrap();
        std::os::unix::fs::symlink(at("text"), at("other")).unwrap();
        assert_eq!(read_text(&at("other")).unwrap(), "text");
    }

    #[test]
    fn a_missing_file_is_the_callers_mistake() {
        let error = read(Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!((error.exit(), error.advice().as_str()), (Exit::Usage, "check the path"));
    }
}
