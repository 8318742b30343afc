//! The threads of a walk and what they share: directories that wait, and the two counters. Every directory is opened
//! from its parent's descriptor, never by a path; one failure ends every thread's work.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Gid, Uid};

use super::file::{Reader, Secret, Taken, copy_error, own};
use super::{Bounds, ScanError, Target};
use crate::tree::blobs::Kept;
use crate::tree::inventory::CARRIED_MODE;
use crate::tree::witness::Known;
use crate::tree::{Dir, Kind, Meta, Node, NotCarried, Reason, RelPath, Rules};

/// Entries that a thread takes at once.
const BATCH: usize = 128;
/// Directories that are entered between two times of listening.
const ENTERED: u64 = 1_024;

pub(super) struct Walk<'a> {
    rules: &'a Rules<'a>,
    bounds: &'a Bounds,
    target: Option<&'a Target<'a>>,
    known: Option<&'a Known>,
    seen: AtomicU64,
    bytes: AtomicU64,
    entered: AtomicU64,
    queue: Mutex<Queue>,
    more: Condvar,
}

/// Last in, first out: then the directories that are held open are those on the way to where the threads are.
struct Queue {
    jobs: Vec<Job>,
    /// Jobs that are being done, and may make more.
    busy: usize,
    stopped: bool,
}

enum Job {
    Directory { parent: Arc<Place>, entry: Vec<u8>, path: RelPath, seen: Meta },
    Entries { place: Arc<Place>, names: Vec<Vec<u8>> },
}

/// A directory that is being walked.
struct Place {
    path: RelPath,
    here: Dir,
    copy: Option<Dir>,
    /// The mode the copy gets when everything is in it; a read-only directory cannot be filled.
    mode: Option<u32>,
    parent: Option<Arc<Place>>,
    /// Batches and directories in it that are not done.
    left: AtomicUsize,
}

/// What one thread found.
#[derive(Default)]
pub(super) struct Part {
    pub(super) nodes: Vec<(RelPath, Node)>,
    pub(super) not_carried: Vec<NotCarried>,
    pub(super) carried: Vec<NotCarried>,
    pub(super) stripped: Vec<RelPath>,
    pub(super) kept: Vec<Kept>,
}

impl Part {
    pub(super) fn add(&mut self, other: Self) {
        let Self { nodes, not_carried, carried, stripped, kept } = other;
        self.nodes.extend(nodes);
        self.not_carried.extend(not_carried);
        self.carried.extend(carried);
        self.stripped.extend(stripped);
        self.kept.extend(kept);
    }

    fn leave(&mut self, path: RelPath, reason: Reason) {
        self.not_carried.push(NotCarried { path, reason });
    }
}

/// One job that is being done. A thread that panics ends the others, which would wait for it.
struct Busy<'a, 'b>(&'b Walk<'a>);

impl Drop for Busy<'_, '_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.busy -= 1;
        queue.stopped |= std::thread::panicking();
        drop(queue);
        self.0.more.notify_all();
    }
}

impl<'a> Walk<'a> {
    pub(super) fn begin(
        root: &Dir,
        rules: &'a Rules<'a>,
        bounds: &'a Bounds,
        target: Option<&'a Target<'a>>,
        known: Option<&'a Known>,
    ) -> Result<Self, ScanError> {
        let reopen = |dir: &Dir| dir.descend(&RelPath::root()).map_err(|_| ScanError::Root);
        let here = reopen(root)?;
        let names = match here.names(bounds.directory_entries) {
            Ok(Some(names)) => names,
            Ok(None) => return Err(ScanError::DirectoryEntries(bounds.directory_entries)),
            Err(_) => return Err(ScanError::Root),
        };
        let copy = target.map(|target| reopen(target.tree)).transpose()?;
        if let Some(known) = known {
            known.listen();
        }
        let walk = Self {
            rules,
            bounds,
            target,
            known,
            seen: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            queue: Mutex::new(Queue { jobs: Vec::new(), busy: 0, stopped: false }),
            more: Condvar::new(),
        };
        let place = Place::new(RelPath::root(), here, copy, None, None);
        walk.split(&Arc::new(place), names);
        Ok(walk)
    }

    /// Does what there is to do until nothing is left.
    pub(super) fn work(&self, thread: usize) -> Result<Part, ScanError> {
        let done = self.work_to_the_end(thread);
        if done.is_err() {
            self.queue().stopped = true;
            self.more.notify_all();
        }
        done
    }

    fn work_to_the_end(&self, thread: usize) -> Result<Part, ScanError> {
        let mut part = Part::default();
        let pack = self.target.map(|target| target.blobs.pack(thread)).transpose();
        let mut reader = Reader::new(pack.map_err(ScanError::Copy)?);
        while let Some((job, _busy)) = self.next() {
            match job {
                Job::Directory { parent, entry, path, seen } => {
                    self.enter(&mut part, &parent, &entry, path, &seen)?;
                }
                Job::Entries { place, names } => {
                    for entry in names {
                        self.visit(&mut part, &mut reader, &place, entry)?;
                    }
                    self.finish(place)?;
                }
            }
        }
        part.kept = reader.finish().map_err(ScanError::Copy)?;
        Ok(part)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; nothing when all is done or something failed.
    fn next(&self) -> Option<(Job, Busy<'a, '_>)> {
        let mut queue = self.queue();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                return Some((job, Busy(self)));
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.queue().jobs.extend(jobs);
        self.more.notify_all();
    }

    /// Makes jobs of a directory's entries.
    fn split(&self, place: &Arc<Place>, mut names: Vec<Vec<u8>>) {
        let mut batches = Vec::new();
        while names.len() > BATCH {
            batches.push(names.split_off(names.len() - BATCH));
        }
        // One even when there is no entry: somebody has to finish the directory.
        batches.push(names);
        place.left.store(batches.len(), Ordering::Release);
        self.push(batches.into_iter().map(|names| Job::Entries { place: place.clone(), names }));
    }

    /// One batch or directory in it is done; the last one completes the copy of it.
    fn finish(&self, mut place: Arc<Place>) -> Result<(), ScanError> {
        while place.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let (Some(copy), Some(target)) = (&place.copy, self.target) {
                if let Some(mode) = place.mode {
                    own(copy, mode, target.owner).map_err(ScanError::Copy)?;
                }
                if let Some(watch) = target.watch {
                    watch.directory(copy, &place.path);
                }
            }
            match &place.parent {
                Some(parent) => place = parent.clone(),
                None => break,
            }
        }
        Ok(())
    }

    fn enter(
        &self,
        part: &mut Part,
        parent: &Arc<Place>,
        entry: &[u8],
        path: RelPath,
        seen: &Meta,
    ) -> Result<(), ScanError> {
        if let Some(known) = self.known
            && self.entered.fetch_add(1, Ordering::Relaxed).is_multiple_of(ENTERED)
        {
            known.listen();
        }
        let opened = parent.here.open_directory(entry).and_then(|here| {
            match here.meta().map(|meta| meta.identity()) {
                Ok(identity) if identity == seen.identity() => Ok(here),
                Ok(_) | Err(_) => Err(Reason::Raced),
            }
        });
        let listed = opened.and_then(|here| Ok((here.names(self.bounds.directory_entries)?, here)));
        let (names, here) = match listed {
            Ok((Some(names), here)) => (names, here),
            Ok((None, _)) => {
                return Err(ScanError::DirectoryEntries(self.bounds.directory_entries));
            }
            Err(reason) => {
                part.leave(path, reason);
                return self.finish(parent.clone());
            }
        };
        let copy = match &parent.copy {
            Some(copy) => {
                let made = copy.create_directory(entry);
                Some(made.map_err(|error| copy_error(copy, self.bounds, error))?)
            }
            None => None,
        };
        part.nodes.push((path.clone(), Node::Directory { mode: seen.mode }));
        let place = Place::new(path, here, copy, Some(seen.mode), Some(parent.clone()));
        self.split(&Arc::new(place), names);
        Ok(())
    }

    /// Takes one entry; a directory that is carried becomes a job.
    fn visit(
        &self,
        part: &mut Part,
        reader: &mut Reader,
        place: &Arc<Place>,
        entry: Vec<u8>,
    ) -> Result<(), ScanError> {
        if self.seen.fetch_add(1, Ordering::Relaxed) >= self.bounds.entries {
            return Err(ScanError::Entries(self.bounds.entries));
        }
        let path = place.path.join(&entry);
        let looked =
            if path.is_nameable() { place.here.look(&entry) } else { Err(Reason::PathTooLong) };
        let meta = match looked {
            Ok(Some(meta)) => meta,
            Ok(None) => {
                part.leave(path, Reason::Raced);
                return Ok(());
            }
            Err(reason) => {
                part.leave(path, reason);
                return Ok(());
            }
        };
        if let Some(node) = self.known.and_then(|known| known.node(&path, &meta)) {
            self.count(meta.size)?;
            part.nodes.push((path, node.clone()));
            return Ok(());
        }
        match self.rules.judge(&path, &meta) {
            Ok(None) => (),
            Ok(Some(reason)) => part.carried.push(NotCarried { path: path.clone(), reason }),
            Err(reason) => {
                part.leave(path, reason);
                return Ok(());
            }
        }
        match meta.kind {
            Kind::Directory if path.depth() >= self.bounds.depth => {
                return Err(ScanError::Depth(self.bounds.depth));
            }
            Kind::Directory => {
                place.left.fetch_add(1, Ordering::AcqRel);
                self.push([Job::Directory { parent: place.clone(), entry, path, seen: meta }]);
            }
            Kind::File => self.file(part, reader, place, &entry, path, &meta)?,
            Kind::Link => self.link(part, place, &entry, path)?,
            Kind::Special => part.leave(path, Reason::Special),
        }
        Ok(())
    }

    fn count(&self, size: u64) -> Result<(), ScanError> {
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        match before.checked_add(size) {
            Some(now) if now <= self.bounds.total_bytes => Ok(()),
            Some(_) | None => Err(ScanError::Bytes(self.bounds.total_bytes)),
        }
    }

    fn file(
        &self,
        part: &mut Part,
        reader: &mut Reader,
        place: &Place,
        entry: &[u8],
        path: RelPath,
        seen: &Meta,
    ) -> Result<(), ScanError> {
        if seen.size > self.bounds.file_bytes {
            part.leave(path, Reason::TooLarge);
            return Ok(());
        }
        let file = match place.here.open_file(entry, seen) {
            Ok(file) => file,
            Err(reason) => {
                part.leave(path, reason);
                return Ok(());
            }
        };
        self.count(seen.size)?;
        let secret = match self.rules.carries_secret(&path) {
            true => Secret::IsNoted,
            false => Secret::StaysOut,
        };
        let copy = place.copy.as_ref().zip(self.target);
        match reader.read(file, seen, secret, copy, entry, self.bounds)? {
            Ok(Taken { node, written, holds_secret }) => {
                if holds_secret {
                    let reason = Reason::SecretContent;
                    part.carried.push(NotCarried { path: path.clone(), reason });
                }
                if seen.mode & !CARRIED_MODE != 0 {
                    part.stripped.push(path.clone());
                }
                let watch = self.target.and_then(|target| target.watch);
                if let (Some(watch), Some(written)) = (watch, written) {
                    watch.file(&path, &written);
                }
                part.nodes.push((path, node));
            }
            Err(reason) => part.leave(path, reason),
        }
        Ok(())
    }

    fn link(
        &self,
        part: &mut Part,
        place: &Place,
        entry: &[u8],
        path: RelPath,
    ) -> Result<(), ScanError> {
        let target = match place.here.read_link(entry) {
            Ok(target) => target,
            Err(reason) => {
                part.leave(path, reason);
                return Ok(());
            }
        };
        if let Some(reason) = Rules::excludes_link(&path, &target) {
            part.leave(path, reason);
            return Ok(());
        }
        if let (Some(copy), Some(whose)) = (&place.copy, self.target) {
            let make = || -> rustix::io::Result<()> {
                rustix::fs::symlinkat(target.as_slice(), copy, entry)?;
                let owner = whose.owner.map(Uid::from_raw);
                let group = whose.owner.map(Gid::from_raw);
                rustix::fs::chownat(copy, entry, owner, group, AtFlags::SYMLINK_NOFOLLOW)
            };
            make().map_err(|error| copy_error(copy, self.bounds, error.into()))?;
        }
        part.nodes.push((path, Node::Link { target }));
        Ok(())
    }
}

impl Place {
    fn new(
        path: RelPath,
        here: Dir,
        copy: Option<Dir>,
        mode: Option<u32>,
        parent: Option<Arc<Self>>,
    ) -> Self {
        Self { path, here, copy, mode, parent, left: AtomicUsize::new(0) }
    }
}
