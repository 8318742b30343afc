//! The fence of each session: the greatest epoch seen, whose it is, and the terms that came with it.

use event::id::SessionId;
use sqlx::{Sqlite, Transaction};

use super::row::{Columns, signed, text};
use super::{Error, Store, commit, failed};
use crate::owner::{Owner, Terms};

/// What became of an attempt to raise the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fenced {
    Raised,
    /// The owner is the one that is registered; the grant's time is the later of both.
    Renewed,
    /// Somebody else owns the session with this epoch or a greater one.
    Stale,
    /// The session is registered under these terms and not the offered ones, and terms never change.
    OtherTerms(Box<Terms>),
}

/// Why a request about a session goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSession {
    Unknown,
    Stale,
}

impl Store {
    pub(crate) async fn fence(&self, owner: &Owner, terms: &Terms) -> Result<Fenced, Error> {
        let mut tx = self.begin_tx().await?;
        let fenced = match registered(&mut tx, owner.session).await? {
            None => Fenced::Raised,
            Some((_, present)) if !same_terms(&present, terms) => {
                Fenced::OtherTerms(Box::new(present))
            }
            Some((present, _)) if present.epoch < owner.epoch => Fenced::Raised,
            Some((present, _)) if present == *owner => Fenced::Renewed,
            Some(_) => Fenced::Stale,
        };
        if matches!(fenced, Fenced::Raised | Fenced::Renewed) {
            put(&mut tx, owner, terms).await?;
        }
        commit(tx).await?;
        Ok(fenced)
    }

    /// The session's terms, if this owner is the present one; also for an owner that is not, so that a refusal can be
    /// recorded where it belongs.
    pub(crate) async fn session(
        &self,
        owner: &Owner,
    ) -> Result<Result<Terms, (NoSession, Option<Terms>)>, Error> {
        let mut tx = self.begin_tx().await?;
        let found = judged(&mut tx, owner).await;
        commit(tx).await?;
        found
    }
}

/// Part of a transaction: the owner is the present one until it commits.
pub(super) async fn judged(
    tx: &mut Transaction<'static, Sqlite>,
    owner: &Owner,
) -> Result<Result<Terms, (NoSession, Option<Terms>)>, Error> {
    Ok(match registered(tx, owner.session).await? {
        None => Err((NoSession::Unknown, None)),
        Some((present, terms)) if present == *owner => Ok(terms),
        Some((_, terms)) => Err((NoSession::Stale, Some(terms))),
    })
}

/// Part of a transaction: the terms of a session, whoever owns it.
pub(super) async fn terms(
    tx: &mut Transaction<'static, Sqlite>,
    session: SessionId,
) -> Result<Option<Terms>, Error> {
    Ok(registered(tx, session).await?.map(|(_, terms)| terms))
}

/// All but the grant's time, which renewal moves.
fn same_terms(present: &Terms, offered: &Terms) -> bool {
    Terms { grant_exp: offered.grant_exp, ..present.clone() } == *offered
}

async fn registered(
    tx: &mut Transaction<'static, Sqlite>,
    session: SessionId,
) -> Result<Option<(Owner, Terms)>, Error> {
    let row = sqlx::query(
        "SELECT epoch, node, tenant, subject, manifest, workspace, models, max_model_tokens, grant_exp \
         FROM session WHERE session_id = ?1",
    )
    .bind(text(session))
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed("read a session"))?;
    let Some(row) = &row else { return Ok(None) };
    let row = Columns(row);
    let models: &str = row.get("models")?;
    let max_model_tokens = match row.get::<Option<i64>>("max_model_tokens")? {
        Some(_) => Some(row.number("max_model_tokens")?),
        None => None,
    };
    let owner = Owner { session, node: row.get("node")?, epoch: row.number("epoch")? };
    let terms = Terms {
        tenant: row.get("tenant")?,
        subject: row.get("subject")?,
        manifest: row.digest("manifest")?,
        workspace: row.get("workspace")?,
        models: serde_json::from_str(models).map_err(|_| Error::Corrupt { what: "models" })?,
        max_model_tokens,
        grant_exp: row.number("grant_exp")?,
    };
    Ok(Some((owner, terms)))
}

async fn put(
    tx: &mut Transaction<'static, Sqlite>,
    owner: &Owner,
    terms: &Terms,
) -> Result<(), Error> {
    let models = serde_json::to_string(&terms.models)
        .map_err(|_| Error::Corrupt { what: "list of models" })?;
    let max_model_tokens =
        terms.max_model_tokens.map(|tokens| signed(tokens, "token limit")).transpose()?;
    sqlx::query(
        "INSERT INTO session (session_id, epoch, node, tenant, subject, manifest, workspace, models, \
         max_model_tokens, grant_exp) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
         ON CONFLICT (session_id) DO UPDATE SET epoch = excluded.epoch, node = excluded.node, \
         grant_exp = max(grant_exp, excluded.grant_exp)",
    )
    .bind(text(owner.session))
    .bind(signed(owner.epoch, "epoch")?)
    .bind(&owner.node)
    .bind(&terms.tenant)
    .bind(&terms.subject)
    .bind(terms.manifest.as_bytes().as_slice())
    .bind(&terms.workspace)
    .bind(models)
    .bind(max_model_tokens)
    .bind(signed(terms.grant_exp, "expiry")?)
    .execute(&mut **tx)
    .await
    .map_err(failed("register a session"))?;
    Ok(())
}
