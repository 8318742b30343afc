//! Plans, admitted calls and their outcomes, and the journal of imports. A call's row is the consumption of
//! its receipt: there is one per call, and it is never removed.

use std::collections::BTreeSet;

use event::Digest;
use event::id::{CallId, PermissionId, ReceiptId, RunId, SessionId};
use sandbox_init::Nonce;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite};
use uuid::Uuid;

use super::edit::{Edited, note_edited};
use super::outbox::append;
use super::receipt::{consume, is_revoked};
use super::{Record, Result, Store, StoreError, digest, id, to_i64, to_u64};
use crate::import::Phase;
use crate::tree::Inventory;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanRow {
    pub(crate) call: CallId,
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) tool: String,
    pub(crate) arguments: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
}

/// A call that passed every check.
pub(crate) struct NewExecution<'a> {
    pub(crate) plan: &'a PlanRow,
    pub(crate) tenant: &'a str,
    pub(crate) attempt: u32,
    pub(crate) start_before_ms: i64,
    pub(crate) now_ms: i64,
    /// The answers that this call uses up.
    pub(crate) once: &'a BTreeSet<PermissionId>,
    /// What admits it, which nobody may have revoked meanwhile.
    pub(crate) receipts: &'a [ReceiptId],
    /// The attempt that was lost before this one.
    pub(crate) after_lost: Option<u32>,
    /// Whose fence it must still be.
    pub(crate) epoch: u64,
}

pub(crate) enum Accepted {
    Yes,
    No(Refused),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody else admitted the call meanwhile.
    Known,
    /// The permission belongs to another call, or to none any more.
    Consumed,
    /// A receipt was revoked since it was counted.
    Revoked,
    /// The fence was raised since the request was looked at.
    Fenced,
}

/// How far a call has come. Each state is written before what it names begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionState {
    /// Admitted; nothing has happened yet.
    Accepted,
    /// The engine may have a container of this call that never ran.
    Creating,
    /// The container is there; it may have been started.
    Created,
    Started,
    /// The command is over; the container may still be there.
    Ended,
    Finished,
}

impl ExecutionState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Finished => "finished",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        use ExecutionState::{Accepted, Created, Creating, Ended, Finished, Started};
        [Accepted, Creating, Created, Started, Ended, Finished]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(StoreError::Malformed("execution state"))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ExecutionRow {
    pub(crate) plan: PlanRow,
    pub(crate) tenant: String,
    pub(crate) attempt: u32,
    pub(crate) start_before_ms: i64,
    pub(crate) accepted_ms: i64,
    pub(crate) started_seq: u64,
    pub(crate) state: ExecutionState,
    pub(crate) lease: Uuid,
    pub(crate) container: Option<String>,
    pub(crate) cgroups: String,
    pub(crate) reason: Option<String>,
    pub(crate) started_ms: Option<i64>,
    pub(crate) started_data: Option<Vec<u8>>,
    pub(crate) nonce: Option<Nonce>,
    pub(crate) ended: Option<Vec<u8>>,
    pub(crate) finished: Option<Vec<u8>>,
}

/// A container that is about to get its frame.
pub(crate) struct Started<'a> {
    pub(crate) call: CallId,
    pub(crate) at_ms: i64,
    pub(crate) cgroups: &'a str,
    pub(crate) nonce: Nonce,
    /// A container that waited and is this call's from now on, by id and lease.
    pub(crate) claimed: Option<(&'a str, Uuid)>,
    /// What the ledger and the caller are told, unless they were before.
    pub(crate) told: Option<(&'a [u8], &'a Record)>,
}

/// The end of a call, as one fact.
pub(crate) struct Closing<'a> {
    pub(crate) call: CallId,
    pub(crate) finished: &'a [u8],
    pub(crate) records: &'a [Record],
    pub(crate) output: &'a [(u64, &'static str, &'a [u8])],
    /// The run's base after an import.
    pub(crate) base: Option<(RunId, &'a Inventory)>,
    /// The call's import is over, if it had one; what it replaced is kept when it was applied.
    pub(crate) applied: bool,
    /// What an edit changed in the run's copy.
    pub(crate) edited: Option<&'a Edited>,
}

pub(crate) struct ImportRow {
    pub(crate) phase: Phase,
    pub(crate) entries: Vec<u8>,
}

impl Store {
    /// Keeps the newest plan of a call that has not been admitted.
    /// Whether the plan is kept: a call that another session planned stays that session's.
    pub(crate) async fn put_plan(&self, plan: &PlanRow) -> Result<bool> {
        let mut tx = self.begin().await?;
        let kept = sqlx::query(
            "INSERT INTO plan (call, session, run, tool, arguments, bytes, digest) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (call) DO UPDATE SET \
             run = excluded.run, tool = excluded.tool, \
             arguments = excluded.arguments, bytes = excluded.bytes, digest = excluded.digest \
             WHERE plan.session = excluded.session",
        )
        .bind(plan.call.to_string())
        .bind(plan.session.to_string())
        .bind(plan.run.to_string())
        .bind(&plan.tool)
        .bind(&plan.arguments)
        .bind(&plan.bytes)
        .bind(plan.digest.as_bytes().as_slice())
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        Ok(kept == 1)
    }

    pub(crate) async fn plan(&self, call: CallId) -> Result<Option<PlanRow>> {
        let row = sqlx::query(
            "SELECT call, session, run, tool, arguments, bytes AS plan, digest AS plan_digest \
             FROM plan WHERE call = ?1",
        )
        .bind(call.to_string())
        .fetch_optional(&self.readers)
        .await?;
        row.as_ref().map(plan).transpose()
    }

    /// Every plan of the run, the newest call first.
    pub(crate) async fn plans(&self, run: RunId) -> Result<Vec<PlanRow>> {
        let rows = sqlx::query(
            "SELECT call, session, run, tool, arguments, bytes AS plan, digest AS plan_digest \
             FROM plan WHERE run = ?1 ORDER BY call DESC",
        )
        .bind(run.to_string())
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(plan).collect()
    }

    /// Admits the call, uses up its answer and writes `call.started`, or none of it.
    pub(crate) async fn accept(
        &self,
        new: &NewExecution<'_>,
        started: &Record,
    ) -> Result<Accepted> {
        let mut tx = self.begin().await?;
        let held = sqlx::query("SELECT 1 FROM session WHERE session = ?1 AND epoch = ?2")
            .bind(new.plan.session.to_string())
            .bind(to_i64(new.epoch)?)
            .fetch_optional(&mut *tx)
            .await?;
        if held.is_none() {
            return Ok(Accepted::No(Refused::Fenced));
        }
        for receipt in new.receipts {
            if is_revoked(&mut tx, *receipt).await? {
                return Ok(Accepted::No(Refused::Revoked));
            }
        }
        for permission in new.once {
            if !consume(&mut tx, *permission, new.plan.call).await? {
                return Ok(Accepted::No(Refused::Consumed));
            }
        }
        if let Some(lost) = new.after_lost {
            let gone = sqlx::query(
                "DELETE FROM execution WHERE call = ?1 AND attempt = ?2 AND state = 'finished'",
            )
            .bind(new.plan.call.to_string())
            .bind(lost)
            .execute(&mut *tx)
            .await?;
            if gone.rows_affected() != 1 {
                return Ok(Accepted::No(Refused::Known));
            }
        }
        let seq = append(&mut tx, started).await?;
        let inserted = sqlx::query(
            "INSERT INTO execution (call, session, tenant, run, attempt, tool, arguments, plan, \
             plan_digest, start_before_ms, accepted_ms, started_seq, state, lease) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'accepted', ?13) \
             ON CONFLICT (call) DO NOTHING",
        )
        .bind(new.plan.call.to_string())
        .bind(new.plan.session.to_string())
        .bind(new.tenant)
        .bind(new.plan.run.to_string())
        .bind(new.attempt)
        .bind(&new.plan.tool)
        .bind(&new.plan.arguments)
        .bind(&new.plan.bytes)
        .bind(new.plan.digest.as_bytes().as_slice())
        .bind(new.start_before_ms)
        .bind(new.now_ms)
        .bind(to_i64(seq)?)
        .bind(Uuid::now_v7().to_string())
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() == 0 {
            return Ok(Accepted::No(Refused::Known));
        }
        tx.commit().await?;
        self.wake_outbox();
        Ok(Accepted::Yes)
    }

    pub(crate) async fn execution(&self, call: CallId) -> Result<Option<ExecutionRow>> {
        let row = sqlx::query("SELECT * FROM execution WHERE call = ?1")
            .bind(call.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(execution).transpose()
    }

    pub(crate) async fn unfinished(&self) -> Result<Vec<ExecutionRow>> {
        let rows =
            sqlx::query("SELECT * FROM execution WHERE state <> 'finished' ORDER BY accepted_ms")
                .fetch_all(&self.readers)
                .await?;
        rows.iter().map(execution).collect()
    }

    /// Written before the engine is asked for the container.
    pub(crate) async fn note_creating(&self, call: CallId, lease: Uuid) -> Result<()> {
        let statement = "UPDATE execution SET state = 'creating', container = NULL, lease = ?2 \
                         WHERE call = ?1";
        self.note(sqlx::query(statement).bind(call.to_string()).bind(lease.to_string())).await
    }

    /// Written before the container is started.
    pub(crate) async fn note_created(&self, call: CallId, container: &str) -> Result<()> {
        let statement = "UPDATE execution SET state = 'created', container = ?2 WHERE call = ?1";
        self.note(sqlx::query(statement).bind(call.to_string()).bind(container)).await
    }

    /// Written before the container gets its frame. The ledger is told once, of the first container.
    pub(crate) async fn note_started(&self, started: &Started<'_>) -> Result<()> {
        let mut tx = self.begin().await?;
        if let Some((data, record)) = started.told {
            append(&mut tx, record).await?;
            sqlx::query("UPDATE execution SET started_data = ?2 WHERE call = ?1")
                .bind(started.call.to_string())
                .bind(data)
                .execute(&mut *tx)
                .await?;
        }
        if let Some((container, lease)) = started.claimed {
            sqlx::query("UPDATE execution SET container = ?2, lease = ?3 WHERE call = ?1")
                .bind(started.call.to_string())
                .bind(container)
                .bind(lease.to_string())
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query(
            "UPDATE execution SET state = 'started', started_ms = ?2, cgroups = ?3, nonce = ?4 \
             WHERE call = ?1",
        )
        .bind(started.call.to_string())
        .bind(started.at_ms)
        .bind(started.cgroups)
        .bind(started.nonce.as_bytes().as_slice())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Why it is stopped, stored before it is; the first reason stays and is returned.
    pub(crate) async fn note_reason(&self, call: CallId, reason: &str) -> Result<String> {
        let mut tx = self.begin().await?;
        let first: String = sqlx::query(
            "UPDATE execution SET reason = coalesce(reason, ?2) WHERE call = ?1 RETURNING reason",
        )
        .bind(call.to_string())
        .bind(reason)
        .fetch_one(&mut *tx)
        .await?
        .try_get(0)?;
        tx.commit().await?;
        Ok(first)
    }

    /// How it ended, stored before the container is removed.
    pub(crate) async fn note_ended(&self, call: CallId, ended: &[u8], cgroups: &str) -> Result<()> {
        let statement =
            "UPDATE execution SET state = 'ended', ended = ?2, cgroups = ?3 WHERE call = ?1";
        self.note(sqlx::query(statement).bind(call.to_string()).bind(ended).bind(cgroups)).await
    }

    pub(crate) async fn finish(&self, closing: &Closing<'_>) -> Result<()> {
        let mut tx = self.begin().await?;
        let call = closing.call.to_string();
        for record in closing.records {
            append(&mut tx, record).await?;
        }
        for (place, stream, bytes) in closing.output {
            sqlx::query("INSERT INTO output (call, place, stream, bytes) VALUES (?1, ?2, ?3, ?4)")
                .bind(&call)
                .bind(to_i64(*place)?)
                .bind(*stream)
                .bind(*bytes)
                .execute(&mut *tx)
                .await?;
        }
        if let Some((run, base)) = closing.base {
            sqlx::query("UPDATE environment SET base = ?2 WHERE run = ?1 AND base IS NOT NULL")
                .bind(run.to_string())
                .bind(base.to_bytes())
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query("DELETE FROM import WHERE call = ?1").bind(&call).execute(&mut *tx).await?;
        let undo = match closing.applied {
            true => "UPDATE undo SET kept = 1 WHERE call = ?1",
            false => "DELETE FROM undo WHERE call = ?1 AND kept = 0",
        };
        sqlx::query(undo).bind(&call).execute(&mut *tx).await?;
        if let Some(edited) = closing.edited {
            note_edited(&mut tx, edited).await?;
        }
        sqlx::query("UPDATE execution SET state = 'finished', finished = ?2 WHERE call = ?1")
            .bind(&call)
            .bind(closing.finished)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// What is kept of a finished call's output, in order.
    pub(crate) async fn output(&self, call: CallId) -> Result<Vec<(u64, String, Vec<u8>)>> {
        let rows =
            sqlx::query("SELECT place, stream, bytes FROM output WHERE call = ?1 ORDER BY place")
                .bind(call.to_string())
                .fetch_all(&self.readers)
                .await?;
        rows.iter()
            .map(|row| Ok((to_u64(row.try_get(0)?)?, row.try_get(1)?, row.try_get(2)?)))
            .collect()
    }

    pub(crate) async fn enter_import(
        &self,
        call: CallId,
        phase: Phase,
        entries: &[u8],
    ) -> Result<()> {
        let statement = "INSERT INTO import (call, phase, entries) VALUES (?1, ?2, ?3) \
                         ON CONFLICT (call) DO UPDATE SET phase = excluded.phase";
        self.note(sqlx::query(statement).bind(call.to_string()).bind(phase.as_str()).bind(entries))
            .await
    }

    pub(crate) async fn import(&self, call: CallId) -> Result<Option<ImportRow>> {
        let row = sqlx::query("SELECT phase, entries FROM import WHERE call = ?1")
            .bind(call.to_string())
            .fetch_optional(&self.readers)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let phase = Phase::parse(&row.try_get::<String, _>(0)?);
        Ok(Some(ImportRow {
            phase: phase.ok_or(StoreError::Malformed("phase"))?,
            entries: row.try_get(1)?,
        }))
    }

    async fn note(
        &self,
        statement: sqlx::query::Query<'_, Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        statement.execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }
}

fn plan(row: &SqliteRow) -> Result<PlanRow> {
    Ok(PlanRow {
        call: id(&row.try_get::<String, _>("call")?)?,
        session: id(&row.try_get::<String, _>("session")?)?,
        run: id(&row.try_get::<String, _>("run")?)?,
        tool: row.try_get("tool")?,
        arguments: row.try_get("arguments")?,
        bytes: row.try_get("plan")?,
        digest: digest(&row.try_get::<Vec<u8>, _>("plan_digest")?)?,
    })
}

fn nonce(stored: Option<Vec<u8>>) -> Result<Option<Nonce>> {
    let parsed = stored.map(|bytes| bytes.try_into().map(Nonce::new)).transpose();
    parsed.map_err(|_| StoreError::Malformed("nonce"))
}

fn execution(row: &SqliteRow) -> Result<ExecutionRow> {
    Ok(ExecutionRow {
        plan: plan(row)?,
        tenant: row.try_get("tenant")?,
        attempt: row.try_get("attempt")?,
        start_before_ms: row.try_get("start_before_ms")?,
        accepted_ms: row.try_get("accepted_ms")?,
        started_seq: to_u64(row.try_get("started_seq")?)?,
        state: ExecutionState::parse(&row.try_get::<String, _>("state")?)?,
        lease: id(&row.try_get::<String, _>("lease")?)?,
        container: row.try_get("container")?,
        cgroups: row.try_get("cgroups")?,
        reason: row.try_get("reason")?,
        started_ms: row.try_get("started_ms")?,
        started_data: row.try_get("started_data")?,
        nonce: nonce(row.try_get("nonce")?)?,
        ended: row.try_get("ended")?,
        finished: row.try_get("finished")?,
    })
}
