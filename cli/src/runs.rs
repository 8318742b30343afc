//! `runs`: cancels a run that nobody follows any more, and ends what held runs keep of a machine while their services do
//! not run. What the runs have recorded stays.
use std::path::PathBuf;

use clap::Subcommand;
use event::id::SessionId;
use serde::Serialize;

use crate::{
    Error,
    error::{Exit, Explain},
    escape, grants,
    mesh::{self, beside_this_program},
    output,
    session::Session,
    target::Target,
};

const EXAMPLES: &str = "\
Examples:
  harness runs cancel --state ./mesh 0198f000-0000-7000-8000-000000000002
  harness runs cleanup --state ./mesh

cancel denies what the run asks, ends its command and closes its private copy; it exits 1 when the run was over
already. A held run keeps its private copy, which may be a mount, also while its services do not run. This ends all of them:
their containers, mounts and copies. It is refused while 'harness up' runs over the directory.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Runs {
    /// End a run: its open ask, its command and its private copy
    Cancel {
        #[command(flatten)]
        target: Target,
        /// The run, or its session
        #[arg(value_name = "RUN|SESSION")]
        id: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// End the containers, mounts and private copies that held runs keep
    Cleanup {
        /// State directory of a mesh that does not run
        #[arg(long, value_name = "DIR")]
        state: PathBuf,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("the run of session {0} was over already")]
struct Over(SessionId);

impl Explain for Over {
    fn exit(&self) -> Exit {
        Exit::Failed
    }

    fn advice(&self) -> String {
        format!("see how it ended with 'harness audit query --session {}'", self.0)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cancellation {
    session_id: SessionId,
    canceled: bool,
}

pub(crate) async fn runs(command: Runs) -> Result<Exit, Error> {
    match command {
        Runs::Cancel { target, id, json } => {
            let session = grants::find(&target, &id).await?;
            let canceled = cancel(&session, json).await;
            session.leave().await;
            canceled
        }
        Runs::Cleanup { state } => {
            let ended = mesh::cleanup(&state, &beside_this_program()?)?;
            output::line_out(&escape::line(&ended))?;
            Ok(Exit::Done)
        }
    }
}

async fn cancel(session: &Session, json: bool) -> Result<Exit, Error> {
    let session_id = session.id();
    let canceled = session.cancel().await?;
    if json {
        output::document("run-cancellation", &Cancellation { session_id, canceled })?;
    } else if canceled {
        output::line_out(&format!("canceled the run of session {session_id}"))?;
    }
    if canceled { Ok(Exit::Done) } else { Err(Over(session_id).into()) }
}
