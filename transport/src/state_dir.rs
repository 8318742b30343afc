//! A service's state directory and the lock that makes this process its only owner. It never reads what is inside.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long the lock of a process that has just ended may still be held: a child that it was starting shares its files
/// until it runs its own program.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Held for as long as the process may write; the kernel releases it however the process ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

/// The directory cannot be this process's own.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be made, opened or locked.
    #[error("state directory {} cannot be used; make it a directory that this user may write", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process holds it.
    #[error("state directory {} belongs to another running process; stop it or use another directory", path.display())]
    Owned {
        /// The directory.
        path: PathBuf,
    },
}

impl StateDir {
    /// Makes the directory (0700) where it is missing, and takes its lock; waits for a moment at most.
    pub fn own(path: &Path) -> Result<Self, Unusable> {
        let unusable = |source| Unusable::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(path.join("lock")).map_err(unusable)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(Unusable::Owned { path: path.to_owned() });
                }
                Err(TryLockError::Error(source)) => return Err(unusable(source)),
            }
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file of this name in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{StateDir, Unusable};

    #[test]
    fn a_second_owner_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let first = StateDir::own(&path).unwrap();
        assert!(matches!(StateDir::own(&path), Err(Unusable::Owned { .. })));
        drop(first);
        StateDir::own(&path).unwrap();
    }

    #[test]
    fn a_child_that_has_not_run_its_own_program_yet_is_no_owner() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::own(dir.path()).unwrap();
        // As between the two halves of starting a child: it has every open file of its parent.
        let held = first._lock.try_clone().unwrap();
        let mut child = std::process::Command::new("sleep").arg("0.3").stdin(held).spawn().unwrap();
        drop(first);
        StateDir::own(dir.path()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_file_in_its_place_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::fs::write(&path, "").unwrap();
        let refused = StateDir::own(&path).unwrap_err();
        assert!(refused.to_string().contains(path.to_str().unwrap()));
    }
}
