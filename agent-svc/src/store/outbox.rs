//! Event bytes that audit-svc has not acknowledged yet, in the order in which they were recorded.

use event::Digest;
use event::id::SessionId;
use sqlx::{Sqlite, Transaction};

use super::row::{Columns, signed, text};
use super::session::take_seq;
use super::{Entry, Error, Owner, Store, commit, failed};

/// One row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) seq: u64,
    pub(crate) body: Vec<u8>,
    pub(crate) hash: Digest,
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
    /// The oldest rows, at least one if there is any, and no more than fit both limits.
    pub(crate) async fn outbox_batch(
        &self,
        session: SessionId,
        rows: u32,
        bytes: usize,
    ) -> Result<Vec<Waiting>, Error> {
        let found = sqlx::query(
            "SELECT seq, body, hash, redactor, redactions FROM outbox WHERE session_id = ?1 ORDER BY seq LIMIT ?2",
        )
        .bind(text(session))
        .bind(rows)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read the outbox"))?;
        let mut batch = Vec::new();
        let mut size = 0;
        for row in found.iter().map(Columns) {
            let redactions: &str = row.get("redactions")?;
            let waiting = Waiting {
                seq: row.number("seq")?,
                body: row.get("body")?,
                hash: row.digest("hash")?,
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

    /// Forgets exactly what was acknowledged: a row with other bytes stays.
    pub(crate) async fn outbox_ack(
        &self,
        session: SessionId,
        acknowledged: &[(u64, Digest)],
    ) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        for (seq, hash) in acknowledged {
            sqlx::query("DELETE FROM outbox WHERE session_id = ?1 AND seq = ?2 AND hash = ?3")
                .bind(text(session))
                .bind(signed(*seq, "sequence number")?)
                .bind(hash.as_bytes().as_slice())
                .execute(&mut *tx)
                .await
                .map_err(failed("empty the outbox"))?;
        }
        commit(tx).await
    }
}

/// Part of a transaction: gives the entries the session's next sequence numbers and returns the first.
pub(super) async fn put(
    tx: &mut Transaction<'static, Sqlite>,
    owner: Owner,
    entries: &[Entry],
) -> Result<u64, Error> {
    let first = take_seq(tx, owner, entries.len()).await?;
    for (seq, entry) in (first..).zip(entries) {
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
        sqlx::query(
            "INSERT INTO outbox (session_id, seq, event_id, epoch, kind, body, hash, redactor, redactions) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .bind(text(owner.session))
        .bind(signed(seq, "sequence number")?)
        .bind(text(entry.id))
        .bind(signed(owner.epoch, "epoch")?)
        .bind(entry.sealed.kind)
        .bind(&entry.sealed.bytes)
        .bind(entry.hash().as_bytes().as_slice())
        .bind(event::redact::REVISION)
        .bind(redactions)
        .execute(&mut **tx)
        .await
        .map_err(failed("fill the outbox"))?;
    }
    Ok(first)
}
