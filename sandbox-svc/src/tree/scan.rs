//! Walks a tree and says what is in it, copying on the way if asked. Strange entries are listed and left
//! out; only a tree that is too large as a whole fails the walk.

mod file;
mod walk;

use std::io;
use std::num::NonZeroUsize;

use crate::tree::witness::{Known, Watch};
use crate::tree::{Blobs, Dir, Inventory, NotCarried, Reason, RelPath, Rules};

use walk::{Part, Walk};

/// Most threads of one walk. Each may hold two directories open per level, and other walks want to run as well.
const THREADS: usize = 4;

/// What one walk may meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Entries in all.
    pub(crate) entries: u64,
    /// Entries in one directory.
    pub(crate) directory_entries: usize,
    /// Directories within each other.
    pub(crate) depth: usize,
    /// Bytes in one file; a larger one is left out.
    pub(crate) file_bytes: u64,
    /// Bytes in all files.
    pub(crate) total_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error("it is deeper than {0} directories; raise sandbox-svc's --max-workspace-depth")]
    Depth(usize),
    #[error(
        "it has more than {0} entries; raise execution.limits.workspace_inodes in the manifest, and \
         sandbox-svc's --max-workspace-inodes where that is lower"
    )]
    Entries(u64),
    #[error(
        "a directory has more than {0} entries; move some of them, or raise sandbox-svc's \
         --max-directory-entries"
    )]
    DirectoryEntries(usize),
    #[error(
        "its files hold more than {0} bytes; raise execution.limits.workspace_bytes in the manifest, \
         and sandbox-svc's --max-workspace-bytes where that is lower"
    )]
    Bytes(u64),
    #[error("the root of the tree cannot be read")]
    Root,
    #[error(
        "it takes more than {0} bytes in whole pages; raise execution.limits.workspace_bytes in the \
         manifest, and sandbox-svc's --max-workspace-bytes where that is lower"
    )]
    Full(u64),
    #[error("the copy cannot be written")]
    Copy(#[source] io::Error),
    #[error("a thread of the walk did not end as it should")]
    Thread,
}

/// Where the copy goes.
pub(crate) struct Target<'a> {
    /// A fresh private directory.
    pub(crate) tree: &'a Dir,
    /// Also keep each file's bytes under their digest.
    pub(crate) blobs: &'a Blobs,
    /// Whom the copy belongs to, where that is not this process.
    pub(crate) owner: Option<u32>,
    /// Told of every directory of the copy when it is complete, and of every file.
    pub(crate) watch: Option<&'a Watch>,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub(crate) inventory: Inventory,
    pub(crate) not_carried: Vec<NotCarried>,
    /// What is carried because the host's configuration says so, and in spite of what.
    pub(crate) carried: Vec<NotCarried>,
    /// Files whose set-id bits are not carried.
    pub(crate) stripped: Vec<RelPath>,
}

impl Found {
    /// Why the path, or a directory on the way to it, is left out.
    pub(crate) fn left_out(&self, path: &RelPath) -> Option<Reason> {
        let find = |path: RelPath| {
            let at = self.not_carried.binary_search_by(|entry| entry.path.cmp(&path)).ok()?;
            Some(self.not_carried[at].reason)
        };
        path.ancestors().find_map(find)
    }
}

/// Walks a tree, with a copy or without.
pub(crate) fn scan(
    root: &Dir,
    rules: &Rules<'_>,
    bounds: &Bounds,
    target: Option<&Target<'_>>,
) -> Result<Found, ScanError> {
    walk_all(root, rules, bounds, target, None)
}

/// Walks a copy; what is known to be as it was taken is not read again.
pub(crate) fn scan_known(
    root: &Dir,
    rules: &Rules<'_>,
    bounds: &Bounds,
    known: Option<&Known>,
) -> Result<Found, ScanError> {
    walk_all(root, rules, bounds, None, known)
}

/// Blocks, and works on as many threads as there are processors, up to a few.
fn walk_all(
    root: &Dir,
    rules: &Rules<'_>,
    bounds: &Bounds,
    target: Option<&Target<'_>>,
    known: Option<&Known>,
) -> Result<Found, ScanError> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS);
    let walk = Walk::begin(root, rules, bounds, target, known)?;
    let walk = &walk;
    let parts: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|at| scope.spawn(move || walk.work(at))).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| ScanError::Thread)).collect()
    });
    let mut whole = Part::default();
    for part in parts {
        whole.add(part??);
    }
    let Part { nodes, mut not_carried, mut carried, mut stripped, kept } = whole;
    if let Some(target) = target {
        target.blobs.index(kept).map_err(ScanError::Copy)?;
    }
    not_carried.sort_by(|one, other| one.path.cmp(&other.path));
    // Once each: a name may say what the bytes say again.
    carried.sort_by(|one, other| (&one.path, one.reason).cmp(&(&other.path, other.reason)));
    carried.dedup_by(|one, other| one.path == other.path);
    stripped.sort();
    Ok(Found { inventory: nodes.into_iter().collect(), not_carried, carried, stripped })
}

#[cfg(test)]
mod tests;
