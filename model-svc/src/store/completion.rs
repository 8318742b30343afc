//! One row per model call, written before its only provider request, with the tokens it holds of its run's budget.

use event::Digest;
use event::id::{CallId, RunId, SessionId};
use sqlx::{Sqlite, Transaction};

use super::outbox::{self, Entry};
use super::row::{Columns, signed, text};
use super::session::{judged, terms};
use super::{Error, NoSession, Store, commit, failed};
use crate::owner::{Owner, Terms};
use crate::provider::Need;
use crate::turn::Outcome;

/// A call that wants to begin.
#[derive(Debug)]
pub(crate) struct Start<'s> {
    pub(crate) owner: &'s Owner,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) request: Digest,
    pub(crate) need: Need,
    /// Says that the call has started.
    pub(crate) entry: &'s Entry,
}

#[derive(Debug)]
pub(crate) enum Begun {
    /// The row is written: this is the only time that the call may be asked. `entry` names the entry to wait for.
    Now {
        output: u64,
        entry: i64,
    },
    /// The call has been begun before.
    Before(Completion),
    OtherRequest,
    OverBudget,
    NoSession(NoSession),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Completion {
    Requested,
    Done(Box<Outcome>),
    /// The process ended between the request and its answer.
    InDoubt,
}

/// A call that the process did not live to see the end of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interrupted {
    pub(crate) session: SessionId,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
}

impl Store {
    /// Reserves and records in one step, under the fence: whatever runs beside it, no run holds more than its budget.
    pub(crate) async fn begin(&self, start: &Start<'_>) -> Result<Begun, Error> {
        let mut tx = self.begin_tx().await?;
        let begun = try_begin(&mut tx, start).await?;
        commit(tx).await?;
        Ok(begun)
    }

    /// Settles what the call cost and keeps what it came to.
    pub(crate) async fn finish(
        &self,
        call: CallId,
        tokens: u64,
        outcome: &Outcome,
        entry: &Entry,
    ) -> Result<i64, Error> {
        let state = match outcome {
            Outcome::Answered(_) => "answered",
            Outcome::Failed(_) => "failed",
        };
        let outcome =
            serde_json::to_string(outcome).map_err(|_| Error::Corrupt { what: "outcome" })?;
        let mut tx = self.begin_tx().await?;
        sqlx::query(
            "UPDATE completion SET state = ?2, tokens = ?3, outcome = ?4 \
             WHERE call_id = ?1 AND state = 'requested'",
        )
        .bind(text(call))
        .bind(state)
        .bind(signed(tokens, "token count")?)
        .bind(outcome)
        .execute(&mut *tx)
        .await
        .map_err(failed("finish a call"))?;
        let id = outbox::put(&mut tx, entry).await?;
        commit(tx).await?;
        Ok(id)
    }

    pub(crate) async fn completion(
        &self,
        session: SessionId,
        call: CallId,
    ) -> Result<Option<Completion>, Error> {
        let mut tx = self.begin_tx().await?;
        let found = known(&mut tx, call).await?;
        commit(tx).await?;
        Ok(found.filter(|known| known.session == session).map(|known| known.completion))
    }

    /// Calls that no process waits for any more. They keep their whole reservation: nobody knows what they cost.
    pub(crate) async fn interrupted(&self) -> Result<Vec<(Interrupted, Terms)>, Error> {
        let mut tx = self.begin_tx().await?;
        let rows = sqlx::query(
            "SELECT session_id, call_id, attempt FROM completion WHERE state = 'requested'",
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(failed("find interrupted calls"))?;
        let mut interrupted = Vec::new();
        for row in rows.iter().map(Columns) {
            let session = row.id("session_id")?;
            let attempt = u32::try_from(row.number("attempt")?)
                .map_err(|_| Error::Corrupt { what: "attempt" })?;
            let terms = terms(&mut tx, session)
                .await?
                .ok_or(Error::Corrupt { what: "call without a session" })?;
            interrupted.push((Interrupted { session, call: row.id("call_id")?, attempt }, terms));
        }
        commit(tx).await?;
        Ok(interrupted)
    }

    pub(crate) async fn doubt(&self, call: CallId, entry: &Entry) -> Result<(), Error> {
        let mut tx = self.begin_tx().await?;
        sqlx::query(
            "UPDATE completion SET state = 'in_doubt' WHERE call_id = ?1 AND state = 'requested'",
        )
        .bind(text(call))
        .execute(&mut *tx)
        .await
        .map_err(failed("doubt a call"))?;
        outbox::put(&mut tx, entry).await?;
        commit(tx).await
    }
}

async fn try_begin(
    tx: &mut Transaction<'static, Sqlite>,
    start: &Start<'_>,
) -> Result<Begun, Error> {
    let terms = match judged(tx, start.owner).await? {
        Ok(terms) => terms,
        Err((why, _)) => return Ok(Begun::NoSession(why)),
    };
    if let Some(known) = known(tx, start.call).await? {
        let same = known.session == start.owner.session && known.request == start.request;
        return Ok(if same { Begun::Before(known.completion) } else { Begun::OtherRequest });
    }
    let Need { input, least, most } = start.need;
    let output = match terms.max_model_tokens {
        None => most,
        Some(limit) => {
            let held = held(tx, start.owner.session).await?;
            let left = limit.saturating_sub(held).checked_sub(input);
            match left {
                Some(left) if left >= least => most.min(left),
                Some(_) | None => return Ok(Begun::OverBudget),
            }
        }
    };
    sqlx::query(
        "INSERT INTO completion (call_id, session_id, run_id, attempt, request, state, tokens) \
         VALUES (?1, ?2, ?3, ?4, ?5, 'requested', ?6)",
    )
    .bind(text(start.call))
    .bind(text(start.owner.session))
    .bind(text(start.run))
    .bind(i64::from(start.attempt))
    .bind(start.request.as_bytes().as_slice())
    .bind(signed(input.saturating_add(output), "token count")?)
    .execute(&mut **tx)
    .await
    .map_err(failed("begin a call"))?;
    let entry = outbox::put(tx, start.entry).await?;
    Ok(Begun::Now { output, entry })
}

/// What the session's calls have cost or may cost, those of children too. The run's id is only the caller's word.
async fn held(tx: &mut Transaction<'static, Sqlite>, session: SessionId) -> Result<u64, Error> {
    let held: i64 =
        sqlx::query_scalar("SELECT coalesce(sum(tokens), 0) FROM completion WHERE session_id = ?1")
            .bind(text(session))
            .fetch_one(&mut **tx)
            .await
            .map_err(failed("add up a session"))?;
    u64::try_from(held).map_err(|_| Error::Corrupt { what: "token count" })
}

struct Known {
    session: SessionId,
    request: Digest,
    completion: Completion,
}

async fn known(
    tx: &mut Transaction<'static, Sqlite>,
    call: CallId,
) -> Result<Option<Known>, Error> {
    let row = sqlx::query(
        "SELECT session_id, request, state, outcome FROM completion WHERE call_id = ?1",
    )
    .bind(text(call))
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed("read a call"))?;
    let Some(row) = &row else { return Ok(None) };
    let row = Columns(row);
    let corrupt = Error::Corrupt { what: "outcome" };
    let completion = match (row.get::<&str>("state")?, row.get::<Option<&str>>("outcome")?) {
        ("requested", None) => Completion::Requested,
        ("in_doubt", None) => Completion::InDoubt,
        ("answered" | "failed", Some(outcome)) => {
            let outcome = serde_json::from_str(outcome).map_err(|_| corrupt)?;
            Completion::Done(Box::new(outcome))
        }
        _ => return Err(corrupt),
    };
    Ok(Some(Known { session: row.id("session_id")?, request: row.digest("request")?, completion }))
}
