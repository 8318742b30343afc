//! Private working state on disk: who owns a session, what each call came to, and the ledger entries that are not
//! acknowledged. Each method is one whole transaction; it stores decisions and never makes one.

mod completion;
mod outbox;
mod row;
mod session;

use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite, Transaction};
use transport::StateDir;

pub(crate) use completion::{Begun, Completion, Start};
pub(crate) use outbox::{Entry, Waiting};
pub(crate) use session::{Fenced, NoSession};

const BUSY: Duration = Duration::from_secs(5);
const FULL: i64 = 2;

/// One connection, so that no transaction is ever refused as busy.
#[derive(Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
    _dir: StateDir,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the state database failed to {doing}")]
    Database {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("the state database cannot be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the state database does not promise that a commit survives a power loss")]
    NotDurable,
    #[error("the state database holds a {what} that cannot be read")]
    Corrupt { what: &'static str },
}

fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| Error::Database { doing, source }
}

impl Store {
    pub(crate) async fn open(dir: StateDir) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(dir.file("model.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options)
            .await
            .map_err(failed("open"))?;
        sqlx::migrate!().run(&pool).await.map_err(Error::Migrate)?;
        let store = Self { pool, _dir: dir };
        store.assert_durable().await?;
        Ok(store)
    }

    /// The defaults of these two are compile options of the library, so they are read back.
    async fn assert_durable(&self) -> Result<(), Error> {
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&self.pool)
            .await
            .map_err(failed("tell how it synchronises"))?;
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&self.pool)
            .await
            .map_err(failed("tell its journal mode"))?;
        if synchronous == FULL && journal == "wal" { Ok(()) } else { Err(Error::NotDurable) }
    }

    /// Locks for writing at once: a transaction that reads first and writes later could be refused as stale.
    async fn begin_tx(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed("begin"))
    }
}

async fn commit(tx: Transaction<'static, Sqlite>) -> Result<(), Error> {
    tx.commit().await.map_err(failed("commit"))
}

#[cfg(test)]
mod tests;
