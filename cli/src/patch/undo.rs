//! `patch undo`: a run of its own in which a person takes back what another run imported. The plan is shown and asked
//! about as any other; whether it may be taken back is the executor's to say.
use std::path::PathBuf;

use acp::{AttachParams, Code, NewParams};
use event::{
    AgentStarted, Data, Digest, SessionCreated, ToolError, ToolResult,
    id::{RunId, SessionId},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Error, connect,
    error::{Exit, Explain},
    escape,
    key::Signatory,
    output,
    run::{self, Given, Interrupts},
    session::{self, Beginning, Ended, Errand, Part, Session, Step, render},
    target::Target,
};

const EXAMPLES: &str = "\
Examples:
  harness patch undo --state ./mesh 0198f000-0000-7000-8000-000000000002
  harness patch undo --state ./mesh --yes --json 0198f000-0000-7000-8000-000000000002

It asks at this terminal before anything changes, and writes nothing where a path is not what the import left. Exits 0
when the paths are as before the import, 1 when nothing was taken back, 2 when the command line is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The run that imported, whether or not it has ended
    #[arg(value_name = "RUN")]
    run: RunId,
    /// Which of its imports, by the digest of its patch; without it the newest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<Digest>,
    /// Answer the ask with yes, as you; rules that deny still deny
    #[arg(long)]
    yes: bool,
    /// Sign with this key of yours what needs your own signature
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the result as one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no run of yours has the id {0}")]
    Unknown(RunId),
    #[error("run {0} does not say which workspace and task it was for")]
    Unsaid(RunId),
    #[error("nothing was taken back: {code}: {message}")]
    NotTakenBack { code: String, message: String },
    #[error("nobody knows whether it was taken back: {message}")]
    InDoubt { message: String, lookup: String },
    #[error("the run ended before anything was taken back")]
    Ended { lookup: String },
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Unknown(_) => Exit::Usage,
            Self::Unsaid(_)
            | Self::NotTakenBack { .. }
            | Self::InDoubt { .. }
            | Self::Ended { .. } => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Unknown(_) => "give the run id that 'harness run' printed",
            Self::Unsaid(_) => "see the run with 'harness connect --attach RUN'",
            Self::NotTakenBack { code, .. } => match code.as_str() {
                "HOST_CHANGED" => "undo by hand what was changed since, or leave the import as it is",
                "UNDO_UNKNOWN" => {
                    "nothing is kept of such an import; 'harness audit query' shows what the run imported"
                }
                "PERMISSION_DENIED" => "say yes to it, or have somebody do it whose yes counts",
                _ => "correct that and try again",
            },
            Self::InDoubt { lookup, .. } | Self::Ended { lookup } => return lookup.clone(),
        }
        .to_owned()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// Whose import it was.
    undoes: RunId,
    status: &'static str,
    /// As the executor told it: what the workspace holds now, path by path.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ToolError>,
}

pub(super) async fn undo(args: Args) -> Result<Exit, Error> {
    let Args { target, run, digest, yes, key, json } = args;
    let key = Signatory::for_target(key.as_deref(), &target)?;
    let session = like(&target, run).await?;
    let beginning = Beginning { session, errand: Errand::Undo { run, digest } };
    let mut session = Session::begin(target.connect().await?, beginning, Part::Answers).await?;
    output::progress(&format!("session {}", session.id()));
    let lookup = target.lookup(session.id());
    let mut given = Given::of(key);
    let told = follow(&mut session, yes, &mut given).await;
    let (id, own) = (session.id(), session.run());
    session.leave().await;
    let (result, end) = told?;
    if json {
        let document = Document {
            session_id: id,
            run_id: own,
            undoes: run,
            status: status(result.as_ref()),
            result: result.as_ref().and_then(|result| result.output.as_ref()),
            error: result.as_ref().and_then(|result| result.error.as_ref()),
        };
        output::document("patch-undo", &document)?;
    }
    let exit = done(result, &end, json, &lookup)?;
    Ok(given.end(exit, lookup)?)
}

/// Another session for the same workspace and task: a session has one run.
async fn like(target: &Target, run: RunId) -> Result<NewParams, Error> {
    let attached = Session::attach(target.connect().await?, AttachParams::run(run), Part::Watches);
    let mut session = match attached.await {
        Ok(session) => session,
        Err(session::Error::Refused { source, .. }) if source.code == Code::SessionNotFound => {
            return Err(Failure::Unknown(run).into());
        }
        Err(error) => return Err(error.into()),
    };
    let found = origin(&mut session).await;
    session.leave().await;
    let (workspace, task) = found?.ok_or(Failure::Unsaid(run))?;
    let unsaid = |_| Failure::Unsaid(run);
    Ok(NewParams {
        workspace: acp::Text::new(workspace).map_err(unsaid)?,
        task_id: Some(acp::TaskId::new(task).map_err(|_| Failure::Unsaid(run))?),
        model: None,
        on_disconnect: None,
    })
}

/// What the session's first events say.
async fn origin(session: &mut Session) -> Result<Option<(String, String)>, session::Error> {
    let mut workspace = None;
    loop {
        let event = match session.next().await? {
            Step::Event { event, .. } => event,
            Step::Ask(_) => continue,
            Step::Ended(_) => return Ok(None),
        };
        match event.data {
            Data::SessionCreated(SessionCreated { workspace: of, .. }) => workspace = of,
            Data::AgentStarted(AgentStarted { task_id, .. }) => return Ok(workspace.zip(task_id)),
            _ => {}
        }
    }
}

/// Until the end of the run; what its one call came to.
async fn follow(
    session: &mut Session,
    yes: bool,
    given: &mut Given,
) -> Result<(Option<ToolResult>, Ended), Error> {
    let mut interrupts = Interrupts::listen()?;
    let (mut result, mut canceled) = (None, false);
    loop {
        let step = tokio::select! {
            step = session.next() => step?,
            () = interrupts.next(), if !canceled => {
                canceled = true;
                output::progress("canceling");
                session.cancel().await?;
                continue;
            }
        };
        match step {
            Step::Event { event, .. } => {
                given.heard(&event);
                if let Some(text) = render(&event) {
                    output::say(&text);
                }
                if let Data::ToolResult(told) = event.data {
                    result = Some(told);
                }
            }
            Step::Ask(ask) if yes => {
                output::say(&ask.render());
                run::say_yes(session, &ask, given).await?;
            }
            Step::Ask(ask) => {
                let asked = tokio::select! {
                    asked = connect::ask_person(session, &ask, given.key()) => asked,
                    () = interrupts.next() => {
                        output::say("\nnot answered: canceling");
                        canceled = true;
                        session.cancel().await?;
                        continue;
                    }
                };
                asked?;
            }
            Step::Ended(end) => return Ok((result, end)),
        }
    }
}

const UNKNOWN: &str = "OUTCOME_UNKNOWN";

fn status(result: Option<&ToolResult>) -> &'static str {
    match result {
        Some(ToolResult { ok: true, .. }) => "undone",
        Some(ToolResult { error: Some(error), .. }) if error.code == UNKNOWN => "unknown",
        Some(_) | None => "unchanged",
    }
}

fn done(result: Option<ToolResult>, end: &Ended, json: bool, lookup: &str) -> Result<Exit, Error> {
    match result {
        Some(ToolResult { ok: true, output, .. }) => {
            if !json {
                restored(&output.unwrap_or_default())?;
            }
            Ok(run::exit_of(end))
        }
        Some(ToolResult { error: Some(ToolError { code, message }), .. }) if code == UNKNOWN => {
            Err(Failure::InDoubt { message, lookup: lookup.to_owned() }.into())
        }
        Some(ToolResult { error: Some(ToolError { code, message }), .. }) => {
            Err(Failure::NotTakenBack { code, message }.into())
        }
        Some(ToolResult { error: None, .. }) | None => {
            Err(Failure::Ended { lookup: lookup.to_owned() }.into())
        }
    }
}

/// A line for each path that is as it was.
fn restored(result: &Value) -> Result<(), output::Error> {
    let paths = result["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    for state in paths {
        let path = match &state["path"] {
            Value::String(path) => escape::line(path),
            other => escape::line(&other.to_string()),
        };
        let kind = state["kind"].as_str().unwrap_or_default();
        let mode = state["mode"].as_str().map(|mode| format!(" {mode}")).unwrap_or_default();
        output::line_out(&format!(
            "restored {path} ({}{})",
            escape::line(kind),
            escape::line(&mode)
        ))?;
    }
    let total = result["pathsTotal"].as_u64().unwrap_or_default();
    let more = total.saturating_sub(paths.len() as u64);
    if more > 0 {
        output::line_out(&format!("and {more} more paths"))?;
    }
    Ok(())
}
