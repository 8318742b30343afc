//! Ledger entries that audit-svc has not acknowledged yet, in the order in which they were made.

use event::id::{EventId, SessionId};
use sqlx::{Sqlite, Transaction};

use super::row::{Columns, text};
use super::{Error, Store, commit, failed};

/// A sealed event and the stream it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) tenant: String,
    /// The nil id for sessions that are not proven.
    pub(crate) session: SessionId,
    pub(crate) id: EventId,
    pub(crate) sealed: event::Sealed,
    pub(crate) on_behalf_of: String,
    pub(crate) policy_rev: String,
}

/// One row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: i64,
    pub(crate) tenant: String,
    pub(crate) session: String,
    pub(crate) body: Vec<u8>,
    pub(crate) on_behalf_of: String,
    pub(crate) policy_rev: String,
    pub(crate) redactor: String,
    pub(crate) redactions: Vec<Redaction>,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Redaction {
    pub(crate) path: String,
    pub(crate) rule: String,
    pub(crate) n: u32,
}

impl Store {
    pub(crate) async fn enqueue(&self, entry: &Entry) -> Result<i64, Error> {
        let mut tx = self.begin_tx().await?;
        let id = put(&mut tx, entry).await?;
        commit(tx).await?;
        Ok(id)
    }

    /// The oldest rows that may still be taken, at least one if there is any, and no more than fit both limits.
    pub(crate) async fn outbox_batch(
        &self,
        rows: u32,
        bytes: usize,
    ) -> Result<Vec<Waiting>, Error> {
        let found = sqlx::query(
            "SELECT id, tenant, session_id, body, on_behalf_of, policy_rev, redactor, redactions \
             FROM outbox WHERE refused IS NULL ORDER BY id LIMIT ?1",
        )
        .bind(rows)
        .fetch_all(&self.pool)
        .await
        .map_err(failed("read the outbox"))?;
        let mut batch = Vec::new();
        let mut size = 0;
        for row in found.iter().map(Columns) {
            let redactions: &str = row.get("redactions")?;
            let waiting = Waiting {
                id: row.get("id")?,
                tenant: row.get("tenant")?,
                session: row.get("session_id")?,
                body: row.get("body")?,
                on_behalf_of: row.get("on_behalf_of")?,
                policy_rev: row.get("policy_rev")?,
                redactor: row.get("redactor")?,
                redactions: serde_json::from_str(redactions)
                    .map_err(|_| Error::Corrupt { what: "list of redactions" })?,
            };
            size += waiting.body.len();
            if size > bytes && !batch.is_empty() {
                break;
            }
            batch.push(waiting);
        }
        Ok(batch)
    }

    /// Forgets what was acknowledged.
    pub(crate) async fn outbox_ack(&self, acknowledged: &[Waiting]) -> Result<(), Error> {
        let mut tx = self.begin_tx().await?;
        for waiting in acknowledged {
            sqlx::query("DELETE FROM outbox WHERE id = ?1")
                .bind(waiting.id)
                .execute(&mut *tx)
                .await
                .map_err(failed("empty the outbox"))?;
        }
        commit(tx).await
    }

    /// Keeps an entry that audit-svc will never take, with its reason, for a person to look at.
    pub(crate) async fn outbox_refused(&self, id: i64, reason: &str) -> Result<(), Error> {
        sqlx::query("UPDATE outbox SET refused = ?2 WHERE id = ?1")
            .bind(id)
            .bind(reason)
            .execute(&self.pool)
            .await
            .map_err(failed("set an entry aside"))?;
        Ok(())
    }

    /// Whether the entry is still here: waiting, or refused.
    pub(crate) async fn outbox_holds(&self, id: i64) -> Result<bool, Error> {
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM outbox WHERE id = ?1)")
            .bind(id)
            .fetch_one(&self.pool)
            .await
            .map_err(failed("look into the outbox"))
    }
}

/// Part of a transaction.
pub(super) async fn put(
    tx: &mut Transaction<'static, Sqlite>,
    entry: &Entry,
) -> Result<i64, Error> {
    let redactions: Vec<Redaction> = entry
        .sealed
        .findings
        .iter()
        .map(|finding| Redaction {
            path: finding.path.clone(),
            rule: finding.rule.to_owned(),
            n: finding.count,
        })
        .collect();
    let redactions = serde_json::to_string(&redactions)
        .map_err(|_| Error::Corrupt { what: "list of redactions" })?;
    let done = sqlx::query(
        "INSERT INTO outbox (tenant, session_id, event_id, body, on_behalf_of, policy_rev, redactor, redactions) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )
    .bind(&entry.tenant)
    .bind(text(entry.session))
    .bind(text(entry.id))
    .bind(&entry.sealed.bytes)
    .bind(&entry.on_behalf_of)
    .bind(&entry.policy_rev)
    .bind(event::redact::REVISION)
    .bind(redactions)
    .execute(&mut **tx)
    .await
    .map_err(failed("fill the outbox"))?;
    Ok(done.last_insert_rowid())
}
