//! Allows for the run: listed, counted as they are used, and taken back for good. Whether one covers a call is not decided
//! here.

use event::id::{PermissionId, ReceiptId, RunId, SessionId};
use receipt::{Executor, Plan};
use sqlx::sqlite::SqliteRow;

use super::row::{Columns, text};
use super::session::owner;
use super::{Error, Owner, Store, commit, failed};
use crate::clock::Millis;

/// More of them are not listed.
const MOST: i64 = 1000;

/// One person's allow that stands for the rest of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunGrant {
    pub(crate) receipt: ReceiptId,
    pub(crate) run: RunId,
    pub(crate) action: String,
    pub(crate) subject: Option<String>,
    pub(crate) by: String,
    pub(crate) at: Millis,
    pub(crate) expires_at: Millis,
    pub(crate) uses: u64,
}

/// A receipt that its executor must learn of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Revoking {
    pub(crate) owner: Owner,
    pub(crate) run: RunId,
    pub(crate) receipt: ReceiptId,
    pub(crate) executor: Executor,
}

fn plan(row: &Columns<'_>) -> Result<Plan, Error> {
    Plan::parse(row.get("plan")?).map_err(|_| Error::Corrupt { what: "plan" })
}

fn run_grant(row: &SqliteRow) -> Result<RunGrant, Error> {
    let row = Columns(row);
    let Plan { action, subject, .. } = plan(&row)?;
    Ok(RunGrant {
        receipt: row.id("receipt_id", ReceiptId::parse)?,
        run: row.id("run_id", RunId::parse)?,
        action,
        subject: subject.map(|subject| subject.to_string()),
        by: row.get("subject")?,
        at: Millis(row.get("kept_at")?),
        expires_at: Millis(row.get("expires_at")?),
        uses: row.number("uses")?,
    })
}

fn revoking(row: &SqliteRow) -> Result<Revoking, Error> {
    let row = Columns(row);
    Ok(Revoking {
        owner: owner(&row)?,
        run: row.id("run_id", RunId::parse)?,
        receipt: row.id("receipt_id", ReceiptId::parse)?,
        executor: plan(&row)?.executor,
    })
}

impl Store {
    /// What stands in the session's run, in the order it was given: of asks that people settled for the run, so no allow that
    /// waits for others or was cut down to once by them. It dies with the run.
    pub(crate) async fn grants(
        &self,
        session: SessionId,
        now: Millis,
    ) -> Result<Vec<RunGrant>, Error> {
        let rows = sqlx::query(
            "SELECT r.receipt_id, r.subject, r.kept_at, r.expires_at, r.uses, p.run_id, p.plan FROM receipt r \
             JOIN permission p USING (permission_id) JOIN session s ON s.session_id = r.session_id \
             WHERE r.session_id = ?1 AND r.scope = 'run' AND r.standing = 'kept' AND r.expires_at > ?2 \
             AND p.standing = 'allowed' AND p.scope = 'run' AND s.outcome IS NULL \
             AND NOT EXISTS (SELECT 1 FROM run WHERE run.run_id = p.run_id AND run.over = 1) ORDER BY r.rowid LIMIT ?3",
        )
        .bind(text(session))
        .bind(now.0)
        .bind(MOST)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list standing allows"))?;
        rows.iter().map(run_grant).collect()
    }

    /// From the commit on it covers nothing here. Nothing, when it stood no more; again, while its executor does not know.
    pub(crate) async fn revoke_grant(
        &self,
        session: SessionId,
        receipt: ReceiptId,
        by: &str,
    ) -> Result<Option<Revoking>, Error> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "UPDATE receipt SET standing = 'revoking', revoked_by = ?3 WHERE receipt_id = ?1 AND session_id = ?2 \
             AND scope = 'run' AND standing = 'kept' AND EXISTS (SELECT 1 FROM permission p \
             WHERE p.permission_id = receipt.permission_id AND p.standing = 'allowed' AND p.scope = 'run')",
        )
        .bind(text(receipt))
        .bind(text(session))
        .bind(by)
        .execute(&mut *tx)
        .await
        .map_err(failed("revoke a standing allow"))?;
        let row = sqlx::query(
            "SELECT s.session_id, s.owner_node, s.owner_epoch, p.run_id, p.plan, r.receipt_id FROM receipt r \
             JOIN permission p USING (permission_id) JOIN session s ON s.session_id = r.session_id \
             WHERE r.receipt_id = ?1 AND r.session_id = ?2 AND r.standing = 'revoking' AND s.outcome IS NULL",
        )
        .bind(text(receipt))
        .bind(text(session))
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed("read a standing allow"))?;
        let found = row.as_ref().map(revoking).transpose()?;
        commit(tx).await?;
        Ok(found)
    }

    /// What executors do not know yet. A run that is over admits nothing, so nobody need be told of it.
    pub(crate) async fn revoking(&self) -> Result<Vec<Revoking>, Error> {
        let rows = sqlx::query(
            "SELECT s.session_id, s.owner_node, s.owner_epoch, p.run_id, p.plan, r.receipt_id FROM receipt r \
             JOIN permission p USING (permission_id) JOIN session s ON s.session_id = r.session_id \
             WHERE r.standing = 'revoking' AND s.outcome IS NULL ORDER BY r.rowid",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list revocations"))?;
        rows.iter().map(revoking).collect()
    }

    /// Its executor knows.
    pub(crate) async fn revoked(&self, receipt: ReceiptId) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "UPDATE receipt SET standing = 'revoked' WHERE receipt_id = ?1 AND standing = 'revoking'",
        )
        .bind(text(receipt))
        .execute(&mut *tx)
        .await
        .map_err(failed("record a revocation"))?;
        commit(tx).await
    }

    /// The asks of a run of whose receipts one was taken back.
    pub(crate) async fn broken_grants(&self, run: RunId) -> Result<Vec<PermissionId>, Error> {
        let rows = sqlx::query(
            "SELECT DISTINCT r.permission_id FROM receipt r JOIN permission p USING (permission_id) \
             WHERE p.run_id = ?1 AND r.standing IN ('revoking', 'revoked')",
        )
        .bind(text(run))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read standing allows"))?;
        rows.iter().map(Columns).map(|row| row.id("permission_id", PermissionId::parse)).collect()
    }
}
