//! Which files of a copy are as they were taken, without reading them: nobody opened the file since, and its inode, size,
//! mode and change time are the same. Where that cannot be told, it says that it does not know.
//!
//! Times alone prove nothing: a store through a shared mapping of a tmpfs file changes neither modification nor change
//! time when the page was read first. But a mapping needs the file opened, and a directory's watcher hears of every
//! opening before the opener has the descriptor. What needs no opening (cutting by path, renaming, linking, replacing)
//! changes the change time or the inode, which nobody without rights on the host can set back.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::tree::{Dir, Inventory, Kind, Meta, Node, RelPath};

const HEARD: WatchFlags = WatchFlags::OPEN
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);
const EVENTS: usize = 64 * 1024;

/// What a file is known by when it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Witness {
    identity: (u64, u64),
    size: u64,
    mode: u32,
    changed: (i64, u32),
}

impl Witness {
    fn of(meta: &Meta) -> Self {
        let identity = meta.identity();
        Self { identity, size: meta.size, mode: meta.mode, changed: meta.changed() }
    }
}

/// Gathers witnesses while a copy is made.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: OwnedFd,
    gathered: Mutex<Gathered>,
    /// A directory could not be watched: nothing is known.
    deaf: AtomicBool,
}

#[derive(Debug, Default)]
struct Gathered {
    files: HashMap<RelPath, Witness>,
    directories: HashMap<i32, RelPath>,
}

impl Watch {
    /// Nothing where the host gives no watcher.
    pub(crate) fn begin() -> Option<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        Some(Self { inotify, gathered: Mutex::default(), deaf: AtomicBool::new(false) })
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file is complete and closed to others.
    pub(crate) fn file(&self, path: &RelPath, meta: &Meta) {
        self.gathered().files.insert(path.clone(), Witness::of(meta));
    }

    /// The directory is complete; from here on every opening in it is heard.
    pub(crate) fn directory(&self, copy: &Dir, path: &RelPath) {
        let place = format!("/proc/self/fd/{}", copy.as_fd().as_raw_fd());
        match inotify::add_watch(&self.inotify, place, HEARD) {
            Ok(number) => {
                self.gathered().directories.insert(number, path.clone());
            }
            Err(_) => self.deaf.store(true, Ordering::Relaxed),
        }
    }

    /// What is known from here on, about a copy that is what `base` says.
    pub(crate) fn end(self, base: Arc<Inventory>) -> Option<Known> {
        let Self { inotify, gathered, deaf } = self;
        let Gathered { files, directories } =
            gathered.into_inner().unwrap_or_else(PoisonError::into_inner);
        (!deaf.into_inner()).then(|| Known {
            inotify,
            base,
            files,
            directories,
            heard: RwLock::default(),
        })
    }
}

/// What is known of a copy's files.
#[derive(Debug)]
pub(crate) struct Known {
    inotify: OwnedFd,
    base: Arc<Inventory>,
    files: HashMap<RelPath, Witness>,
    directories: HashMap<i32, RelPath>,
    heard: RwLock<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    opened: HashSet<RelPath>,
    /// Events were lost, or cannot be read: nothing is known any more.
    lost: bool,
}

impl Known {
    /// Takes in what was heard until now. A walk does so at its beginning, and often enough that its own openings of
    /// directories do not fill the queue.
    pub(crate) fn listen(&self) {
        let mut heard = self.heard.write().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        while !heard.lost {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    heard.lost = true;
                }
                Ok(event) if event.events().contains(ReadFlags::ISDIR) => (),
                Ok(event) => {
                    let directory = self.directories.get(&event.wd());
                    if let (Some(directory), Some(name)) = (directory, event.file_name()) {
                        heard.opened.insert(directory.join(name.to_bytes()));
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => (),
                Err(_) => heard.lost = true,
            }
        }
    }

    /// What the path holds, if it is a file and the one that was taken.
    pub(crate) fn node(&self, path: &RelPath, meta: &Meta) -> Option<&Node> {
        let is_taken = meta.kind == Kind::File
            && meta.links == 1
            && self.files.get(path) == Some(&Witness::of(meta))
            && !self.is_opened(path);
        is_taken.then(|| self.base.get(path))?
    }

    fn is_opened(&self, path: &RelPath) -> bool {
        let heard = self.heard.read().unwrap_or_else(PoisonError::into_inner);
        heard.lost || heard.opened.contains(path)
    }
}

#[cfg(test)]
mod tests;
