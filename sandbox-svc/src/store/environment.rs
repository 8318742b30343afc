//! Environments: one row per run, from before its directory is made until after it is gone.

use std::sync::Arc;

use event::Digest;
use event::id::{RunId, SessionId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};

use super::edit::forget_edits;
use super::receipt::forget_revoked;
use super::{Result, Store, StoreError, child, digest, id};
use crate::binding::{Binding, Bindings};
use crate::config::StagingKind;
use crate::patch::Before;
use crate::tree::{Inventory, Reason, RelPath};

pub(crate) struct NewEnvironment<'a> {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) staging: StagingKind,
    /// The host's present boot: a tmpfs does not outlive it.
    pub(crate) boot: &'a str,
}

pub(crate) enum Begun {
    /// The row is new, and this is its slot.
    New {
        slot: u32,
    },
    Known(Box<EnvironmentRow>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvironmentState {
    Opening,
    Open,
    Closing,
    Closed,
    /// Its copy is gone although nobody closed it.
    Lost,
}

impl EnvironmentState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Lost => "lost",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        [Self::Opening, Self::Open, Self::Closing, Self::Closed, Self::Lost]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(StoreError::Malformed("environment state"))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct EnvironmentRow {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
    pub(crate) state: EnvironmentState,
    pub(crate) staging: StagingKind,
    pub(crate) boot: String,
    /// Present from the state `open` on, but for rows of older services.
    pub(crate) bindings: Option<Bindings>,
    /// What made it lost.
    pub(crate) lost: Option<Binding>,
    /// Present from the state `open` on.
    pub(crate) taken: Option<Taken>,
}

/// What was taken from the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) first_digest: Digest,
    pub(crate) base: Arc<Inventory>,
    pub(crate) before: Before,
}

impl Store {
    /// Reserves the run and the smallest free slot.
    pub(crate) async fn begin_environment(&self, new: &NewEnvironment<'_>) -> Result<Begun> {
        let mut tx = self.begin().await?;
        let known = sqlx::query("SELECT * FROM environment WHERE run = ?1")
            .bind(new.run.to_string())
            .fetch_optional(&mut *tx)
            .await?;
        if let Some(row) = known {
            return Ok(Begun::Known(Box::new(environment(&row)?)));
        }
        let slot: i64 = sqlx::query(
            "SELECT min(candidate) FROM (SELECT 0 AS candidate UNION ALL \
             SELECT slot + 1 FROM environment WHERE state IN ('opening', 'open', 'closing')) \
             WHERE candidate NOT IN \
             (SELECT slot FROM environment WHERE state IN ('opening', 'open', 'closing'))",
        )
        .fetch_one(&mut *tx)
        .await?
        .try_get(0)?;
        sqlx::query(
            "INSERT INTO environment (run, session, slot, state, staging, boot) \
             VALUES (?1, ?2, ?3, 'opening', ?4, ?5)",
        )
        .bind(new.run.to_string())
        .bind(new.session.to_string())
        .bind(slot)
        .bind(new.staging.as_str())
        .bind(new.boot)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Begun::New { slot: u32::try_from(slot).map_err(|_| StoreError::Malformed("slot"))? })
    }

    pub(crate) async fn open_environment(
        &self,
        run: RunId,
        taken: &Taken,
        bindings: &Bindings,
    ) -> Result<()> {
        self.note_taken(run, EnvironmentState::Opening, taken, bindings).await
    }

    /// The copy of an open environment was taken anew.
    pub(crate) async fn retake_environment(
        &self,
        run: RunId,
        taken: &Taken,
        bindings: &Bindings,
    ) -> Result<()> {
        self.note_taken(run, EnvironmentState::Open, taken, bindings).await
    }

    async fn note_taken(
        &self,
        run: RunId,
        from: EnvironmentState,
        taken: &Taken,
        bindings: &Bindings,
    ) -> Result<()> {
        let bindings = bindings_to_text(bindings)?;
        let mut tx = self.begin().await?;
        sqlx::query(
            "UPDATE environment SET state = 'open', first_digest = ?2, base = ?3, left_out = ?4, \
             bindings = ?5 WHERE run = ?1 AND state = ?6",
        )
        .bind(run.to_string())
        .bind(taken.first_digest.as_bytes().as_slice())
        .bind(taken.base.to_bytes())
        .bind(left_out_to_text(&taken.before))
        .bind(bindings)
        .bind(from.as_str())
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// A copy that was never finished leaves nothing behind.
    pub(crate) async fn forget_environment(&self, run: RunId) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("DELETE FROM environment WHERE run = ?1 AND state = 'opening'")
            .bind(run.to_string())
            .execute(&mut *tx)
            .await?;
        Ok(tx.commit().await?)
    }

    /// A closed environment keeps its name and nothing else.
    pub(crate) async fn set_environment_state(
        &self,
        run: RunId,
        state: EnvironmentState,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        let over = matches!(state, EnvironmentState::Closed | EnvironmentState::Lost);
        sqlx::query(
            "UPDATE environment SET state = ?2, base = iif(?3, NULL, base), \
             left_out = iif(?3, NULL, left_out) WHERE run = ?1",
        )
        .bind(run.to_string())
        .bind(state.as_str())
        .bind(over)
        .execute(&mut *tx)
        .await?;
        if over {
            child::close_all(&mut tx, run).await?;
            forget_run(&mut tx, run).await?;
            forget_edits(&mut tx, run).await?;
        }
        Ok(tx.commit().await?)
    }

    /// An open copy is not what it was bound to; what is left of it goes with the next sweep.
    pub(crate) async fn lose_environment(&self, run: RunId, lost: Binding) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("UPDATE environment SET lost = ?2 WHERE run = ?1")
            .bind(run.to_string())
            .bind(lost.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        self.set_environment_state(run, EnvironmentState::Lost).await
    }

    pub(crate) async fn environment(&self, run: RunId) -> Result<Option<EnvironmentRow>> {
        let row = sqlx::query("SELECT * FROM environment WHERE run = ?1")
            .bind(run.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(environment).transpose()
    }

    /// Those that have or may have something on disk.
    pub(crate) async fn live_environments(&self) -> Result<Vec<EnvironmentRow>> {
        let rows =
            sqlx::query("SELECT * FROM environment WHERE state IN ('opening', 'open', 'closing')")
                .fetch_all(&self.readers)
                .await?;
        rows.iter().map(environment).collect()
    }
}

/// A run that is over keeps the ends of its calls and no more.
pub(super) async fn forget_run(tx: &mut Transaction<'_, Sqlite>, run: RunId) -> Result<()> {
    forget_revoked(tx, run).await?;
    sqlx::query("DELETE FROM plan WHERE run = ?1").bind(run.to_string()).execute(&mut **tx).await?;
    sqlx::query("DELETE FROM output WHERE call IN (SELECT call FROM execution WHERE run = ?1)")
        .bind(run.to_string())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

fn environment(row: &SqliteRow) -> Result<EnvironmentRow> {
    let taken = match (
        row.try_get::<Option<Vec<u8>>, _>("first_digest")?,
        row.try_get::<Option<Vec<u8>>, _>("base")?,
        row.try_get::<Option<String>, _>("left_out")?,
    ) {
        (Some(first), Some(base), Some(left_out)) => Some(Taken {
            first_digest: digest(&first)?,
            base: Inventory::parse(&base).map_err(|_| StoreError::Malformed("inventory"))?.into(),
            before: left_out_from_text(&left_out)?,
        }),
        _ => None,
    };
    Ok(EnvironmentRow {
        run: id(&row.try_get::<String, _>("run")?)?,
        session: id(&row.try_get::<String, _>("session")?)?,
        slot: u32::try_from(row.try_get::<i64, _>("slot")?)
            .map_err(|_| StoreError::Malformed("slot"))?,
        state: EnvironmentState::parse(&row.try_get::<String, _>("state")?)?,
        staging: StagingKind::parse(&row.try_get::<String, _>("staging")?)
            .ok_or(StoreError::Malformed("staging"))?,
        boot: row.try_get("boot")?,
        bindings: match row.try_get::<Option<String>, _>("bindings")? {
            Some(text) => Some(
                serde_json::from_str(&text)
                    .map_err(|_| StoreError::Malformed("list of bindings"))?,
            ),
            None => None,
        },
        lost: match row.try_get::<Option<String>, _>("lost")? {
            Some(text) => Some(Binding::parse(&text).ok_or(StoreError::Malformed("binding"))?),
            None => None,
        },
        taken,
    })
}

fn bindings_to_text(bindings: &Bindings) -> Result<String> {
    serde_json::to_string(bindings).map_err(|_| StoreError::Malformed("list of bindings"))
}

/// A line each: reason, blank, path in hex.
fn left_out_to_text(before: &Before) -> String {
    let line = |(path, reason): (&RelPath, &Reason)| {
        format!("{} {}\n", reason.as_str(), hex::encode(path.as_bytes()))
    };
    before.iter().map(line).collect()
}

fn left_out_from_text(text: &str) -> Result<Before> {
    let malformed = StoreError::Malformed;
    let mut before = Before::new();
    for line in text.lines() {
        let (reason, path) =
            line.split_once(' ').ok_or_else(|| malformed("list of what was left out"))?;
        let reason = Reason::parse(reason).ok_or_else(|| malformed("reason"))?;
        let path = hex::decode(path).map_err(|_| malformed("path"))?;
        before.insert(RelPath::parse(&path).map_err(|_| malformed("path"))?, reason);
    }
    Ok(before)
}
