//! One batch, one transaction, one sync. After an error the state is unknown: it is read again before anything else.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry::Vacant;

use event::Writer;
use event::id::{EventId, SessionId};
use ledger::{Hash, Tile};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, QueryBuilder, Sqlite};
use time::OffsetDateTime;

use super::{Store, connect, stored_head};
use crate::Error;
use crate::batch::{Ack, Batch, Facts, Known, Row, Tail, Tree};
use crate::entry::Entry;
use crate::error::failed;
use crate::refusal::Refused;

/// How many ends of streams are kept in memory.
const REMEMBERED: usize = 4096;

/// What one request is told.
pub(crate) type Answer = Result<Vec<Ack>, Refused>;

/// Why a batch is not known to be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("the transaction failed to {doing}")]
    Database {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("the head in the store is not the one in memory")]
    Overtaken,
    #[error("a row of the store cannot be read")]
    Row,
    #[error("an entry does not fit into its envelope")]
    TooLong(#[source] ledger::TooLong),
    #[error("there is no randomness for a salt")]
    Salt(#[source] getrandom::Error),
}

/// What became of the transaction that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stored,
    NotStored,
    /// Neither: somebody else has written, or the disk lies.
    Diverged,
}

fn doing(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Failed {
    move |source| Failed::Database { doing, source }
}

impl Store {
    /// Stores all requests that may be stored, in one transaction; the answers are true once this returns. After an error
    /// nothing is known until [`Store::recover`] says so.
    pub(crate) async fn append(
        &mut self,
        requests: Vec<Vec<Entry>>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Failed> {
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1000;
        let now_us = i64::try_from(now).unwrap_or_default();
        let mut transaction =
            self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(doing("begin"))?;
        let mut facts = Facts {
            tails: std::mem::take(&mut self.tails),
            tenants: std::mem::take(&mut self.tenants),
            ..Facts::default()
        };
        if facts.tails.len().max(facts.tenants.len()) > REMEMBERED {
            facts = Facts::default();
        }
        learn(&mut transaction, &requests, &mut facts).await?;
        let mut batch = Batch::new(&self.origin, now_us, self.tree.clone(), facts);
        for entries in requests {
            let salts =
                entries.iter().map(|_| salt()).collect::<Result<_, _>>().map_err(Failed::Salt)?;
            answers.push(batch.add(entries, salts).map_err(Failed::TooLong)?);
        }
        let Batch { tree, facts, rows, tiles, .. } = batch;
        if rows.is_empty() {
            transaction.rollback().await.map_err(doing("end"))?;
        } else {
            self.attempt = Some(tree.clone());
            write(&mut transaction, &rows, &tiles, &self.tree, &tree).await?;
            transaction.commit().await.map_err(doing("commit"))?;
            self.attempt = None;
        }
        self.tree = tree;
        self.tails = facts.tails;
        self.tenants = facts.tenants;
        Ok(())
    }

    /// Opens the store anew and says what became of the last transaction.
    pub(crate) async fn recover(&mut self) -> Result<Outcome, Error> {
        let writer = connect(&self.options).await?;
        let old = std::mem::replace(&mut self.writer, writer);
        if let Err(error) = old.close_hard().await {
            tracing::warn!(error = %transport::Chain(&error), "the failed connection was not closed in order");
        }
        let probe = self
            .writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(failed("begin a transaction"))?;
        probe.rollback().await.map_err(failed("end a transaction"))?;
        let head = stored_head(&mut self.writer).await?;
        self.tails.clear();
        self.tenants.clear();
        let attempt = self.attempt.take();
        if head.frontier == self.tree.frontier {
            return Ok(Outcome::NotStored);
        }
        match attempt {
            Some(tree) if tree.frontier == head.frontier => {
                self.tree = tree;
                Ok(Outcome::Stored)
            }
            Some(_) | None => Ok(Outcome::Diverged),
        }
    }
}

fn salt() -> Result<[u8; 32], getrandom::Error> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)?;
    Ok(salt)
}

/// Reads what the batch must know to decide; what is remembered is not read again.
async fn learn(
    connection: &mut SqliteConnection,
    requests: &[Vec<Entry>],
    facts: &mut Facts,
) -> Result<(), Failed> {
    let entries = || requests.iter().flatten();
    learn_known(connection, entries().map(|entry| entry.event_id), facts).await?;
    let streams: BTreeSet<(Writer, SessionId)> =
        entries().map(|entry| (entry.writer, entry.session)).collect();
    for (writer, session) in streams {
        if let Vacant(tail) = facts.tails.entry((writer, session))
            && let Some(stored) = stored_tail(connection, writer, session).await?
        {
            tail.insert(stored);
        }
        if let Vacant(tenant) = facts.tenants.entry(session)
            && let Some(stored) = stored_tenant(connection, session).await?
        {
            tenant.insert(stored);
        }
    }
    Ok(())
}

async fn stored_tail(
    connection: &mut SqliteConnection,
    writer: Writer,
    session: SessionId,
) -> Result<Option<Tail>, Failed> {
    let tail: Option<(i64, Vec<u8>)> = sqlx::query_as(
        "SELECT seq, leaf_hash FROM events WHERE writer = ?1 AND session = ?2 ORDER BY seq DESC LIMIT 1",
    )
    .bind(writer.as_str())
    .bind(session.to_string())
    .fetch_optional(connection)
    .await
    .map_err(doing("read the end of a stream"))?;
    let Some((seq, leaf)) = tail else { return Ok(None) };
    let leaf = Hash::from_slice(&leaf).map_err(|_| Failed::Row)?;
    Ok(Some(Tail { next: seq.cast_unsigned() + 1, leaf }))
}

async fn stored_tenant(
    connection: &mut SqliteConnection,
    session: SessionId,
) -> Result<Option<String>, Failed> {
    sqlx::query_scalar("SELECT tenant FROM events WHERE session = ?1 LIMIT 1")
        .bind(session.to_string())
        .fetch_optional(connection)
        .await
        .map_err(doing("read a session's tenant"))
}

#[derive(sqlx::FromRow)]
struct KnownRow {
    event_id: String,
    log_index: i64,
    writer: String,
    session: String,
    seq: i64,
    leaf_hash: Vec<u8>,
    payload: Vec<u8>,
}

async fn learn_known(
    connection: &mut SqliteConnection,
    ids: impl Iterator<Item = EventId>,
    facts: &mut Facts,
) -> Result<(), Failed> {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let rows: Vec<KnownRow> = sqlx::query_as(
        "SELECT event_id, log_index, writer, session, seq, leaf_hash, payload FROM events JOIN payloads USING (log_index)
         WHERE event_id IN (SELECT value FROM json_each(?1))",
    )
    .bind(serde_json::json!(ids).to_string())
    .fetch_all(connection)
    .await
    .map_err(doing("read known entries"))?;
    for KnownRow { event_id, log_index, writer, session, seq, leaf_hash, payload } in rows {
        let id = EventId::parse(&event_id).map_err(|_| Failed::Row)?;
        let session = SessionId::parse(&session).map_err(|_| Failed::Row)?;
        let writer: Writer = writer.parse().map_err(|_| Failed::Row)?;
        let leaf = Hash::from_slice(&leaf_hash).map_err(|_| Failed::Row)?;
        let ack =
            Ack { log_index: log_index.cast_unsigned(), session, seq: seq.cast_unsigned(), leaf };
        facts.known.insert(id, Known { stream: (writer, session), ack, payload });
    }
    Ok(())
}

async fn write(
    connection: &mut SqliteConnection,
    rows: &[Row],
    tiles: &[Tile],
    before: &Tree,
    after: &Tree,
) -> Result<(), Failed> {
    let mut events = QueryBuilder::<Sqlite>::new(
        "INSERT INTO events (log_index, event_id, tenant, writer, session, seq, type, actor_kind, actor_id, tool,
         decision, occurred_us, recorded_us, leaf_hash, envelope) ",
    );
    events.push_values(rows, |mut row, Row { log_index, envelope, envelope_bytes, leaf, .. }| {
        let actor = envelope.actor.as_ref();
        row.push_bind(log_index.cast_signed())
            .push_bind(&envelope.event_id)
            .push_bind(&envelope.tenant)
            .push_bind(&envelope.writer)
            .push_bind(&envelope.session)
            .push_bind(envelope.seq.cast_signed())
            .push_bind(&envelope.kind)
            .push_bind(actor.map(|actor| &actor.kind))
            .push_bind(actor.and_then(|actor| actor.id.as_ref()))
            .push_bind(&envelope.tool)
            .push_bind(&envelope.decision)
            .push_bind(envelope.occurred_us)
            .push_bind(envelope.recorded_us)
            .push_bind(leaf.as_bytes().as_slice())
            .push_bind(envelope_bytes);
    });
    // Not kept as prepared: there would be one for each number of rows.
    events
        .build()
        .persistent(false)
        .execute(&mut *connection)
        .await
        .map_err(doing("write entries"))?;

    let mut payloads =
        QueryBuilder::<Sqlite>::new("INSERT INTO payloads (log_index, payload, salt) ");
    payloads.push_values(rows, |mut row, Row { log_index, payload, salt, .. }| {
        row.push_bind(log_index.cast_signed()).push_bind(payload).push_bind(salt.as_slice());
    });
    payloads
        .build()
        .persistent(false)
        .execute(&mut *connection)
        .await
        .map_err(doing("write payloads"))?;

    for tile in tiles {
        sqlx::query("INSERT INTO hash_tiles (level, idx, hashes) VALUES (?1, ?2, ?3)")
            .bind(i64::from(tile.level))
            .bind(tile.index.cast_signed())
            .bind(tile.to_bytes())
            .execute(&mut *connection)
            .await
            .map_err(doing("write a tile"))?;
    }

    let head = sqlx::query("UPDATE log_head SET size = ?1, frontier = ?2, last_recorded_us = ?3 WHERE size = ?4 AND frontier = ?5")
        .bind(after.frontier.size().cast_signed())
        .bind(after.frontier.to_bytes())
        .bind(after.recorded_us)
        .bind(before.frontier.size().cast_signed())
        .bind(before.frontier.to_bytes())
        .execute(connection)
        .await
        .map_err(doing("move the head"))?;
    if head.rows_affected() == 1 { Ok(()) } else { Err(Failed::Overtaken) }
}
