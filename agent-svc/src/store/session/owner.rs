//! Who drives a session: taken over under a higher epoch than anyone has seen, and proven with every write.

use event::id::SessionId;
use sqlx::{Sqlite, Transaction};

use super::super::row::{signed, text, unsigned};
use super::super::{Error, Node, Owner, Store, commit, failed};
use super::{Session, session};
use crate::clock::Millis;

impl Store {
    /// Makes this process the owner of every session that is not over, under a higher epoch than anyone has seen. What
    /// nobody came back to open since `abandoned` is forgotten.
    pub(crate) async fn take_over(
        &self,
        node: Node,
        abandoned: Millis,
    ) -> Result<Vec<Session>, Error> {
        let mut tx = self.begin().await?;
        sqlx::query("DELETE FROM session WHERE state = 'opening' AND created_at < ?1")
            .bind(abandoned.0)
            .execute(&mut *tx)
            .await
            .map_err(failed("forget sessions"))?;
        sqlx::query(
            "UPDATE session SET owner_node = ?1, owner_epoch = owner_epoch + 1 WHERE state <> 'done'",
        )
        .bind(text(node.0))
        .execute(&mut *tx)
        .await
        .map_err(failed("take sessions over"))?;
        let rows = select!("WHERE state <> 'done' OR EXISTS (SELECT 1 FROM outbox WHERE outbox.session_id = session.session_id)")
            .fetch_all(&mut *tx)
            .await
            .map_err(failed("read sessions"))?;
        let sessions = rows.iter().map(session).collect::<Result<_, _>>()?;
        commit(tx).await?;
        Ok(sessions)
    }

    /// The same for one session: after a write whose result is not known.
    pub(crate) async fn take_over_one(&self, id: SessionId, node: Node) -> Result<Session, Error> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "UPDATE session SET owner_node = ?2, owner_epoch = owner_epoch + 1 WHERE session_id = ?1",
        )
        .bind(text(id))
        .bind(text(node.0))
        .execute(&mut *tx)
        .await
        .map_err(failed("take a session over"))?;
        let row = select!("WHERE session_id = ?1")
            .bind(text(id))
            .fetch_one(&mut *tx)
            .await
            .map_err(failed("read a session"))?;
        let session = session(&row)?;
        commit(tx).await?;
        Ok(session)
    }
}

/// Moves the fence's session on by `count` sequence numbers and returns the first of them.
pub(in crate::store) async fn take_seq(
    tx: &mut Transaction<'static, Sqlite>,
    owner: Owner,
    count: usize,
) -> Result<u64, Error> {
    let count = i64::try_from(count).map_err(|_| Error::Corrupt { what: "batch size" })?;
    let first: Option<i64> = sqlx::query_scalar(
        "UPDATE session SET next_seq = next_seq + ?4 \
         WHERE session_id = ?1 AND owner_node = ?2 AND owner_epoch = ?3 RETURNING next_seq - ?4",
    )
    .bind(text(owner.session))
    .bind(text(owner.node.0))
    .bind(signed(owner.epoch, "epoch")?)
    .bind(count)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed("take sequence numbers"))?;
    unsigned(first.ok_or(Error::Fenced)?, "sequence number")
}
