//! Each person's allow of one ask. It keeps what came and who sent it; whether it is enough is decided by the caller.

use event::id::{PermissionId, ReceiptId, SessionId};
use receipt::Scope;
use sqlx::{Sqlite, Transaction};

use super::super::row::{Columns, signed, text};
use super::super::{Error, Store, failed};
use crate::clock::Millis;

/// How many people's allows there are, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) have: u32,
    pub(crate) need: u32,
}

/// What the receipts of an ask come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    /// Enough, and how far they reach together.
    Enough {
        scope: Scope,
        counted: Counted,
    },
    Short(Counted),
}

impl Tally {
    pub(super) fn counted(self) -> Counted {
        match self {
            Self::Enough { counted, .. } | Self::Short(counted) => counted,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct NewReceipt<'a> {
    pub(crate) id: ReceiptId,
    pub(crate) scope: Scope,
    /// Signed, as it came.
    pub(crate) body: &'a [u8],
    pub(crate) expires_at: Millis,
}

/// An allow that was not enough and that the stream does not tell yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untold {
    pub(crate) receipt: ReceiptId,
    pub(crate) by: String,
    pub(crate) counted: Counted,
}

impl Store {
    /// What people signed for this ask, in the order it came; of each person the last.
    pub(crate) async fn receipts(&self, permission: PermissionId) -> Result<Vec<Vec<u8>>, Error> {
        // The ask's own column holds the one that settled it; asks of before have no other.
        sqlx::query_scalar(
            "SELECT body FROM (SELECT rowid AS place, body FROM receipt WHERE permission_id = ?1 \
             AND rowid IN (SELECT MAX(rowid) FROM receipt WHERE permission_id = ?1 GROUP BY subject) \
             UNION ALL SELECT -1, receipt FROM permission WHERE permission_id = ?1 AND receipt IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM receipt WHERE permission_id = ?1)) ORDER BY place",
        )
        .bind(text(permission))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read receipts"))
    }

    pub(crate) async fn untold(&self, permission: PermissionId) -> Result<Vec<Untold>, Error> {
        let rows = sqlx::query(
            "SELECT receipt_id, subject, have, need FROM receipt \
             WHERE permission_id = ?1 AND told_seq IS NULL AND have < need ORDER BY rowid",
        )
        .bind(text(permission))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read receipts"))?;
        rows.iter()
            .map(Columns)
            .map(|row| {
                let counted = Counted { have: row.get("have")?, need: row.get("need")? };
                let by = row.get("subject")?;
                Ok(Untold { receipt: row.id("receipt_id", ReceiptId::parse)?, by, counted })
            })
            .collect()
    }

    /// The ids of the receipts that an ask rests on, in the order they came.
    pub(crate) async fn receipt_ids(
        &self,
        permission: PermissionId,
    ) -> Result<Vec<ReceiptId>, Error> {
        let rows =
            sqlx::query("SELECT receipt_id FROM receipt WHERE permission_id = ?1 ORDER BY rowid")
                .bind(text(permission))
                .fetch_all(&self.readers)
                .await
                .map_err(failed("read receipts"))?;
        rows.iter().map(Columns).map(|row| row.id("receipt_id", ReceiptId::parse)).collect()
    }
}

/// How far an open ask is, if this person's allow counts there already.
pub(super) async fn counted(
    tx: &mut Transaction<'static, Sqlite>,
    (session, permission): (SessionId, PermissionId),
    by: &str,
    now: Millis,
) -> Result<Option<Counted>, Error> {
    let row = sqlx::query(
        "SELECT last.have, last.need FROM receipt last JOIN permission p USING (permission_id) \
         WHERE last.permission_id = ?1 AND p.session_id = ?2 AND p.standing IN ('open', 'leased') \
         AND p.expires_at > ?4 AND EXISTS (SELECT 1 FROM receipt own WHERE own.permission_id = ?1 \
         AND own.subject = ?3 AND own.expires_at > ?4) ORDER BY last.rowid DESC LIMIT 1",
    )
    .bind(text(permission))
    .bind(text(session))
    .bind(by)
    .bind(now.0)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed("read a count"))?;
    row.as_ref()
        .map(Columns)
        .map(|row| Ok(Counted { have: row.get("have")?, need: row.get("need")? }))
        .transpose()
}

/// Whether this person's allow of this scope is among those that were kept.
pub(super) async fn is_kept(
    tx: &mut Transaction<'static, Sqlite>,
    permission: PermissionId,
    by: &str,
    scope: Scope,
) -> Result<bool, Error> {
    let found: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM receipt WHERE permission_id = ?1 AND subject = ?2 AND scope = ?3 LIMIT 1",
    )
    .bind(text(permission))
    .bind(by)
    .bind(scope.as_str())
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed("read a receipt"))?;
    Ok(found.is_some())
}

/// What still counts of the ask's receipts.
pub(super) async fn bodies(
    tx: &mut Transaction<'static, Sqlite>,
    permission: PermissionId,
    now: Millis,
) -> Result<Vec<Vec<u8>>, Error> {
    sqlx::query_scalar(
        "SELECT body FROM receipt WHERE permission_id = ?1 AND expires_at > ?2 ORDER BY rowid",
    )
    .bind(text(permission))
    .bind(now.0)
    .fetch_all(&mut **tx)
    .await
    .map_err(failed("read receipts"))
}

pub(super) async fn keep(
    tx: &mut Transaction<'static, Sqlite>,
    (session, permission): (SessionId, PermissionId),
    by: &str,
    NewReceipt { id, scope, body, expires_at }: NewReceipt<'_>,
    Counted { have, need }: Counted,
    now: Millis,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO receipt (receipt_id, permission_id, session_id, subject, scope, body, have, need, kept_at, \
         expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )
    .bind(text(id))
    .bind(text(permission))
    .bind(text(session))
    .bind(by)
    .bind(scope.as_str())
    .bind(body)
    .bind(have)
    .bind(need)
    .bind(now.0)
    .bind(expires_at.0)
    .execute(&mut **tx)
    .await
    .map_err(failed("keep a receipt"))?;
    Ok(())
}

/// Part of the transaction that records the count.
pub(in crate::store) async fn told(
    tx: &mut Transaction<'static, Sqlite>,
    id: ReceiptId,
    seq: u64,
) -> Result<(), Error> {
    sqlx::query("UPDATE receipt SET told_seq = ?2 WHERE receipt_id = ?1")
        .bind(text(id))
        .bind(signed(seq, "sequence number")?)
        .execute(&mut **tx)
        .await
        .map_err(failed("record a count"))?;
    Ok(())
}

/// Part of the transaction that plans the call again.
pub(in crate::store) async fn dropped(
    tx: &mut Transaction<'static, Sqlite>,
    permission: PermissionId,
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE receipt SET standing = 'dropped' WHERE permission_id = ?1 AND standing = 'kept' AND scope = 'run'",
    )
    .bind(text(permission))
    .execute(&mut **tx)
    .await
    .map_err(failed("drop a standing allow"))?;
    Ok(())
}
