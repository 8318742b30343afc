//! The names of each image, read once from the engine's export and kept on disk by the image's id. What cannot be
//! read is an error every time; nothing is guessed.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use event::Digest;
use futures::StreamExt as _;
use tokio::sync::OnceCell;
use tracing::{info, warn};
use transport::{CancellationToken, Chain, TaskTracker};

use super::export::{BadExport, Export};
use super::index::Index;
use crate::engine::{Docker, EngineError};

const DIRECTORY: &str = "images";
/// Kept on disk, and at most this many at once in memory.
const KEPT: usize = 16;
const FILE_BYTES: u64 = 256 << 20;
const EXPORT_LIMIT: Duration = Duration::from_secs(600);

/// Why it is not known what an image holds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("the image cannot be exported")]
    Engine(#[from] EngineError),
    #[error("the image cannot be read")]
    Export(#[from] BadExport),
    #[error("the service is stopping")]
    Stopping,
    #[error("the task that reads the image failed")]
    Task(#[from] tokio::task::JoinError),
}

type Cell = Arc<OnceCell<Arc<Index>>>;

#[derive(Debug, Clone)]
pub(crate) struct Images {
    directory: Arc<PathBuf>,
    tracker: TaskTracker,
    stopping: CancellationToken,
    held: Arc<Mutex<HashMap<Digest, Cell>>>,
}

impl Images {
    pub(crate) fn open(
        state_dir: &Path,
        tracker: TaskTracker,
        stopping: CancellationToken,
    ) -> io::Result<Self> {
        let directory = state_dir.join(DIRECTORY);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => (),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
        Ok(Self { directory: Arc::new(directory), tracker, stopping, held: Arc::default() })
    }

    /// The image's names. Reading goes on when the caller leaves, and several callers wait for one reading.
    pub(crate) async fn index(&self, engine: &Docker, image: Digest) -> Result<Arc<Index>, Unread> {
        let cell = self.cell(image);
        if let Some(index) = cell.get() {
            return Ok(index.clone());
        }
        let (images, engine) = (self.clone(), engine.clone());
        let read = self.tracker.spawn(async move {
            let read = cell.get_or_try_init(|| images.read(&engine, image)).await;
            read.cloned()
        });
        read.await?
    }

    fn cell(&self, image: Digest) -> Cell {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= KEPT && !held.contains_key(&image) {
            held.clear();
        }
        held.entry(image).or_default().clone()
    }

    async fn read(&self, engine: &Docker, image: Digest) -> Result<Arc<Index>, Unread> {
        let path = self.directory.join(format!("{}.json", hex::encode(image.as_bytes())));
        let from = path.clone();
        if let Some(index) = tokio::task::spawn_blocking(move || load(&from)).await? {
            return Ok(Arc::new(index));
        }
        let exported = async {
            let mut export = Export::default();
            let mut pieces = engine.export_image(image);
            while let Some(piece) = pieces.next().await {
                export.feed(&piece?)?;
            }
            Ok::<_, Unread>(export.finish()?)
        };
        let silent = EngineError::Silent { call: "image export", limit: EXPORT_LIMIT };
        let index = tokio::select! {
            exported = tokio::time::timeout(EXPORT_LIMIT, exported) => exported.map_err(|_| silent)??,
            () = self.stopping.cancelled() => return Err(Unread::Stopping),
        };
        info!(%image, "the names of an image are read");
        let index = Arc::new(index);
        let (kept, directory) = (index.clone(), self.directory.clone());
        let written = tokio::task::spawn_blocking(move || {
            forget_oldest(&directory)?;
            store(&path, &kept)
        });
        // It is read again at the next start then.
        if let Err(error) = written.await? {
            warn!(%image, error = %Chain(&error), "the names of an image cannot be kept on disk");
        }
        Ok(index)
    }
}

/// Nothing where there is none, or none that can be understood.
fn load(path: &Path) -> Option<Index> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(FILE_BYTES).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn store(path: &Path, index: &Index) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(&serde_json::to_vec(index)?)?;
    file.sync_all()?;
    fs::rename(part, path)
}

/// Makes room for one more.
fn forget_oldest(directory: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        kept.push((entry.metadata()?.modified()?, entry.path()));
    }
    kept.sort();
    let over = (kept.len() + 1).saturating_sub(KEPT);
    kept.into_iter().take(over).try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{KEPT, forget_oldest, load, store};
    use crate::program::Index;

    #[test]
    fn what_cannot_be_understood_on_disk_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert_eq!(load(&path), None);
        for text in ["", "{", "[]", r#"{"nodes":{},"more":1}"#, r#"{"nodes":{"a":"x"}}"#] {
            fs::write(&path, text).unwrap();
            assert_eq!(load(&path), None, "{text}");
        }
        store(&path, &Index::default()).unwrap();
        assert_eq!(load(&path), Some(Index::default()));
    }

    #[test]
    fn only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..KEPT + 3 {
            fs::write(dir.path().join(at.to_string()), "").unwrap();
        }
        forget_oldest(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), KEPT - 1);
    }
}
