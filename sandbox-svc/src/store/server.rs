//! Containers of tool servers: one row each, from before the container is made until it is proven to be gone. And that
//! a call of one has begun.

use event::id::{CallId, RunId, SessionId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::outbox::append;
use super::{Record, Result, Store, StoreError, id};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerRow {
    pub(crate) lease: Uuid,
    pub(crate) session: SessionId,
    pub(crate) tenant: String,
    pub(crate) policy_rev: String,
    /// Whose copy it sees: its own run's, or that of the run that the child belongs to.
    pub(crate) run: RunId,
    /// The call that started it.
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) container: Option<String>,
    pub(crate) cgroups: String,
    /// When the ledger was told that it started.
    pub(crate) started_ms: Option<i64>,
}

impl Store {
    /// Before its container is made.
    pub(crate) async fn put_server(&self, server: &ServerRow) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO server (lease, session, tenant, policy_rev, run, call, attempt) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(server.lease.to_string())
        .bind(server.session.to_string())
        .bind(&server.tenant)
        .bind(&server.policy_rev)
        .bind(server.run.to_string())
        .bind(server.call.to_string())
        .bind(server.attempt)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn note_server_created(&self, lease: Uuid, container: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("UPDATE server SET container = ?2 WHERE lease = ?1")
            .bind(lease.to_string())
            .bind(container)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    /// Before it gets its frame, together with what the ledger is told.
    pub(crate) async fn note_server_started(
        &self,
        lease: Uuid,
        cgroups: &str,
        at_ms: i64,
        record: &Record,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("UPDATE server SET cgroups = ?2, started_ms = ?3 WHERE lease = ?1")
            .bind(lease.to_string())
            .bind(cgroups)
            .bind(at_ms)
            .execute(&mut *tx)
            .await?;
        append(&mut tx, record).await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Once it is proven to be gone; the ledger is told of the end of what it was told the start of.
    pub(crate) async fn remove_server(&self, lease: Uuid, record: Option<&Record>) -> Result<()> {
        let mut tx = self.begin().await?;
        let removed = sqlx::query("DELETE FROM server WHERE lease = ?1")
            .bind(lease.to_string())
            .execute(&mut *tx)
            .await?
            .rows_affected();
        // Whoever came first has told it.
        if let (Some(record), 1) = (record, removed) {
            append(&mut tx, record).await?;
        }
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Before a server is told of the call: whatever becomes of this process, the call is not made twice.
    pub(crate) async fn note_under_way(&self, call: CallId, at_ms: i64) -> Result<()> {
        let mut tx = self.begin().await?;
        let noted = sqlx::query(
            "UPDATE execution SET state = 'started', started_ms = ?2 \
             WHERE call = ?1 AND state = 'accepted'",
        )
        .bind(call.to_string())
        .bind(at_ms)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        if noted == 1 { Ok(()) } else { Err(StoreError::Malformed("state of a call")) }
    }

    /// Whether the run's newest plan is of this tool and was not admitted: somebody may be asked about it still.
    pub(crate) async fn waits_for(&self, run: RunId, tool: &str) -> Result<bool> {
        let newest = sqlx::query(
            "SELECT tool, EXISTS (SELECT 1 FROM execution WHERE execution.call = plan.call) \
             FROM plan WHERE run = ?1 ORDER BY call DESC LIMIT 1",
        )
        .bind(run.to_string())
        .fetch_optional(&self.readers)
        .await?;
        let Some(row) = newest else { return Ok(false) };
        let (of, admitted): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        Ok(of == tool && !admitted)
    }

    pub(crate) async fn server(&self, lease: Uuid) -> Result<Option<ServerRow>> {
        let row = sqlx::query("SELECT * FROM server WHERE lease = ?1")
            .bind(lease.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(parse).transpose()
    }

    pub(crate) async fn servers(&self) -> Result<Vec<ServerRow>> {
        let rows =
            sqlx::query("SELECT * FROM server ORDER BY lease").fetch_all(&self.readers).await?;
        rows.iter().map(parse).collect()
    }
}

fn parse(row: &SqliteRow) -> Result<ServerRow> {
    let lease: String = row.try_get("lease")?;
    let attempt: i64 = row.try_get("attempt")?;
    Ok(ServerRow {
        lease: Uuid::parse_str(&lease).map_err(|_| StoreError::Malformed("lease"))?,
        session: id(&row.try_get::<String, _>("session")?)?,
        tenant: row.try_get("tenant")?,
        policy_rev: row.try_get("policy_rev")?,
        run: id(&row.try_get::<String, _>("run")?)?,
        call: id(&row.try_get::<String, _>("call")?)?,
        attempt: u32::try_from(attempt).map_err(|_| StoreError::Malformed("attempt"))?,
        container: row.try_get("container")?,
        cgroups: row.try_get("cgroups")?,
        started_ms: row.try_get("started_ms")?,
    })
}
