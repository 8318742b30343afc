//! How a run stands when its command ends: for a person, or as the document `run-result`.
use event::{
    AgentStatus, Digest, Scope, Usage,
    id::{RunId, SessionId},
};
use serde::Serialize;

use super::exit_of;
use crate::{
    error::{Exit, Explain},
    escape, output,
    session::{self, Ask, Ended, Session},
    target::Target,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("a run that would pause at an ask was not begun")]
    NotBegun(#[source] session::Error),
    #[error("'{0}' is not a run id")]
    NotARun(String),
    #[error("run {run} does not wait for an approval")]
    NotWaiting { run: RunId, lookup: String },
    #[error("nothing was answered: an approval needs the digest of the plan that it approves")]
    NoPlan,
    #[error("nothing was answered")]
    LeftOpen,
    #[error("your answer does not count: {0}")]
    NotTheirs(String),
    #[error("the plan that waits has the digest {found}, not {expected}; nothing was answered")]
    OtherPlan { expected: Digest, found: Digest },
    #[error("{what} is not usable: {why}")]
    Unfit { what: &'static str, why: String },
    #[error("no workspace is named")]
    NoWorkspace,
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::NotBegun(source) => source.exit(),
            Self::NotARun(_) | Self::NoPlan | Self::Unfit { .. } | Self::NoWorkspace => Exit::Usage,
            Self::NotWaiting { .. }
            | Self::LeftOpen
            | Self::NotTheirs(_)
            | Self::OtherPlan { .. } => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::NotBegun(source) => {
                let otherwise =
                    "where asks may not wait, use --yes, --no-hold or 'harness connect'";
                return format!("{}; {otherwise}", source.advice());
            }
            Self::NotARun(_) => "give the id that 'harness run' printed",
            Self::NotWaiting { lookup, .. } => return lookup.clone(),
            Self::NoPlan => "read the plan above, then give --plan DIGEST as printed",
            Self::LeftOpen => "the run goes on waiting; answer it when you are sure",
            Self::NotTheirs(_) => {
                "have somebody answer whom the plan names, or use a token with the role operator"
            }
            Self::OtherPlan { .. } => "look at what waits now before you answer",
            Self::Unfit { .. } => "correct it",
            Self::NoWorkspace => "give --workspace NAME",
        }
        .to_owned()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunResult<'a> {
    session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    usage: Usage,
    pending_approvals: Vec<&'a Ask>,
    /// The commands that go on, word for word.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resume: Vec<Vec<String>>,
}

const KIND: &str = "run-result";

/// The run waits, and so does not fail.
pub(crate) fn paused(
    session: &Session,
    asks: &[Ask],
    target: &Target,
    json: bool,
) -> Result<Exit, output::Error> {
    let run_of = |ask: &Ask| ask.run_id.or_else(|| session.run());
    let go_on = |ask: &Ask, answer: &str| {
        let words = ["harness".to_owned(), "resume".to_owned()].into_iter().chain(target.flags());
        let run = run_of(ask).map(|run| run.to_string()).unwrap_or_default();
        words
            .chain([run, answer.to_owned(), "--plan".to_owned(), ask.plan_digest.to_string()])
            .collect::<Vec<_>>()
    };
    let resume: Vec<_> = asks
        .iter()
        .flat_map(|ask| ["--approve", "--deny"].map(|answer| go_on(ask, answer)))
        .collect();
    if json {
        let result = RunResult {
            session_id: session.id(),
            run_id: asks.first().and_then(run_of),
            status: "waiting_approval",
            output: None,
            steps: None,
            tool_calls: None,
            note: None,
            usage: session.usage(),
            pending_approvals: asks.iter().collect(),
            resume,
        };
        output::document(KIND, &result)?;
        return Ok(Exit::Done);
    }
    let patches: Vec<RunId> =
        asks.iter().filter(|ask| ask.patch().is_some()).filter_map(run_of).collect();
    if let Some(run) = patches.first() {
        let words = ["harness", "patch", "show"].map(str::to_owned).into_iter();
        let words: Vec<_> = words.chain(target.flags()).chain([run.to_string()]).collect();
        output::line_out("See the complete list and the diff with:")?;
        output::line_out(&format!("  {}", escape::line(&manifest::exec_subject(&words))))?;
    }
    output::line_out("The run waits for an answer. Go on with one of:")?;
    for words in resume {
        output::line_out(&format!("  {}", escape::line(&manifest::exec_subject(&words))))?;
    }
    if asks.iter().any(Ask::needs_signature) {
        output::line_out(
            "To approve it, add --key FILE with your own key; 'harness key new' makes one.",
        )?;
    }
    if asks.iter().all(|ask| ask.scopes().contains(&Scope::Run)) {
        output::line_out(
            "Add --scope run to approve exactly this action for the rest of the run.",
        )?;
    }
    Ok(Exit::Done)
}

pub(crate) fn ended(
    session: &Session,
    end: &Ended,
    target: &Target,
    json: bool,
) -> Result<Exit, output::Error> {
    let Ended { status, steps, tool_calls, note, output: text } = end;
    if json {
        let result = RunResult {
            session_id: session.id(),
            run_id: session.run(),
            status: name(*status),
            output: Some(text),
            steps: Some(*steps),
            tool_calls: Some(*tool_calls),
            note: note.as_deref(),
            usage: session.usage(),
            pending_approvals: Vec::new(),
            resume: Vec::new(),
        };
        output::document(KIND, &result)?;
    } else if !text.is_empty() {
        output::line_out(&escape::block(text))?;
    }
    if *status != AgentStatus::Completed {
        let note = note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        output::progress(&format!(
            "harness: the run ended as {}{note}; {}",
            name(*status),
            target.lookup(session.id())
        ));
    }
    Ok(exit_of(end))
}

fn name(status: AgentStatus) -> &'static str {
    match status {
        AgentStatus::Completed => "completed",
        AgentStatus::Failed => "failed",
        AgentStatus::Canceled => "canceled",
        AgentStatus::BudgetExceeded => "budget_exceeded",
    }
}
