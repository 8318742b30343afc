//! This service's streams: numbered without gaps in the transaction that makes the fact, kept until
//! audit-svc has acknowledged them.

use event::id::SessionId;
use event::redact::Finding;
use sqlx::{Row as _, Sqlite, Transaction};

use super::{Result, Store, StoreError, to_i64, to_u64};

/// An event and the stream it goes to; the nil session holds what is about sessions that are not proven.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) session: SessionId,
    pub(crate) tenant: String,
    /// Digest of the manifest in force; empty where none is known.
    pub(crate) policy_rev: String,
    pub(crate) sealed: event::Sealed,
}

/// A place in a stream that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
}

/// An entry on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
    pub(crate) tenant: String,
    pub(crate) policy_rev: String,
    pub(crate) event: Vec<u8>,
    pub(crate) redactions: Vec<(String, String, u32)>,
}

impl Store {
    /// One fact of its own, such as a refusal.
    pub(crate) async fn record(&self, record: &Record) -> Result<Waiting> {
        let mut tx = self.begin().await?;
        let seq = append(&mut tx, record).await?;
        tx.commit().await?;
        self.outbox.notify_one();
        Ok(Waiting { session: record.session, seq })
    }

    /// Resolves when something may have been added since the last call.
    pub(crate) async fn added(&self) {
        self.outbox.notified().await;
    }

    pub(super) fn wake_outbox(&self) {
        self.outbox.notify_one();
    }

    /// Streams with something to send, the oldest first.
    pub(crate) async fn streams_to_send(&self) -> Result<Vec<SessionId>> {
        let rows = sqlx::query("SELECT session FROM outbox GROUP BY session ORDER BY min(id)")
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                SessionId::parse(&row.try_get::<String, _>(0)?)
                    .map_err(|_| StoreError::Malformed("session"))
            })
            .collect()
    }

    /// The head of one stream.
    pub(crate) async fn to_send(&self, session: SessionId, limit: u32) -> Result<Vec<Outgoing>> {
        let rows = sqlx::query(
            "SELECT seq, tenant, policy_rev, event, redactions FROM outbox WHERE session = ?1 \
             ORDER BY seq LIMIT ?2",
        )
        .bind(session.to_string())
        .bind(limit)
        .fetch_all(&self.readers)
        .await?;
        rows.iter()
            .map(|row| {
                let redactions: String = row.try_get(4)?;
                Ok(Outgoing {
                    session,
                    seq: to_u64(row.try_get(0)?)?,
                    tenant: row.try_get(1)?,
                    policy_rev: row.try_get(2)?,
                    event: row.try_get(3)?,
                    redactions: serde_json::from_str(&redactions)
                        .map_err(|_| StoreError::Malformed("list of redactions"))?,
                })
            })
            .collect()
    }

    /// Forgets what audit-svc keeps now.
    pub(crate) async fn acknowledged(&self, session: SessionId, through: u64) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("DELETE FROM outbox WHERE session = ?1 AND seq <= ?2")
            .bind(session.to_string())
            .bind(to_i64(through)?)
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn is_acknowledged(&self, place: Waiting) -> Result<bool> {
        let open = sqlx::query("SELECT 1 FROM outbox WHERE session = ?1 AND seq <= ?2 LIMIT 1")
            .bind(place.session.to_string())
            .bind(to_i64(place.seq)?)
            .fetch_optional(&self.readers)
            .await?;
        Ok(open.is_none())
    }
}

/// The next entry of its stream, as part of a larger transaction.
pub(super) async fn append(tx: &mut Transaction<'_, Sqlite>, record: &Record) -> Result<u64> {
    let session = record.session.to_string();
    let next: i64 = sqlx::query(
        "INSERT INTO stream (session, next_seq) VALUES (?1, 1) \
         ON CONFLICT (session) DO UPDATE SET next_seq = next_seq + 1 RETURNING next_seq",
    )
    .bind(&session)
    .fetch_one(&mut **tx)
    .await?
    .try_get(0)?;
    let seq = next - 1;
    let redactions: Vec<_> = record
        .sealed
        .findings
        .iter()
        .map(|Finding { path, rule, count }| (path, rule, count))
        .collect();
    let redactions = serde_json::to_string(&redactions)
        .map_err(|_| StoreError::Malformed("list of redactions"))?;
    sqlx::query(
        "INSERT INTO outbox (session, seq, tenant, policy_rev, event, redactions) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&session)
    .bind(seq)
    .bind(&record.tenant)
    .bind(&record.policy_rev)
    .bind(&record.sealed.bytes)
    .bind(redactions)
    .execute(&mut **tx)
    .await?;
    to_u64(seq)
}
