//! The service's own database: fences, grants, environments, plans, outcomes, the import journal and the
//! outbox. Each method is one whole transaction; nobody else writes it.

mod child;
mod edit;
mod environment;
mod execution;
mod outbox;
mod receipt;
mod server;
mod session;
mod undo;

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Row as _, Sqlite, Transaction};
use uuid::Uuid;

pub(crate) use child::ChildRow;
pub(crate) use edit::{Edited, Fate, Kept, Mutation, Numbered};
pub(crate) use environment::{Begun, EnvironmentRow, EnvironmentState, NewEnvironment, Taken};
pub(crate) use execution::{
    Accepted, Closing, ExecutionRow, ExecutionState, ImportRow, NewExecution, PlanRow, Refused,
    Started,
};
pub(crate) use outbox::{Outgoing, Record, Waiting};
pub(crate) use server::ServerRow;
pub(crate) use session::{Fenced, NewSession, SessionRow};
pub(crate) use undo::{UndoRow, UndoSize};

const FILE: &str = "sandbox.sqlite";
const BUSY: Duration = Duration::from_secs(10);
const READERS: u32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("a statement failed")]
    Sql(#[from] sqlx::Error),
    #[error("the schema cannot be brought up to date")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("the database does not keep what it commits (synchronous is {0})")]
    NotDurable(i64),
    #[error("a stored {0} is malformed")]
    Malformed(&'static str),
}

type Result<T> = std::result::Result<T, StoreError>;

/// One writer at a time, so that no transaction waits for another while it holds a lock.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
    outbox: std::sync::Arc<tokio::sync::Notify>,
}

impl Store {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(directory.join(FILE))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let writer =
            SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let readers =
            SqlitePoolOptions::new().max_connections(READERS).connect_with(options).await?;
        sqlx::migrate!().run(&writer).await?;
        let synchronous: i64 =
            sqlx::query("PRAGMA synchronous").fetch_one(&writer).await?.try_get(0)?;
        if synchronous < 2 {
            return Err(StoreError::NotDurable(synchronous));
        }
        Ok(Self { writer, readers, outbox: std::sync::Arc::default() })
    }

    /// The name of this installation's containers: made once per state directory.
    pub(crate) async fn instance(&self) -> Result<Uuid> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO meta (name, value) VALUES ('instance', ?1) ON CONFLICT DO NOTHING",
        )
        .bind(Uuid::new_v4().to_string())
        .execute(&mut *tx)
        .await?;
        let text: String = sqlx::query("SELECT value FROM meta WHERE name = 'instance'")
            .fetch_one(&mut *tx)
            .await?
            .try_get(0)?;
        tx.commit().await?;
        Uuid::parse_str(&text).map_err(|_| StoreError::Malformed("instance"))
    }

    async fn begin(&self) -> Result<Transaction<'static, Sqlite>> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }
}

/// Numbers in SQLite are signed; none of ours is.
fn to_i64(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| StoreError::Malformed("number"))
}

fn to_u64(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| StoreError::Malformed("number"))
}

fn digest(bytes: &[u8]) -> Result<event::Digest> {
    event::Digest::from_bytes(bytes).map_err(|_| StoreError::Malformed("digest"))
}

/// An id as this service wrote it.
fn id<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| StoreError::Malformed("id"))
}

#[cfg(test)]
mod tests;
