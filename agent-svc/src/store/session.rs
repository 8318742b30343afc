//! Session rows, and what is read of them. Reads for a caller are by tenant.

use event::Digest;
use event::id::{RunId, SessionId};
use receipt::OnDisconnect;
use sqlx::sqlite::SqliteRow;

use super::row::{Columns, text};
use super::{Error, Node, Owner, Store, failed};
use crate::clock::Millis;
use crate::outcome::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Recorded, but no executor has accepted it yet: nobody has been told that it exists.
    Opening,
    Created,
    Running,
    AwaitingPerson,
    NeedsOperator,
    /// Over, with the environment still to be closed.
    Closing,
    Done,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Created => "created",
            Self::Running => "running",
            Self::AwaitingPerson => "awaiting_person",
            Self::NeedsOperator => "needs_operator",
            Self::Closing => "closing",
            Self::Done => "done",
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "opening" => Ok(Self::Opening),
            "created" => Ok(Self::Created),
            "running" => Ok(Self::Running),
            "awaiting_person" => Ok(Self::AwaitingPerson),
            "needs_operator" => Ok(Self::NeedsOperator),
            "closing" => Ok(Self::Closing),
            "done" => Ok(Self::Done),
            _ => Err(Error::Corrupt { what: "session state" }),
        }
    }
}

fn on_disconnect_text(policy: OnDisconnect) -> &'static str {
    match policy {
        OnDisconnect::Deny => "deny",
        OnDisconnect::Hold => "hold",
    }
}

fn on_disconnect(text: &str) -> Result<OnDisconnect, Error> {
    match text {
        "deny" => Ok(OnDisconnect::Deny),
        "hold" => Ok(OnDisconnect::Hold),
        _ => Err(Error::Corrupt { what: "disconnect policy" }),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Session {
    pub(crate) owner: Owner,
    pub(crate) tenant: String,
    pub(crate) subject: String,
    pub(crate) grant: Vec<u8>,
    pub(crate) manifest_id: String,
    pub(crate) policy_rev: Digest,
    pub(crate) workspace: String,
    pub(crate) model: String,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) state: State,
    /// Somebody who could answer was attached once.
    pub(crate) attended: bool,
    pub(crate) created_at: Millis,
    /// The last sequence number that is recorded.
    pub(crate) last_seq: Option<u64>,
    /// The last one that audit-svc has acknowledged.
    pub(crate) through_seq: Option<u64>,
    pub(crate) run: Option<RunId>,
    pub(crate) outcome: Option<Outcome>,
}

/// Without the manifest, which is large and seldom wanted.
macro_rules! select {
    ($rest:literal) => {
        sqlx::query(concat!(
            "SELECT session_id, tenant, subject, grant_signed, manifest_id, policy_rev, workspace, model, \
             on_disconnect, state, attended, owner_node, owner_epoch, created_at, outcome, next_seq, \
             COALESCE((SELECT MIN(seq) FROM outbox WHERE outbox.session_id = session.session_id), next_seq) \
             AS unacknowledged, \
             (SELECT run_id FROM run WHERE run.session_id = session.session_id AND run.parent_run_id IS NULL ORDER BY ordinal DESC LIMIT 1) \
             AS run_id FROM session ",
            $rest
        ))
    };
}

mod opening;
mod owner;

pub(crate) use opening::{NewSession, Opened};
pub(in crate::store) use owner::take_seq;

pub(in crate::store) fn owner(row: &Columns<'_>) -> Result<Owner, Error> {
    Ok(Owner {
        session: row.id("session_id", SessionId::parse)?,
        node: Node(row.id("owner_node", uuid::Uuid::parse_str)?),
        epoch: row.number("owner_epoch")?,
    })
}

fn session(row: &SqliteRow) -> Result<Session, Error> {
    let row = Columns(row);
    let outcome: Option<&str> = row.get("outcome")?;
    let run: Option<&str> = row.get("run_id")?;
    Ok(Session {
        owner: owner(&row)?,
        tenant: row.get("tenant")?,
        subject: row.get("subject")?,
        grant: row.get("grant_signed")?,
        manifest_id: row.get("manifest_id")?,
        policy_rev: row.id("policy_rev", str::parse)?,
        workspace: row.get("workspace")?,
        model: row.get("model")?,
        on_disconnect: on_disconnect(row.get("on_disconnect")?)?,
        state: State::parse(row.get("state")?)?,
        attended: row.flag("attended")?,
        created_at: Millis(row.get("created_at")?),
        last_seq: row.number("next_seq")?.checked_sub(1),
        through_seq: row.number("unacknowledged")?.checked_sub(1),
        run: run.map(RunId::parse).transpose().map_err(|_| Error::Corrupt { what: "run id" })?,
        outcome: outcome
            .map(serde_json::from_str)
            .transpose()
            .map_err(|_| Error::Corrupt { what: "outcome" })?,
    })
}

impl Store {
    /// Somebody who can answer has attached.
    pub(crate) async fn attend(&self, id: SessionId) -> Result<(), Error> {
        sqlx::query("UPDATE session SET attended = 1 WHERE session_id = ?1 AND attended = 0")
            .bind(text(id))
            .execute(&self.writer)
            .await
            .map_err(failed("note an attached client"))?;
        Ok(())
    }

    pub(crate) async fn manifest(&self, id: SessionId) -> Result<Vec<u8>, Error> {
        sqlx::query_scalar("SELECT manifest FROM session WHERE session_id = ?1")
            .bind(text(id))
            .fetch_one(&self.readers)
            .await
            .map_err(failed("read a manifest"))
    }

    pub(crate) async fn grant_and_manifest(
        &self,
        id: SessionId,
    ) -> Result<(Vec<u8>, Vec<u8>), Error> {
        sqlx::query_as("SELECT grant_signed, manifest FROM session WHERE session_id = ?1")
            .bind(text(id))
            .fetch_one(&self.readers)
            .await
            .map_err(failed("read a grant"))
    }

    pub(crate) async fn session(
        &self,
        tenant: &str,
        id: SessionId,
    ) -> Result<Option<Session>, Error> {
        let row = select!("WHERE session_id = ?1 AND tenant = ?2 AND state <> 'opening'")
            .bind(text(id))
            .bind(tenant)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("read a session"))?;
        row.as_ref().map(session).transpose()
    }

    pub(crate) async fn session_of_run(
        &self,
        tenant: &str,
        run: RunId,
    ) -> Result<Option<Session>, Error> {
        let row = select!(
            "WHERE tenant = ?2 AND session_id = (SELECT session_id FROM run WHERE run.run_id = ?1)"
        )
        .bind(text(run))
        .bind(tenant)
        .fetch_optional(&self.readers)
        .await
        .map_err(failed("read a run's session"))?;
        row.as_ref().map(session).transpose()
    }

    /// Newest first, below `before`.
    pub(crate) async fn list_sessions(
        &self,
        tenant: &str,
        before: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Session>, Error> {
        let rows = select!(
            "WHERE tenant = ?1 AND state <> 'opening' AND (?2 IS NULL OR session_id < ?2) ORDER BY session_id DESC LIMIT ?3"
        )
        .bind(tenant)
        .bind(before.map(text))
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("list sessions"))?;
        rows.iter().map(session).collect()
    }
}
