//! The state directory and the lock that makes this process its only owner. It never reads what is inside.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Held for as long as the process may write; the kernel releases it however the process ends.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("state directory {} cannot be used; make it a directory that this user may write", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("state directory {} belongs to another running model-svc; stop it or use another directory", path.display())]
    Owned { path: PathBuf },
}

impl StateDir {
    pub(crate) fn own(path: &Path) -> Result<Self, Unusable> {
        let unusable = |source| Unusable::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Unusable::Owned { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("model.db")
    }
}
