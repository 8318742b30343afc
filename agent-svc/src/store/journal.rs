//! What a run has decided: the kernel's record, its events and its working state, in one fenced transaction.

use std::collections::BTreeMap;

use event::id::{CallId, PermissionId, ReceiptId, RunId};
use manifest::Profile;
use prost::Message as _;
use proto::model::v1::Message;
use receipt::Executor;
use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, Transaction};

use super::row::{Columns, signed, text};
use super::session::State;
use super::{Entry, Error, How, Owner, Store, commit, failed, outbox, permission};
use crate::clock::Millis;
use crate::outcome::{Outcome, Usage};
use crate::permission::Ask;
use crate::work::{Call, Descent, Output};

/// One step of a session. Everything in it is stored, or nothing is.
#[derive(Debug)]
pub(crate) struct Append {
    pub(crate) at: Millis,
    pub(crate) changes: Vec<Change>,
    /// The kernel's events, encoded.
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) entries: Vec<Entry>,
}

impl Append {
    pub(crate) fn new(at: Millis) -> Self {
        Self { at, changes: Vec::new(), records: Vec::new(), entries: Vec::new() }
    }
}

/// An `entry` is an index into the entries of the same step.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Began {
        run: RunId,
        descent: Option<Descent>,
    },
    /// A child is over, and with it what was allowed for its run.
    Over,
    /// Something that the model will be shown.
    Said(Message),
    Spent(Usage),
    Called {
        id: CallId,
        call: Call,
    },
    Asked {
        ask: Box<Ask>,
        entry: usize,
    },
    Answered {
        permission: PermissionId,
        entry: usize,
        how: How,
    },
    /// The stream tells that this allow counts.
    Counted {
        receipt: ReceiptId,
        entry: usize,
    },
    /// An allow for the run covers another call.
    Used(PermissionId),
    /// The call's executor does not take what was allowed, so it covers nothing any more.
    Dropped {
        permission: PermissionId,
        call: CallId,
        why: String,
    },
    /// The stream tells that this attempt has begun.
    Announced {
        call: CallId,
        attempt: u32,
    },
    /// Another attempt follows; its output begins anew.
    Retried(CallId),
    Output {
        call: CallId,
        output: Output,
    },
    Entered(State),
    Ended(Outcome),
}

/// What recovery folds.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) messages: Vec<Message>,
    pub(crate) calls: BTreeMap<CallId, Call>,
    pub(crate) usage: Usage,
    pub(crate) ask: Option<Ask>,
    pub(crate) descent: Option<Descent>,
}

impl Store {
    /// Writes one step as the session's owner and returns the sequence number of its first entry.
    pub(crate) async fn append(
        &self,
        owner: Owner,
        run: Option<RunId>,
        append: &Append,
    ) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let first = outbox::put(&mut tx, owner, &append.entries).await?;
        for change in &append.changes {
            write(&mut tx, owner, run, first, append, change).await?;
        }
        for record in &append.records {
            put_record(&mut tx, run.ok_or(OUTSIDE)?, record).await?;
        }
        commit(tx).await?;
        Ok(first)
    }

    /// Whether the run was ever begun.
    pub(crate) async fn has_run(&self, run: RunId) -> Result<bool, Error> {
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM run WHERE run_id = ?1)")
            .bind(text(run))
            .fetch_one(&self.readers)
            .await
            .map_err(failed("look for a run"))
    }

    pub(crate) async fn journal(&self, run: RunId) -> Result<Journal, Error> {
        let records =
            sqlx::query_scalar("SELECT body FROM record WHERE run_id = ?1 ORDER BY ordinal")
                .bind(text(run))
                .fetch_all(&self.readers)
                .await
                .map_err(failed("read a record"))?;
        let messages: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT body FROM message WHERE run_id = ?1 ORDER BY ordinal")
                .bind(text(run))
                .fetch_all(&self.readers)
                .await
                .map_err(failed("read a transcript"))?;
        let calls = sqlx::query(
            "SELECT call_id, provider_id, tool, arguments, executor, announced, output_offset, output_shown, uncounted \
             FROM call WHERE run_id = ?1",
        )
        .bind(text(run))
        .fetch_all(&self.readers)
        .await
        .map_err(failed("read calls"))?;
        let usage =
            sqlx::query("SELECT prompt_tokens, completion_tokens, parent_run_id, profile FROM run WHERE run_id = ?1")
                .bind(text(run))
                .fetch_one(&self.readers)
                .await
                .map_err(failed("read a run"))?;
        let usage = Columns(&usage);
        Ok(Journal {
            records,
            messages: messages
                .iter()
                .map(|body| Message::decode(body.as_slice()))
                .collect::<Result<_, _>>()
                .map_err(|_| Error::Corrupt { what: "message" })?,
            calls: calls.iter().map(call).collect::<Result<_, _>>()?,
            usage: Usage {
                prompt_tokens: usage.number("prompt_tokens")?,
                completion_tokens: usage.number("completion_tokens")?,
            },
            ask: self.unfolded(run).await?.map(|permission| permission.ask),
            descent: descent(&usage)?,
        })
    }
}

fn descent(row: &Columns<'_>) -> Result<Option<Descent>, Error> {
    let corrupt = || Error::Corrupt { what: "descent of a run" };
    match (row.get::<Option<&str>>("parent_run_id")?, row.get::<Option<&str>>("profile")?) {
        (None, None) => Ok(None),
        (Some(parent), Some(profile)) => Ok(Some(Descent {
            parent: RunId::parse(parent).map_err(|_| corrupt())?,
            profile: Profile::named(profile).ok_or_else(corrupt)?,
        })),
        (Some(_), None) | (None, Some(_)) => Err(corrupt()),
    }
}

const OUTSIDE: Error = Error::Corrupt { what: "change outside of a run" };

fn call(row: &SqliteRow) -> Result<(CallId, Call), Error> {
    let row = Columns(row);
    let executor = match row.get::<Option<&str>>("executor")? {
        Some("sandbox-svc") => Some(Executor::SandboxSvc),
        Some("model-svc") => Some(Executor::ModelSvc),
        Some(_) => return Err(Error::Corrupt { what: "executor" }),
        None => None,
    };
    let call = Call {
        provider_id: row.get("provider_id")?,
        tool: row.get("tool")?,
        arguments: row.get("arguments")?,
        executor,
        announced: row.get("announced")?,
        output: Output { offset: row.number("output_offset")?, shown: row.number("output_shown")? },
        uncounted: row.get("uncounted")?,
    };
    Ok((row.id("call_id", CallId::parse)?, call))
}

async fn put_record(
    tx: &mut Transaction<'static, Sqlite>,
    run: RunId,
    body: &[u8],
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO record (run_id, ordinal, kernel_version, body) \
         SELECT ?1, COALESCE(MAX(ordinal) + 1, 0), ?2, ?3 FROM record WHERE run_id = ?1",
    )
    .bind(text(run))
    .bind(i64::from(kernel::record::VERSION))
    .bind(body)
    .execute(&mut **tx)
    .await
    .map_err(failed("write a record"))?;
    Ok(())
}

async fn write(
    tx: &mut Transaction<'static, Sqlite>,
    owner: Owner,
    run: Option<RunId>,
    first: u64,
    append: &Append,
    change: &Change,
) -> Result<(), Error> {
    let run_id = || run.map(text).ok_or(OUTSIDE);
    let seq = |entry: usize| first + u64::try_from(entry).unwrap_or(u64::MAX);
    let query = match change {
        Change::Asked { ask, entry } => {
            let requested = append.entries.get(*entry);
            let requested = requested.ok_or(Error::Corrupt { what: "ask without its event" })?;
            let bytes = &requested.sealed.bytes;
            return permission::insert(tx, owner.session, ask, bytes, seq(*entry)).await;
        }
        Change::Answered { permission, entry, how } => {
            return permission::fold(tx, *permission, seq(*entry), how, append.at).await;
        }
        Change::Counted { receipt, entry } => {
            return permission::told(tx, *receipt, seq(*entry)).await;
        }
        Change::Used(permission) => {
            sqlx::query("UPDATE receipt SET uses = uses + 1 WHERE permission_id = ?1")
                .bind(text(permission))
        }
        Change::Dropped { permission, call, why } => {
            permission::dropped(tx, *permission).await?;
            sqlx::query("UPDATE call SET uncounted = ?2 WHERE call_id = ?1").bind(text(call)).bind(why)
        }
        Change::Began { run, descent } => sqlx::query(
            "INSERT INTO run (run_id, session_id, ordinal, started_at, parent_run_id, profile) \
             SELECT ?1, ?2, COALESCE(MAX(ordinal) + 1, 0), ?3, ?4, ?5 FROM run WHERE session_id = ?2",
        )
        .bind(text(run))
        .bind(text(owner.session))
        .bind(append.at.0)
        .bind(descent.map(|descent| text(descent.parent)))
        .bind(descent.map(|descent| descent.profile.as_str())),
        Change::Over => {
            sqlx::query("UPDATE run SET over = 1 WHERE run_id = ?1").bind(run_id()?)
        }
        Change::Said(message) => sqlx::query(
            "INSERT INTO message (run_id, ordinal, body) \
             SELECT ?1, COALESCE(MAX(ordinal) + 1, 0), ?2 FROM message WHERE run_id = ?1",
        )
        .bind(run_id()?)
        .bind(message.encode_to_vec()),
        Change::Spent(Usage { prompt_tokens, completion_tokens }) => sqlx::query(
            "UPDATE run SET prompt_tokens = prompt_tokens + ?2, completion_tokens = completion_tokens + ?3 \
             WHERE run_id = ?1",
        )
        .bind(run_id()?)
        .bind(signed(*prompt_tokens, "number of tokens")?)
        .bind(signed(*completion_tokens, "number of tokens")?),
        Change::Called { id, call } => sqlx::query(
            "INSERT INTO call (call_id, run_id, provider_id, tool, arguments, executor) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .bind(text(id))
        .bind(run_id()?)
        .bind(&call.provider_id)
        .bind(&call.tool)
        .bind(&call.arguments)
        .bind(call.executor.map(Executor::as_str)),
        Change::Announced { call, attempt } => {
            sqlx::query("UPDATE call SET announced = ?2 WHERE call_id = ?1")
                .bind(text(call))
                .bind(*attempt)
        }
        Change::Retried(call) => {
            sqlx::query("UPDATE call SET output_offset = 0 WHERE call_id = ?1").bind(text(call))
        }
        Change::Output { call, output } => sqlx::query(
            "UPDATE call SET output_offset = ?2, output_shown = ?3 WHERE call_id = ?1",
        )
        .bind(text(call))
        .bind(signed(output.offset, "offset")?)
        .bind(signed(output.shown, "offset")?),
        Change::Entered(state) => sqlx::query("UPDATE session SET state = ?2 WHERE session_id = ?1")
            .bind(text(owner.session))
            .bind(state.as_str()),
        Change::Ended(outcome) => sqlx::query("UPDATE session SET outcome = ?2 WHERE session_id = ?1")
            .bind(text(owner.session))
            .bind(serde_json::to_string(outcome).map_err(|_| Error::Corrupt { what: "outcome" })?),
    };
    query.execute(&mut **tx).await.map_err(failed("write a step"))?;
    Ok(())
}
