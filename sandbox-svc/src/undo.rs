//! What an import replaced and wrote, kept outside of the workspace for a while so that a person can have it taken
//! back. It decides how long and how much is kept, never whether an import or its taking back happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use event::Digest;
use event::id::CallId;

use crate::error::Error;
use crate::patch::Entry;
use crate::session::now_ms;
use crate::store::{Store, UndoSize};
use crate::tree::{Blobs, Node};

const DIRECTORY: &str = "undo";

/// How long and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) age: Duration,
    pub(crate) bytes: u64,
}

/// Where the kept bytes are.
#[derive(Debug, Clone)]
pub(crate) struct UndoRecords {
    dir: Arc<Path>,
    pub(crate) retention: Retention,
}

/// Why an import can not be taken back later.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    #[error("it is larger than what is kept for taking imports back")]
    TooLarge,
    #[error("what it replaces cannot be kept")]
    Failed(#[source] io::Error),
}

impl UndoRecords {
    pub(crate) fn open(state_dir: &Path, retention: Retention) -> io::Result<Self> {
        let dir = state_dir.join(DIRECTORY);
        match fs::create_dir(&dir) {
            Ok(()) => (),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
        Ok(Self { dir: dir.into(), retention })
    }

    /// Until when a record of that moment is kept at most.
    pub(crate) fn until_ms(&self, made_ms: i64) -> i64 {
        made_ms.saturating_add(millis(self.retention.age))
    }

    /// Where the bytes of that import are or would be.
    pub(crate) fn place(&self, call: CallId) -> PathBuf {
        self.dir.join(call.as_uuid().simple().to_string())
    }

    /// Keeps both sides of every entry, durably. Blocks.
    pub(crate) fn fill(
        &self,
        call: CallId,
        entries: &[Entry],
        from: &Blobs,
    ) -> Result<u64, NotKept> {
        let files = files(entries);
        let bytes = files.values().try_fold(0_u64, |sum, size| sum.checked_add(*size));
        let bytes = bytes.filter(|bytes| *bytes <= self.retention.bytes);
        let bytes = bytes.ok_or(NotKept::TooLarge)?;
        match self.copy(call, &files, from) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                // What is left of it goes with the next sweep at the latest.
                self.remove(call).map_err(NotKept::Failed)?;
                Err(NotKept::Failed(error))
            }
        }
    }

    fn copy(&self, call: CallId, files: &BTreeMap<Digest, u64>, from: &Blobs) -> io::Result<()> {
        let place = self.place(call);
        self.remove(call)?;
        fs::create_dir(&place)?;
        let kept = Blobs::open(&place)?;
        for (digest, size) in files {
            let file = from.open_bytes(*digest, *size).map_err(io::Error::other)?;
            if kept.put_file(file)? != *digest {
                return Err(io::Error::other("kept bytes have another digest"));
            }
        }
        kept.sync()?;
        fs::File::open(&self.dir)?.sync_all()
    }

    /// Blocks.
    pub(crate) fn remove(&self, call: CallId) -> io::Result<()> {
        match fs::remove_dir_all(self.place(call)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes what is too old, then the oldest until `room` more bytes fit, then bytes that belong to no row.
    pub(crate) async fn sweep(&self, store: &Store, room: u64) -> Result<(), Error> {
        let rows = store.undo_sizes().await?;
        let over = overdue(&rows, self.retention, room, now_ms());
        for call in &over {
            // The row first: bytes without a row are nobody's.
            store.forget_undo(*call).await?;
        }
        self.remove_strangers(store).await
    }

    /// Looked at before the rows are: what is being filled belongs to a call that has not ended.
    async fn remove_strangers(&self, store: &Store) -> Result<(), Error> {
        let failed = || Error::file("old undo records cannot be removed below", &*self.dir);
        let dir = self.dir.clone();
        let listed = tokio::task::spawn_blocking(move || {
            fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()
        });
        let mut strangers = listed.await?.map_err(failed())?;
        let rows = store.undo_sizes().await?;
        let unfinished = store.unfinished().await?;
        let known = rows.iter().map(|row| row.call);
        let known: BTreeSet<_> = known
            .chain(unfinished.iter().map(|row| row.plan.call))
            .map(|it| self.place(it))
            .collect();
        strangers.retain(|path| !known.contains(path));
        let removed =
            tokio::task::spawn_blocking(move || strangers.iter().try_for_each(fs::remove_dir_all));
        removed.await?.map_err(failed())
    }
}

/// Every file on either side once.
fn files(entries: &[Entry]) -> BTreeMap<Digest, u64> {
    let sides = entries.iter().flat_map(|entry| [entry.change.before(), entry.change.after()]);
    let file = |node: &Node| match node {
        Node::File { size, digest, .. } => Some((*digest, *size)),
        Node::Directory { .. } | Node::Link { .. } => None,
    };
    sides.flatten().filter_map(file).collect()
}

/// Records of imports that are not over stay, however old.
fn overdue(rows: &[UndoSize], retention: Retention, room: u64, now_ms: i64) -> Vec<CallId> {
    let oldest = now_ms.saturating_sub(millis(retention.age));
    let mut left: u64 = rows.iter().map(|row| row.bytes).fold(room, u64::saturating_add);
    let mut over = Vec::new();
    for row in rows.iter().filter(|row| row.kept) {
        if row.made_ms < oldest || left > retention.bytes {
            left = left.saturating_sub(row.bytes);
            over.push(row.call);
        }
    }
    over
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use event::id::CallId;

    use super::{Retention, overdue};
    use crate::store::UndoSize;

    #[test]
    fn the_old_go_and_then_the_oldest_until_the_rest_fits() {
        let row = |bytes, made_ms, kept| UndoSize { call: CallId::new(), bytes, made_ms, kept };
        let rows = [row(10, 50, false), row(10, 90, true), row(30, 200, true), row(40, 300, true)];
        let retention = |bytes| Retention { age: Duration::from_millis(900), bytes };
        let calls = |places: &[usize]| places.iter().map(|at| rows[*at].call).collect::<Vec<_>>();
        assert_eq!(overdue(&rows, retention(1000), 0, 900), []);
        assert_eq!(overdue(&rows, retention(1000), 0, 1000), calls(&[1]));
        assert_eq!(overdue(&rows, retention(70), 0, 900), calls(&[1, 2]));
        assert_eq!(overdue(&rows, retention(90), 40, 900), calls(&[1, 2]));
        assert_eq!(overdue(&rows, retention(50), 40, 900), calls(&[1, 2, 3]));
    }
}
