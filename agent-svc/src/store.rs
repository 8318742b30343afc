//! Private working state on disk: sessions, records, permissions and the outbox. Each method is one whole
//! transaction; it stores decisions and never makes one.

mod grant;
mod journal;
mod outbox;
mod permission;
mod row;
mod session;

use std::time::Duration;

use event::Digest;
use event::id::{EventId, SessionId};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite, Transaction};
use transport::StateDir;
use uuid::Uuid;

pub(crate) use grant::{Revoking, RunGrant};
pub(crate) use journal::{Append, Change, Journal};
pub(crate) use outbox::Waiting;
pub(crate) use permission::{Claimed, Counted, How, NewReceipt, Resolved, Tally, Untold};
pub(crate) use session::{NewSession, Opened, Session, State};

const BUSY: Duration = Duration::from_secs(5);
const READERS: u32 = 4;
const FULL: i64 = 2;

/// One connection writes, so that no transaction ever waits for another process or is refused as busy.
#[derive(Debug)]
pub(crate) struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
    _dir: StateDir,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the state database failed to {doing}")]
    Database {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("the state database cannot be brought up to date; it may come from a newer version")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the state database does not promise that a commit survives a power loss")]
    NotDurable,
    #[error("the state database holds a {what} that cannot be read")]
    Corrupt { what: &'static str },
    #[error("the session belongs to another owner")]
    Fenced,
    /// The ask was answered or claimed in the meantime; look at the row and decide again.
    #[error("somebody else has answered first")]
    Overtaken,
}

impl Error {
    /// Whether what is stored is itself at fault, so that reading it again is of no use.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt { .. } => true,
            Self::Database { .. }
            | Self::Migrate(_)
            | Self::NotDurable
            | Self::Fenced
            | Self::Overtaken => false,
        }
    }
}

fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| Error::Database { doing, source }
}

/// Who writes: a write that names an owner who is not the present one changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    pub(crate) node: Node,
    pub(crate) epoch: u64,
}

/// One start of one process; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node(pub(crate) Uuid);

impl Node {
    pub(crate) fn mint() -> Self {
        Self(Uuid::now_v7())
    }
}

/// A catalogue event that is ready for the outbox.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: EventId,
    pub(crate) sealed: event::Sealed,
}

impl Entry {
    fn hash(&self) -> Digest {
        Digest::of(&self.sealed.bytes)
    }
}

impl Store {
    pub(crate) async fn open(dir: StateDir) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(dir.file("agent.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await
            .map_err(failed("open"))?;
        sqlx::migrate!().run(&writer).await.map_err(Error::Migrate)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(options.create_if_missing(false).pragma("query_only", "ON"))
            .await
            .map_err(failed("open for reading"))?;
        let store = Self { writer, readers, _dir: dir };
        store.assert_durable().await?;
        Ok(store)
    }

    /// The defaults of these two are compile options of the library, so they are read back.
    async fn assert_durable(&self) -> Result<(), Error> {
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&self.writer)
            .await
            .map_err(failed("tell how it synchronises"))?;
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&self.writer)
            .await
            .map_err(failed("tell its journal mode"))?;
        if synchronous == FULL && journal == "wal" { Ok(()) } else { Err(Error::NotDurable) }
    }

    /// Locks for writing at once: a transaction that reads first and writes later could be refused as stale.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed("begin"))
    }
}

async fn commit(tx: Transaction<'static, Sqlite>) -> Result<(), Error> {
    tx.commit().await.map_err(failed("commit"))
}

#[cfg(test)]
mod tests;
