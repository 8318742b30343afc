//! What became of people's answers: which call used one up, and which receipts were revoked.

use std::collections::HashSet;

use event::id::{CallId, PermissionId, ReceiptId, RunId};
use sqlx::{Row as _, Sqlite, Transaction};

use super::{Result, Store, id};

impl Store {
    /// The answer admits no call any more, unless one has it already.
    pub(crate) async fn spend(&self, permission: PermissionId) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO consumed (permission, call) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        )
        .bind(permission.to_string())
        .bind(CallId::nil().to_string())
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// From the commit on the receipt admits nothing.
    pub(crate) async fn revoke(&self, run: RunId, receipt: ReceiptId, at_ms: i64) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "INSERT INTO revoked (receipt, run, at_ms) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )
        .bind(receipt.to_string())
        .bind(run.to_string())
        .bind(at_ms)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn revoked(&self, run: RunId) -> Result<HashSet<ReceiptId>> {
        let rows = sqlx::query("SELECT receipt FROM revoked WHERE run = ?1")
            .bind(run.to_string())
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(|row| id(&row.try_get::<String, _>(0)?)).collect()
    }
}

pub(super) async fn is_revoked(
    tx: &mut Transaction<'_, Sqlite>,
    receipt: ReceiptId,
) -> Result<bool> {
    let found = sqlx::query("SELECT 1 FROM revoked WHERE receipt = ?1")
        .bind(receipt.to_string())
        .fetch_optional(&mut **tx)
        .await?;
    Ok(found.is_some())
}

/// A run that is over admits nothing, so nothing of it need be remembered.
pub(super) async fn forget_revoked(tx: &mut Transaction<'_, Sqlite>, run: RunId) -> Result<()> {
    let forget = sqlx::query("DELETE FROM revoked WHERE run = ?1").bind(run.to_string());
    forget.execute(&mut **tx).await?;
    Ok(())
}

/// Whether the permission is this call's now.
pub(super) async fn consume(
    tx: &mut Transaction<'_, Sqlite>,
    permission: PermissionId,
    call: CallId,
) -> Result<bool> {
    let call = call.to_string();
    let holder: String = sqlx::query(
        "INSERT INTO consumed (permission, call) VALUES (?1, ?2) \
         ON CONFLICT (permission) DO UPDATE SET call = consumed.call RETURNING call",
    )
    .bind(permission.to_string())
    .bind(&call)
    .fetch_one(&mut **tx)
    .await?
    .try_get(0)?;
    Ok(holder == call)
}
