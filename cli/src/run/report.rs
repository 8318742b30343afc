//! How a run stands when its command ends: for a person, or as the document `run-result`.
use event::{
    AgentStatus, Digest, Scope, Usage,
    id::{PermissionId, RunId, SessionId},
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
    #[error("your answer does not count: {why}")]
    NotTheirs { why: String, who: Vec<String> },
    #[error("your answer to {permission} is not in force: {why}")]
    NotInForce { permission: PermissionId, why: String, lookup: String },
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
            | Self::NotTheirs { .. }
            | Self::NotInForce { .. }
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
            Self::NotTheirs { who, .. } => return waits_for(who),
            Self::NotInForce { lookup, .. } => return lookup.clone(),
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

/// Whom else it takes, for somebody who can not say yes themselves.
fn waits_for(who: &[String]) -> String {
    format!("it waits for the yes of {}", who.join(", and the yes of "))
}

/// Who is told how a paused run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// They opened the session.
    Requester,
    /// Their yes counts already.
    Counted,
    /// Nobody knows.
    Anybody,
}

impl Whose {
    /// Whether a yes of theirs could still do something.
    fn may_approve(self, ask: &Ask) -> bool {
        match self {
            Self::Requester => !ask.excludes_requester(),
            Self::Counted => false,
            Self::Anybody => true,
        }
    }
}

const KIND: &str = "run-result";

/// The run waits, and so does not fail.
pub(super) fn paused(
    session: &Session,
    asks: &[Ask],
    whose: Whose,
    target: &Target,
    json: bool,
) -> Result<Exit, output::Error> {
    let run_of = |ask: &Ask| session.run().or(ask.run_id);
    let go_on = |ask: &Ask, answer: &str| {
        let words = ["harness".to_owned(), "resume".to_owned()].into_iter().chain(target.flags());
        let run = run_of(ask).map(|run| run.to_string()).unwrap_or_default();
        words
            .chain([run, answer.to_owned(), "--plan".to_owned(), ask.plan_digest.to_string()])
            .collect::<Vec<_>>()
    };
    let resume: Vec<_> = asks
        .iter()
        .flat_map(|ask| {
            let approve = whose.may_approve(ask).then(|| go_on(ask, "--approve"));
            approve.into_iter().chain([go_on(ask, "--deny")])
        })
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
    for ask in asks.iter().filter(|ask| !whose.may_approve(ask)) {
        let why = match whose {
            Whose::Counted => "Your yes counts already",
            Whose::Requester | Whose::Anybody => "Your own yes does not count",
        };
        output::line_out(&format!("{why}; {}.", waits_for(&ask.needs())))?;
    }
    output::line_out("The run waits for an answer. Go on with one of:")?;
    for words in resume {
        output::line_out(&format!("  {}", escape::line(&manifest::exec_subject(&words))))?;
    }
    let open: Vec<&Ask> = asks.iter().filter(|ask| whose.may_approve(ask)).collect();
    if open.iter().any(|ask| ask.needs_signature()) {
        output::line_out(
            "To approve it, add --key FILE with your own key; 'harness key new' makes one.",
        )?;
    }
    if !open.is_empty() && open.iter().all(|ask| ask.scopes().contains(&Scope::Run)) {
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
