//! Answers to asks. Each is one compare-and-set: the first wins, and whoever loses reads who did.

use event::Source;
use event::id::{PermissionId, SessionId};
use receipt::Scope;
use sqlx::{Sqlite, Transaction};

use super::super::row::text;
use super::super::{Error, Store, commit, failed};
use super::kept::{self, Counted, NewReceipt, Tally};
use super::read;
use crate::clock::Millis;
use crate::permission::Standing;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimed {
    Won {
        until: Millis,
    },
    Lost(Standing),
    /// This person's allow counts already, and it takes others.
    Counted(Counted),
    /// This session has no such permission.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// This receipt settled it, or an earlier one of the same person for the same scope did.
    Allowed,
    /// The receipt is kept, or one of the same person was, and the ask is open to others.
    Counted(Counted),
    /// It was settled otherwise.
    Lost(Standing),
    /// No claim of this person waits for a receipt.
    NotClaimed,
    Unknown,
}

impl Store {
    /// Leases the ask to one person: it stays theirs until `until`, and the same answer again is the same lease.
    pub(crate) async fn claim_allow(
        &self,
        (session, id): (SessionId, PermissionId),
        by: &str,
        scope: Scope,
        note: Option<&str>,
        (now, until): (Millis, Millis),
    ) -> Result<Claimed, Error> {
        let mut tx = self.begin().await?;
        if let Some(counted) = kept::counted(&mut tx, (session, id), by, now).await? {
            return Ok(Claimed::Counted(counted));
        }
        let leased: Option<i64> = sqlx::query_scalar(
            "UPDATE permission SET standing = 'leased', decided_by = ?3, scope = ?4, note = ?5, \
             claimed_at = CASE WHEN expires_at > ?6 THEN ?6 ELSE claimed_at END, \
             leased_until = CASE WHEN expires_at > ?6 THEN ?7 ELSE leased_until END \
             WHERE permission_id = ?1 AND session_id = ?2 AND ( \
               (expires_at > ?6 AND (standing = 'open' OR (standing = 'leased' AND leased_until <= ?6))) \
               OR (standing = 'leased' AND leased_until > ?6 AND decided_by = ?3 AND scope = ?4)) \
             RETURNING leased_until",
        )
        .bind(text(id))
        .bind(text(session))
        .bind(by)
        .bind(scope.as_str())
        .bind(note)
        .bind(now.0)
        .bind(until.0)
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed("claim a permission"))?;
        let claimed = match leased {
            Some(until) => Claimed::Won { until: Millis(until) },
            None => lost(&mut tx, (session, id), now).await?,
        };
        commit(tx).await?;
        Ok(claimed)
    }

    /// Denies the ask for good.
    pub(crate) async fn claim_deny(
        &self,
        (session, id): (SessionId, PermissionId),
        by: &str,
        source: Source,
        note: Option<&str>,
        now: Millis,
    ) -> Result<Claimed, Error> {
        let mut tx = self.begin().await?;
        let denied = sqlx::query(
            "UPDATE permission SET standing = 'denied', source = ?3, decided_by = ?4, note = ?5, scope = NULL, \
             leased_until = NULL WHERE permission_id = ?1 AND session_id = ?2 AND expires_at > ?6 \
             AND (standing = 'open' OR (standing = 'leased' AND leased_until <= ?6))",
        )
        .bind(text(id))
        .bind(text(session))
        .bind(source.as_str())
        .bind(by)
        .bind(note)
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .map_err(failed("deny a permission"))?;
        let claimed = if denied.rows_affected() == 1 {
            Claimed::Won { until: now }
        } else {
            lost(&mut tx, (session, id), now).await?
        };
        commit(tx).await?;
        Ok(claimed)
    }

    /// Keeps the receipt that the holder of the lease brings in time. `tally` says what all that were kept come to, this
    /// one the last: enough settles the ask, and less opens it to others again.
    pub(crate) async fn resolve(
        &self,
        (session, id): (SessionId, PermissionId),
        by: &str,
        new: NewReceipt<'_>,
        tally: impl FnOnce(&[Vec<u8>]) -> Result<Tally, Error> + Send,
        now: Millis,
    ) -> Result<Resolved, Error> {
        let key = (session, id);
        let mut tx = self.begin().await?;
        let resolved = match read(&mut tx, key).await?.map(|permission| permission.standing) {
            None => Resolved::Unknown,
            Some(Standing::Leased { by: holder, scope, until, .. })
                if holder == by && scope == new.scope && until > now =>
            {
                let mut bodies = kept::bodies(&mut tx, id, now).await?;
                bodies.push(new.body.to_vec());
                let tally = tally(&bodies)?;
                kept::keep(&mut tx, key, by, new, tally.counted(), now).await?;
                match tally {
                    Tally::Enough { scope, .. } => {
                        allow(&mut tx, id, scope, new.body).await?;
                        Resolved::Allowed
                    }
                    Tally::Short(counted) => {
                        reopen(&mut tx, id).await?;
                        Resolved::Counted(counted)
                    }
                }
            }
            Some(Standing::Allowed { .. }) if kept::is_kept(&mut tx, id, by, new.scope).await? => {
                Resolved::Allowed
            }
            Some(Standing::Open | Standing::Leased { .. }) => {
                match kept::counted(&mut tx, key, by, now).await? {
                    Some(counted) => Resolved::Counted(counted),
                    None => Resolved::NotClaimed,
                }
            }
            Some(settled) => Resolved::Lost(settled),
        };
        commit(tx).await?;
        Ok(resolved)
    }
}

async fn allow(
    tx: &mut Transaction<'static, Sqlite>,
    id: PermissionId,
    scope: Scope,
    receipt: &[u8],
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE permission SET standing = 'allowed', scope = ?2, receipt = ?3, leased_until = NULL \
         WHERE permission_id = ?1",
    )
    .bind(text(id))
    .bind(scope.as_str())
    .bind(receipt)
    .execute(&mut **tx)
    .await
    .map_err(failed("settle a permission"))?;
    Ok(())
}

async fn reopen(tx: &mut Transaction<'static, Sqlite>, id: PermissionId) -> Result<(), Error> {
    sqlx::query(
        "UPDATE permission SET standing = 'open', decided_by = NULL, scope = NULL, note = NULL, claimed_at = NULL, \
         leased_until = NULL WHERE permission_id = ?1",
    )
    .bind(text(id))
    .execute(&mut **tx)
    .await
    .map_err(failed("open an ask to others"))?;
    Ok(())
}

/// Why a claim did not win. An ask whose time has passed is denied on the spot, so that the answer is final.
async fn lost(
    tx: &mut Transaction<'static, Sqlite>,
    key: (SessionId, PermissionId),
    now: Millis,
) -> Result<Claimed, Error> {
    expire(tx, key, now).await?;
    let found = read(tx, key).await?;
    Ok(found.map_or(Claimed::Unknown, |permission| Claimed::Lost(permission.standing)))
}

async fn expire(
    tx: &mut Transaction<'static, Sqlite>,
    (session, id): (SessionId, PermissionId),
    now: Millis,
) -> Result<(), Error> {
    sqlx::query(
        "UPDATE permission SET standing = 'denied', source = 'timeout', decided_by = NULL, scope = NULL, note = NULL, \
         leased_until = NULL WHERE permission_id = ?1 AND session_id = ?2 AND expires_at <= ?3 \
         AND (standing = 'open' OR (standing = 'leased' AND leased_until <= ?3))",
    )
    .bind(text(id))
    .bind(text(session))
    .bind(now.0)
    .execute(&mut **tx)
    .await
    .map_err(failed("end an expired ask"))?;
    Ok(())
}
