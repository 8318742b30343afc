//! The ledger on disk: one connection writes, whole transactions only; nothing is ever changed. It refuses to open what does
//! not verify.

mod append;
mod read;
mod verify;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use event::id::SessionId;
use ledger::Frontier;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _};
use tracing::{info, warn};
use transport::{Chain, StateDir};

pub(crate) use append::{Answer, Outcome};
pub(crate) use read::{Filter, Reader, Stored};

use crate::Error;
use crate::batch::{Stream, Tail, Tree};
use crate::config::Origin;
use crate::error::{Unsound, failed};

const BUSY: Duration = Duration::from_secs(2);
const READERS: u32 = 4;
/// `synchronous` is FULL.
const FULL: i64 = 2;

#[derive(Debug)]
pub(crate) struct Store {
    options: SqliteConnectOptions,
    writer: SqliteConnection,
    readers: SqlitePool,
    origin: String,
    tree: Tree,
    /// Ends of streams that were written lately.
    tails: HashMap<Stream, Tail>,
    tenants: HashMap<SessionId, String>,
    /// What the last transaction that failed would have made.
    attempt: Option<Tree>,
    _dir: StateDir,
}

impl Store {
    pub(crate) async fn open(dir: &Path, origin: &Origin) -> Result<Self, Error> {
        let dir = StateDir::own(dir)?;
        let options = SqliteConnectOptions::new()
            .filename(dir.file("ledger.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY)
            .disable_statement_logging();
        let mut writer = connect(&options).await?;
        sqlx::migrate!("migrations/sqlite").run(&mut writer).await.map_err(Error::Migrate)?;
        begin(&mut writer, origin).await?;
        let started = Instant::now();
        let tree = verify::verify(&mut writer, origin).await?;
        info!(entries = tree.frontier.size(), elapsed = ?started.elapsed(), "the ledger verifies");
        let reading = options.clone().create_if_missing(false).pragma("query_only", "ON");
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(reading)
            .await
            .map_err(failed("open for reading"))?;
        Ok(Self {
            options,
            writer,
            readers,
            origin: origin.as_str().to_owned(),
            tree,
            tails: HashMap::new(),
            tenants: HashMap::new(),
            attempt: None,
            _dir: dir,
        })
    }

    pub(crate) fn readers(&self) -> SqlitePool {
        self.readers.clone()
    }

    pub(crate) fn head(&self) -> ledger::Head {
        head_of(&self.tree.frontier)
    }

    /// Leaves one file behind, without a journal beside it. What was acknowledged is safe also when this fails.
    pub(crate) async fn close(self) {
        self.readers.close().await;
        if let Err(error) = self.writer.close().await {
            warn!(error = %Chain(&error), "the ledger's database was not closed in order");
        }
    }
}

pub(crate) fn head_of(frontier: &Frontier) -> ledger::Head {
    ledger::Head { size: frontier.size(), root: frontier.root() }
}

/// A connection that promises what an acknowledgement needs; SQLite is asked whether it does.
async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, Error> {
    let mut connection = options.connect().await.map_err(failed("open"))?;
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&mut connection)
        .await
        .map_err(failed("say how it syncs"))?;
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&mut connection)
        .await
        .map_err(failed("say how it keeps its journal"))?;
    if synchronous < FULL || journal != "wal" {
        return Err(Error::NotDurable);
    }
    Ok(connection)
}

/// The empty head of a new ledger; an old one keeps its own.
async fn begin(writer: &mut SqliteConnection, origin: &Origin) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO log_head (id, origin, size, frontier, last_recorded_us) VALUES (1, ?1, 0, x'', 0)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(origin.as_str())
    .execute(writer)
    .await
    .map_err(failed("write its first head"))?;
    Ok(())
}

/// The head as it is stored.
#[derive(Debug, PartialEq, Eq)]
struct StoredHead {
    origin: String,
    frontier: Frontier,
    recorded_us: i64,
}

async fn stored_head(connection: &mut SqliteConnection) -> Result<StoredHead, Error> {
    let (origin, size, frontier, recorded_us): (String, i64, Vec<u8>, i64) = sqlx::query_as(
        "SELECT origin, size, frontier, last_recorded_us FROM log_head WHERE id = 1",
    )
    .fetch_one(connection)
    .await
    .map_err(failed("read its head"))?;
    let frontier = Frontier::from_bytes(size.cast_unsigned(), &frontier)
        .map_err(|_| Error::Integrity(Unsound::Head))?;
    Ok(StoredHead { origin, frontier, recorded_us })
}
