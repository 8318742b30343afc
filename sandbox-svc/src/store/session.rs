//! Sessions and their fences: who owns a session, by which grant, under which manifest.

use event::id::SessionId;
use receipt::{Grant, Payload as _};
use sqlx::Row as _;

use super::{Result, Store, StoreError, to_i64, to_u64};

/// What a Fence brings, verified.
pub(crate) struct NewSession<'a> {
    pub(crate) grant: &'a Grant,
    pub(crate) grant_payload: &'a [u8],
    pub(crate) manifest: &'a [u8],
    pub(crate) epoch: u64,
    pub(crate) node: &'a str,
}

pub(crate) enum Fenced {
    Raised,
    /// A higher epoch, or another node of the same epoch, holds it.
    Stale,
    /// The grant differs from the session's in more than its times.
    OtherGrant,
}

#[derive(Debug, Clone)]
pub(crate) struct SessionRow {
    pub(crate) grant: Grant,
    pub(crate) manifest: Vec<u8>,
    pub(crate) epoch: u64,
    pub(crate) node: String,
}

impl Store {
    pub(crate) async fn fence(&self, new: &NewSession<'_>) -> Result<Fenced> {
        let mut tx = self.begin().await?;
        let id = new.grant.session.to_string();
        let known =
            sqlx::query("SELECT epoch, node, grant_payload FROM session WHERE session = ?1")
                .bind(&id)
                .fetch_optional(&mut *tx)
                .await?;
        if let Some(known) = known {
            let (epoch, node) = (to_u64(known.try_get(0)?)?, known.try_get::<String, _>(1)?);
            if new.epoch < epoch || new.epoch == epoch && node != new.node {
                return Ok(Fenced::Stale);
            }
            let old = grant(&known.try_get::<Vec<u8>, _>(2)?)?;
            if (Grant { iat: new.grant.iat, exp: new.grant.exp, ..old }) != *new.grant {
                return Ok(Fenced::OtherGrant);
            }
        }
        sqlx::query(
            "INSERT INTO session (session, tenant, workspace, grant_payload, manifest, epoch, node) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (session) DO UPDATE SET \
             grant_payload = excluded.grant_payload, epoch = excluded.epoch, node = excluded.node",
        )
        .bind(&id)
        .bind(&new.grant.tenant)
        .bind(&new.grant.workspace)
        .bind(new.grant_payload)
        .bind(new.manifest)
        .bind(to_i64(new.epoch)?)
        .bind(new.node)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Fenced::Raised)
    }

    pub(crate) async fn session(&self, session: SessionId) -> Result<Option<SessionRow>> {
        let row = sqlx::query(
            "SELECT grant_payload, manifest, epoch, node FROM session WHERE session = ?1",
        )
        .bind(session.to_string())
        .fetch_optional(&self.readers)
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(SessionRow {
            grant: grant(&row.try_get::<Vec<u8>, _>(0)?)?,
            manifest: row.try_get(1)?,
            epoch: to_u64(row.try_get(2)?)?,
            node: row.try_get(3)?,
        }))
    }
}

/// Verified when it was stored.
fn grant(payload: &[u8]) -> Result<Grant> {
    Grant::parse(payload).map_err(|_| StoreError::Malformed("grant"))
}
