//! Permission rows: written when a run asks, read by all, folded when the run knows the answer.

mod answer;
mod kept;

use event::Source;
use event::id::{CallId, PermissionId, RunId, SessionId};
use receipt::{Plan, Scope};
use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, Transaction};

use super::row::{Columns, signed, text};
use super::{Error, Store, failed};
use crate::clock::Millis;
use crate::permission::{Ask, Permission, Standing};

pub(crate) use answer::{Claimed, Resolved};
pub(crate) use kept::{Counted, NewReceipt, Tally, Untold};
pub(super) use kept::{dropped, told};

/// Where the answer that a run is told comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// The row has it.
    Answered,
    /// The run itself denies what nobody has answered.
    Denied { source: Source, by: Option<String> },
}

macro_rules! select {
    ($rest:literal) => {
        sqlx::query(concat!(
            "SELECT permission_id, run_id, call_id, plan, plan_digest, action_digest, expires_at, requested_seq, \
             resolved_seq, standing, source, decided_by, scope, note, claimed_at, leased_until, receipt FROM permission ",
            $rest
        ))
    };
}

fn scope(text: Option<&str>) -> Result<Scope, Error> {
    match text {
        Some("once") => Ok(Scope::Once),
        Some("run") => Ok(Scope::Run),
        Some(_) | None => Err(Error::Corrupt { what: "scope" }),
    }
}

fn source(text: Option<&str>) -> Result<Source, Error> {
    const ALL: [Source; 9] = [
        Source::Operator,
        Source::Timeout,
        Source::Cancel,
        Source::Disconnect,
        Source::MissingResolver,
        Source::MalformedAnswer,
        Source::SessionEnd,
        Source::Policy,
        Source::System,
    ];
    let found = ALL.into_iter().find(|source| Some(source.as_str()) == text);
    found.ok_or(Error::Corrupt { what: "deny source" })
}

fn standing(row: &Columns<'_>) -> Result<Standing, Error> {
    let by: Option<String> = row.get("decided_by")?;
    let named = |by: Option<String>| by.ok_or(Error::Corrupt { what: "decider" });
    let note = row.get("note")?;
    match row.get("standing")? {
        "open" => Ok(Standing::Open),
        "leased" => Ok(Standing::Leased {
            by: named(by)?,
            scope: scope(row.get("scope")?)?,
            note,
            until: Millis(row.get("leased_until")?),
        }),
        "allowed" => Ok(Standing::Allowed {
            by: named(by)?,
            scope: scope(row.get("scope")?)?,
            note,
            claimed_at: Millis(row.get("claimed_at")?),
            receipt: row.get("receipt")?,
        }),
        "denied" => Ok(Standing::Denied { source: source(row.get("source")?)?, by, note }),
        _ => Err(Error::Corrupt { what: "standing" }),
    }
}

fn permission(row: &SqliteRow) -> Result<Permission, Error> {
    let row = Columns(row);
    Ok(Permission {
        ask: Ask {
            id: row.id("permission_id", PermissionId::parse)?,
            run: row.id("run_id", RunId::parse)?,
            call: row.id("call_id", CallId::parse)?,
            plan: Plan::parse(row.get("plan")?).map_err(|_| Error::Corrupt { what: "plan" })?,
            bytes: row.get("plan")?,
            plan_digest: row.digest("plan_digest")?,
            action_digest: row.digest("action_digest")?,
            expires_at: Millis(row.get("expires_at")?),
        },
        requested_seq: row.number("requested_seq")?,
        standing: standing(&row)?,
        resolved_seq: row.maybe_number("resolved_seq")?,
    })
}

impl Store {
    pub(crate) async fn permission(
        &self,
        session: SessionId,
        id: PermissionId,
    ) -> Result<Option<Permission>, Error> {
        let row = select!("WHERE permission_id = ?1 AND session_id = ?2")
            .bind(text(id))
            .bind(text(session))
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read a permission"))?;
        row.as_ref().map(permission).transpose()
    }

    /// The ask whose answer the run does not know yet; a run has one at a time.
    pub(crate) async fn unfolded(&self, run: RunId) -> Result<Option<Permission>, Error> {
        let row = select!("WHERE run_id = ?1 AND resolved_seq IS NULL")
            .bind(text(run))
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read an ask"))?;
        row.as_ref().map(permission).transpose()
    }

    /// The permission.requested entries of what is still asked, as far as they are acknowledged.
    pub(crate) async fn open_asks(
        &self,
        session: SessionId,
        through_seq: Option<u64>,
    ) -> Result<Vec<(u64, PermissionId, Vec<u8>)>, Error> {
        let Some(through) = through_seq else { return Ok(Vec::new()) };
        let rows = sqlx::query(
            "SELECT permission_id, requested_seq, requested FROM permission WHERE session_id = ?1 \
             AND standing IN ('open', 'leased') AND requested_seq <= ?2 ORDER BY requested_seq",
        )
        .bind(text(session))
        .bind(signed(through, "sequence number")?)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list open asks"))?;
        rows.iter()
            .map(Columns)
            .map(|row| {
                let id = row.id("permission_id", PermissionId::parse)?;
                Ok((row.number("requested_seq")?, id, row.get("requested")?))
            })
            .collect()
    }
}

async fn read(
    tx: &mut Transaction<'static, Sqlite>,
    (session, id): (SessionId, PermissionId),
) -> Result<Option<Permission>, Error> {
    let row = select!("WHERE permission_id = ?1 AND session_id = ?2")
        .bind(text(id))
        .bind(text(session))
        .fetch_optional(&mut **tx)
        .await
        .map_err(failed("read a permission"))?;
    row.as_ref().map(permission).transpose()
}

/// Part of the transaction that records the ask.
pub(super) async fn insert(
    tx: &mut Transaction<'static, Sqlite>,
    session: SessionId,
    ask: &Ask,
    requested: &[u8],
    requested_seq: u64,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO permission (permission_id, session_id, run_id, call_id, plan, plan_digest, action_digest, \
         requested, requested_seq, expires_at, standing) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'open')",
    )
    .bind(text(ask.id))
    .bind(text(session))
    .bind(text(ask.run))
    .bind(text(ask.call))
    .bind(&ask.bytes)
    .bind(ask.plan_digest.as_bytes().as_slice())
    .bind(ask.action_digest.as_bytes().as_slice())
    .bind(requested)
    .bind(signed(requested_seq, "sequence number")?)
    .bind(ask.expires_at.0)
    .execute(&mut **tx)
    .await
    .map_err(failed("record an ask"))?;
    Ok(())
}

/// Part of the transaction that records the answer. It is taken from the row or put there, once.
pub(super) async fn fold(
    tx: &mut Transaction<'static, Sqlite>,
    id: PermissionId,
    resolved_seq: u64,
    how: &How,
    now: Millis,
) -> Result<(), Error> {
    let query = match how {
        How::Answered => sqlx::query(
            "UPDATE permission SET resolved_seq = ?2, requested = NULL \
             WHERE permission_id = ?1 AND resolved_seq IS NULL AND standing IN ('allowed', 'denied')",
        )
        .bind(text(id))
        .bind(signed(resolved_seq, "sequence number")?),
        How::Denied { source, by } => sqlx::query(
            "UPDATE permission SET standing = 'denied', source = ?3, decided_by = ?4, scope = NULL, note = NULL, \
             leased_until = NULL, resolved_seq = ?2, requested = NULL \
             WHERE permission_id = ?1 AND resolved_seq IS NULL \
             AND (standing = 'open' OR (standing = 'leased' AND (?5 OR leased_until <= ?6)))",
        )
        .bind(text(id))
        .bind(signed(resolved_seq, "sequence number")?)
        .bind(source.as_str())
        .bind(by)
        .bind(ends_lease(*source))
        .bind(now.0),
    };
    let folded = query.execute(&mut **tx).await.map_err(failed("fold an answer"))?;
    if folded.rows_affected() == 1 { Ok(()) } else { Err(Error::Overtaken) }
}

/// Time and absence wait for a claimed allow; the end of the run does not.
fn ends_lease(source: Source) -> bool {
    match source {
        Source::Cancel | Source::Disconnect | Source::SessionEnd | Source::System => true,
        Source::Operator
        | Source::Timeout
        | Source::MissingResolver
        | Source::MalformedAnswer
        | Source::Policy => false,
    }
}
