//! A file that an administrator edits while the service runs: looked at whenever it is used, read again when it has
//! changed. A new version that cannot be understood changes nothing and is said loudly; it never empties what is in force.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use metrics::{counter, gauge};
use tracing::{error, info};

use crate::Chain;

type Parse<T, E> = dyn Fn(&[u8], &Path) -> Result<T, E> + Send + Sync;

/// The last good version of a file, at most `limit` bytes long.
pub struct Watched<T, E> {
    path: PathBuf,
    /// Constant, for logs and metrics, such as `ceiling`.
    name: &'static str,
    limit: u64,
    parse: Box<Parse<T, E>>,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    stamp: Option<Stamp>,
    value: Arc<T>,
}

/// What changes when a file does.
type Stamp = (SystemTime, u64, u64);

/// Why a version of the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Broken<E: std::error::Error + 'static> {
    #[error("{} cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{} cannot be used", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: E,
    },
}

impl<T: 'static, E: std::error::Error + 'static> Watched<T, E> {
    /// The first version must be good: what is broken at the start stops the start.
    pub fn open(
        path: &Path,
        name: &'static str,
        limit: u64,
        parse: impl Fn(&[u8], &Path) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, Broken<E>> {
        let parse: Box<Parse<T, E>> = Box::new(parse);
        let (stamp, value) = read(path, limit, &parse)?;
        let held = Mutex::new(Held { stamp: Some(stamp), value: Arc::new(value) });
        Ok(Self { path: path.to_owned(), name, limit, parse, held })
    }

    /// What is in force now.
    pub fn current(&self) -> Arc<T> {
        // The state is replaced as a whole, so a panic elsewhere leaves nothing half done in it.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let found = stamp(&self.path).ok();
        if found != held.stamp {
            // Looked at once per change, so that a broken file is reported once and not at every use.
            held.stamp = found;
            match read(&self.path, self.limit, &self.parse) {
                Ok((stamp, value)) => {
                    *held = Held { stamp: Some(stamp), value: Arc::new(value) };
                    info!(file = self.name, "a changed file is in force");
                    gauge!("harness_file_broken", "file" => self.name).set(0.0);
                }
                Err(broken) => {
                    error!(file = self.name, error = %Chain(&broken), "a changed file cannot be used; the last good version stays in force");
                    gauge!("harness_file_broken", "file" => self.name).set(1.0);
                    counter!("harness_file_broken_total", "file" => self.name).increment(1);
                }
            }
        }
        held.value.clone()
    }
}

impl<T, E> fmt::Debug for Watched<T, E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watched").field("path", &self.path).finish_non_exhaustive()
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path)?;
    Ok((found.modified()?, found.len(), found.ino()))
}

/// The stamp is taken first: a change in between is seen at the next look.
fn read<T: 'static, E: std::error::Error + 'static>(
    path: &Path,
    limit: u64,
    parse: &Parse<T, E>,
) -> Result<(Stamp, T), Broken<E>> {
    use io::Read as _;
    let failed = |source| Broken::Read { path: path.to_owned(), source };
    let stamp = stamp(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(Broken::TooLarge { path: path.to_owned(), limit });
    }
    let parsed =
        parse(&bytes, path).map_err(|source| Broken::Parse { path: path.to_owned(), source })?;
    Ok((stamp, parsed))
}

#[cfg(test)]
mod tests {
    use std::num::ParseIntError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum NotANumber {
        #[error("not text")]
        Text(#[source] std::str::Utf8Error),
        #[error("not a number")]
        Number(#[source] ParseIntError),
    }

    fn number(bytes: &[u8], _: &Path) -> Result<u32, NotANumber> {
        std::str::from_utf8(bytes)
            .map_err(NotANumber::Text)?
            .trim()
            .parse()
            .map_err(NotANumber::Number)
    }

    #[test]
    fn a_file_that_is_broken_or_absent_stops_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open = || Watched::open(&path, "test", 8, number).map(|watched| *watched.current());
        assert!(matches!(open(), Err(Broken::Read { .. })));
        for (text, expected) in [("x", "cannot be used"), ("123456789", "larger than 8 bytes")] {
            fs::write(&path, text).unwrap();
            let broken = open().unwrap_err().to_string();
            assert!(broken.contains(expected), "{broken}");
        }
        fs::write(&path, "12345678").unwrap();
        assert_eq!(open().unwrap(), 12_345_678);
    }

    #[test]
    fn a_change_is_in_force_at_the_next_look_and_a_broken_or_missing_one_never() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(&path, "test", 64, number).unwrap();
        assert_eq!(*watched.current(), 1);
        fs::write(&path, "22").unwrap();
        assert_eq!(*watched.current(), 22);
        fs::write(&path, "a broken one").unwrap();
        assert_eq!(*watched.current(), 22, "the last good");
        assert_eq!(*watched.current(), 22, "and at every later look");
        fs::remove_file(&path).unwrap();
        assert_eq!(*watched.current(), 22);
        fs::write(&path, "333").unwrap();
        assert_eq!(*watched.current(), 333);
    }
}
