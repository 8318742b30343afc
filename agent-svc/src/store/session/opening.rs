//! How a session comes to be: its id is taken before the executors are fenced, it exists once they have accepted it, and its
//! grant may be renewed.

use event::Digest;
use event::id::SessionId;
use receipt::OnDisconnect;

use super::super::row::text;
use super::super::{Entry, Error, Node, Owner, Store, commit, failed, outbox};
use super::{Session, on_disconnect_text, session};
use crate::clock::Millis;

#[derive(Debug, Clone)]
pub(crate) struct NewSession {
    pub(crate) id: SessionId,
    pub(crate) tenant: String,
    pub(crate) subject: String,
    /// The signed grant as it came.
    pub(crate) grant: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) manifest_id: String,
    pub(crate) policy_rev: Digest,
    pub(crate) workspace: String,
    pub(crate) model: String,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) created_at: Millis,
}

#[derive(Debug)]
pub(crate) enum Opened {
    New(Owner),
    /// The id is taken: by the same request, a renewal, or something else.
    Known(Box<Session>),
}

impl Store {
    /// Takes the id, first come first served.
    pub(crate) async fn open_session(&self, new: &NewSession, node: Node) -> Result<Opened, Error> {
        let mut tx = self.begin().await?;
        let inserted = sqlx::query(
            "INSERT INTO session (session_id, tenant, subject, grant_signed, manifest, manifest_id, policy_rev, \
             workspace, model, on_disconnect, state, owner_node, owner_epoch, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'opening', ?11, 1, ?12) ON CONFLICT DO NOTHING",
        )
        .bind(text(new.id))
        .bind(&new.tenant)
        .bind(&new.subject)
        .bind(&new.grant)
        .bind(&new.manifest)
        .bind(&new.manifest_id)
        .bind(text(new.policy_rev))
        .bind(&new.workspace)
        .bind(&new.model)
        .bind(on_disconnect_text(new.on_disconnect))
        .bind(text(node.0))
        .bind(new.created_at.0)
        .execute(&mut *tx)
        .await
        .map_err(failed("open a session"))?;
        let opened = if inserted.rows_affected() == 1 {
            Opened::New(Owner { session: new.id, node, epoch: 1 })
        } else {
            let row = select!("WHERE session_id = ?1")
                .bind(text(new.id))
                .fetch_one(&mut *tx)
                .await
                .map_err(failed("read a session"))?;
            Opened::Known(Box::new(session(&row)?))
        };
        commit(tx).await?;
        Ok(opened)
    }

    /// Both executors have accepted it: from here on it exists. False when another request was first.
    pub(crate) async fn finish_session(&self, owner: Owner, entry: &Entry) -> Result<bool, Error> {
        let mut tx = self.begin().await?;
        let finished = sqlx::query(
            "UPDATE session SET state = 'created' WHERE session_id = ?1 AND state = 'opening'",
        )
        .bind(text(owner.session))
        .execute(&mut *tx)
        .await
        .map_err(failed("finish a session"))?;
        if finished.rows_affected() == 0 {
            return Ok(false);
        }
        outbox::put(&mut tx, owner, std::slice::from_ref(entry)).await?;
        commit(tx).await?;
        Ok(true)
    }

    /// An executor has refused it: nobody was told about it, so nothing remains.
    pub(crate) async fn forget_session(&self, id: SessionId) -> Result<(), Error> {
        sqlx::query("DELETE FROM session WHERE session_id = ?1 AND state = 'opening'")
            .bind(text(id))
            .execute(&self.writer)
            .await
            .map_err(failed("forget a session"))?;
        Ok(())
    }

    pub(crate) async fn renew_grant(&self, id: SessionId, grant: &[u8]) -> Result<(), Error> {
        sqlx::query("UPDATE session SET grant_signed = ?2 WHERE session_id = ?1")
            .bind(text(id))
            .bind(grant)
            .execute(&self.writer)
            .await
            .map_err(failed("renew a grant"))?;
        Ok(())
    }
}
