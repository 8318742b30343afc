//! `grants`: the standing allows of a run, listed and taken back. It gives none.
use acp::{AttachParams, Code, GrantRevokeAnswer, RunGrant};
use clap::Subcommand;
use event::id::{ReceiptId, RunId, SessionId};
use serde::Serialize;

use crate::{
    Error,
    error::{Exit, Explain},
    escape, output,
    session::{self, Part, Session},
    target::Target,
};

const EXAMPLES: &str = "\
Examples:
  harness grants list --state ./mesh 0198f000-0000-7000-8000-000000000002
  harness grants revoke --state ./mesh 0198f000-0000-7000-8000-000000000002 0198f000-0000-7000-8000-00000000000b

A standing allow admits later calls of its run that are exactly the action that was approved. Revoked, it admits none
from then on; what it has admitted is not undone. Where the executor can not be told at once, that is said (pending). revoke exits 1 when there was nothing to take back.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Grants {
    /// Print what stands
    List {
        #[command(flatten)]
        target: Target,
        /// The run, or its session
        #[arg(value_name = "RUN|SESSION")]
        id: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take one back
    Revoke {
        #[command(flatten)]
        target: Target,
        /// The run, or its session
        #[arg(value_name = "RUN|SESSION")]
        id: String,
        /// Its receipt, as the list names it
        receipt: ReceiptId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("'{0}' is not an id")]
    NotAnId(String),
    #[error("no allow stands under the receipt {0}")]
    Nothing(ReceiptId),
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::NotAnId(_) => Exit::Usage,
            Self::Nothing(_) => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::NotAnId(_) => "give the run id that 'harness run' printed",
            Self::Nothing(_) => "see what stands with 'harness grants list'",
        }
        .to_owned()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    session_id: SessionId,
    grants: Vec<RunGrant>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Revocation {
    session_id: SessionId,
    receipt_id: ReceiptId,
    revoked: bool,
    /// Its executor has yet to learn of it, and is told again until it has.
    pending: bool,
}

pub(crate) async fn grants(command: Grants) -> Result<Exit, Error> {
    match command {
        Grants::List { target, id, json } => {
            let session = find(&target, &id).await?;
            let listed = list(&session, json).await;
            session.leave().await;
            listed
        }
        Grants::Revoke { target, id, receipt, json } => {
            let session = find(&target, &id).await?;
            let revoked = revoke(&session, receipt, json).await;
            session.leave().await;
            revoked
        }
    }
}

async fn list(session: &Session, json: bool) -> Result<Exit, Error> {
    let grants = session.grants().await?;
    if json {
        output::document("grants", &Standing { session_id: session.id(), grants })?;
        return Ok(Exit::Done);
    }
    if grants.is_empty() {
        output::progress("no allow stands beyond its call");
    }
    for grant in &grants {
        output::line_out(&told(grant)?)?;
    }
    Ok(Exit::Done)
}

fn told(grant: &RunGrant) -> Result<String, output::Error> {
    let RunGrant { receipt_id, action, subject, by, at, expires_at, uses } = grant;
    let stamp = |moment: &acp::Moment| {
        serde_json::to_string(moment)
            .map(|text| text.trim_matches('"').to_owned())
            .map_err(output::Error::Encode)
    };
    let subject = subject.as_ref().map(|subject| {
        let subject = subject.as_str();
        format!(" {} ({})", escape::line(subject), escape::extent(subject))
    });
    Ok(format!(
        "{receipt_id} {}{}: by {} at {}, until {}, used {} times",
        escape::line(action.as_str()),
        subject.unwrap_or_default(),
        escape::line(by.as_str()),
        stamp(at)?,
        stamp(expires_at)?,
        uses.get()
    ))
}

async fn revoke(session: &Session, receipt: ReceiptId, json: bool) -> Result<Exit, Error> {
    let GrantRevokeAnswer { revoked, pending } = session.revoke(receipt).await?;
    let session_id = session.id();
    if json {
        let revocation = Revocation { session_id, receipt_id: receipt, revoked, pending };
        output::document("grant-revocation", &revocation)?;
    } else if revoked {
        output::line_out(&format!("revoked {receipt}"))?;
    }
    if pending {
        output::progress(
            "its executor can not be told now and is told again until it knows; no new call goes out under it",
        );
    }
    if revoked { Ok(Exit::Done) } else { Err(Failure::Nothing(receipt).into()) }
}

/// The session of that id, or of the run of that id. Whoever looks after runs and grants answers no ask.
pub(crate) async fn find(target: &Target, id: &str) -> Result<Session, Error> {
    let unknown = |error: &session::Error| matches!(error, session::Error::Refused { source, .. } if source.code == Code::SessionNotFound);
    let run = RunId::parse(id).map_err(|_| Failure::NotAnId(id.to_owned()))?;
    match Session::attach(target.connect().await?, AttachParams::run(run), Part::Watches).await {
        Err(error) if unknown(&error) => {}
        other => return Ok(other?),
    }
    let session = SessionId::parse(id).map_err(|_| Failure::NotAnId(id.to_owned()))?;
    let to = AttachParams::session(session);
    Ok(Session::attach(target.connect().await?, to, Part::Watches).await?)
}
