//! `run` and `resume`: runs without a person at the terminal. An ask that nobody answers pauses the run; it is never
//! answered by default.
use std::io::{self, IsTerminal as _};

use acp::{AttachParams, NewParams, OnDisconnect};
use event::{Decision, id::RunId};

use crate::{
    Error,
    error::Exit,
    output,
    session::{self, Answered, Ask, Beginning, Ended, Part, Session, Step, render},
    target::Target,
    terminal,
};

mod interrupt;
mod report;

pub(crate) use interrupt::Interrupts;
pub(crate) use report::ended;

use report::paused;

const RUN_EXAMPLES: &str = "\
Examples:
  harness run --state ./mesh --workspace demo \"Fix the failing test\"
  harness run --state ./mesh --task fix-parser --yes \"Fix the parser\"
  harness run --gateway wss://10.0.0.5:8443 --ca ca.crt --token-file token --workspace demo --json \"Explain\"

A rule that asks pauses the run: it prints what waits and how to go on, and exits 0.";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wish: Wish,

    /// Answer every ask with yes, as you; rules that deny still deny
    #[arg(long)]
    yes: bool,

    /// Only watch instead of pausing: asks are denied because nobody is there to answer
    #[arg(long, conflicts_with = "yes")]
    no_hold: bool,

    /// Print the result as one JSON document
    #[arg(long)]
    json: bool,

    /// What the agent is to do
    prompt: String,
}

/// What a new session is to be.
#[derive(Debug, clap::Args)]
pub(crate) struct Wish {
    /// Workspace by its name; may be left out when the mesh has one only
    #[arg(long, value_name = "NAME")]
    workspace: Option<String>,

    /// Reviewed manifest by its id; without it the gateway's default
    #[arg(long, value_name = "ID")]
    task: Option<String>,

    /// Model by its name; without it the manifest's first
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// Most model tokens; the manifest may allow less
    #[arg(long, value_name = "N")]
    max_model_tokens: Option<u64>,

    /// Most tool calls; the manifest may allow less
    #[arg(long, value_name = "N")]
    max_tool_calls: Option<u64>,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  harness resume --state ./mesh 0198f000-0000-7000-8000-000000000002 --approve --plan sha256:47dc540c94ceb704a23875c11273e16bb0b8a87aed84de911f2133568115f254
  harness resume --state ./mesh 0198f000-0000-7000-8000-000000000002 --deny

Everything that waits now is shown and answered alike. Without --plan a terminal is asked before anything is
approved; where there is no terminal, only a plan is approved whose digest is given. Later asks pause the run again.";

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME_EXAMPLES)]
#[command(group = clap::ArgGroup::new("decision").required(true).args(["approve", "deny"]))]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    target: Target,

    /// The run that waits
    #[arg(value_name = "RUN")]
    run: String,

    /// Allow what waits
    #[arg(long)]
    approve: bool,

    /// Deny what waits; the run goes on without it
    #[arg(long)]
    deny: bool,

    /// Only if this is the digest of the plan that waits, as it was shown before
    #[arg(long, value_name = "DIGEST")]
    plan: Option<event::Digest>,

    /// Print the result as one JSON document
    #[arg(long)]
    json: bool,
}

const QUESTION: &str = "Approve this? Type y or yes; anything else leaves it open";

/// What is done about asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Pause,
    Allow,
    /// They are not answered here: the session denies what nobody can answer.
    Leave,
}

impl Asks {
    fn part(self) -> Part {
        match self {
            Self::Pause | Self::Allow => Part::Answers,
            Self::Leave => Part::Watches,
        }
    }
}

pub(crate) async fn run(args: RunArgs) -> Result<Exit, Error> {
    let RunArgs { target, wish, yes, no_hold, json, prompt } = args;
    let asks = match (yes, no_hold) {
        (true, _) => Asks::Allow,
        (false, true) => Asks::Leave,
        (false, false) => Asks::Pause,
    };
    let on_disconnect = match asks {
        Asks::Pause => Some(OnDisconnect::Hold),
        Asks::Leave => Some(OnDisconnect::Deny),
        Asks::Allow => None,
    };
    let beginning = wish.beginning(&target, &prompt, on_disconnect)?;
    let begun = Session::begin(target.connect().await?, beginning, asks.part()).await;
    let mut session = match (begun, asks) {
        (Ok(session), _) => session,
        (Err(error @ session::Error::Refused { .. }), Asks::Pause) => {
            return Err(report::Error::NotBegun(error).into());
        }
        (Err(error), _) => return Err(error.into()),
    };
    output::progress(&format!("session {}", session.id()));
    let exit = follow(&mut session, asks, &target, json).await;
    session.leave().await;
    exit
}

pub(crate) async fn resume(args: ResumeArgs) -> Result<Exit, Error> {
    let ResumeArgs { target, run, approve, deny: _, plan, json } = args;
    let run = RunId::parse(&run).map_err(|_| report::Error::NotARun(run))?;
    let mut session =
        Session::attach(target.connect().await?, AttachParams::run(run), Part::Answers).await?;
    let open = session.open_asks();
    if open.is_empty() {
        let lookup = target.lookup(session.id());
        return Err(report::Error::NotWaiting { run, lookup }.into());
    }
    for ask in &open {
        output::say(&ask.render());
    }
    let decision = if approve { Decision::Allow } else { Decision::Deny };
    if let Err(error) = may_answer(&open, decision, plan) {
        if matches!(error, report::Error::NoPlan) {
            paused(&session, &open, &target, json)?;
        }
        return Err(error.into());
    }
    if decision == Decision::Allow
        && plan.is_none()
        && terminal::decision(&mut session, &open, QUESTION).await? != Some(Decision::Allow)
    {
        return Err(report::Error::LeftOpen.into());
    }
    for ask in open {
        settle(&mut session, &ask, decision).await?;
    }
    let exit = follow(&mut session, Asks::Pause, &target, json).await;
    session.leave().await;
    exit
}

/// An approval is of a plan that was read: of the one whose digest is given, or of those that were just shown at a
/// terminal.
fn may_answer(
    open: &[Ask],
    decision: Decision,
    plan: Option<event::Digest>,
) -> Result<(), report::Error> {
    match plan {
        Some(expected) => match open.iter().find(|ask| ask.plan_digest != expected) {
            Some(ask) => Err(report::Error::OtherPlan { expected, found: ask.plan_digest }),
            None => Ok(()),
        },
        None if decision == Decision::Allow && !io::stdin().is_terminal() => {
            Err(report::Error::NoPlan)
        }
        None => Ok(()),
    }
}

impl Wish {
    pub(crate) fn beginning(
        self,
        target: &Target,
        prompt: &str,
        on_disconnect: Option<OnDisconnect>,
    ) -> Result<Beginning, Error> {
        let Self { workspace, task, model, max_model_tokens, max_tool_calls } = self;
        let unfit = |what: &'static str, why: &dyn std::fmt::Display| report::Error::Unfit {
            what,
            why: why.to_string(),
        };
        let workspace = match workspace {
            Some(workspace) => workspace,
            None => target.only_workspace()?.ok_or(report::Error::NoWorkspace)?,
        };
        let budget = |what, number: Option<u64>| {
            number.map(acp::Positive::try_from).transpose().map_err(|why| unfit(what, &why))
        };
        Ok(Beginning {
            session: NewParams {
                workspace: acp::Text::new(workspace).map_err(|why| unfit("--workspace", &why))?,
                task_id: task
                    .map(acp::TaskId::new)
                    .transpose()
                    .map_err(|why| unfit("--task", &why))?,
                model: model
                    .map(acp::Text::new)
                    .transpose()
                    .map_err(|why| unfit("--model", &why))?,
                on_disconnect,
            },
            prompt: acp::Text::new(prompt).map_err(|why| unfit("the prompt", &why))?,
            max_model_tokens: budget("--max-model-tokens", max_model_tokens)?,
            max_tool_calls: budget("--max-tool-calls", max_tool_calls)?,
        })
    }
}

async fn follow(
    session: &mut Session,
    asks: Asks,
    target: &Target,
    json: bool,
) -> Result<Exit, Error> {
    let mut canceled = false;
    let mut interrupts = Interrupts::listen()?;
    loop {
        let step = tokio::select! {
            step = session.next() => step?,
            () = interrupts.next(), if !canceled => {
                canceled = true;
                output::progress("canceling the run");
                session.cancel().await?;
                continue;
            }
        };
        match (step, asks) {
            (Step::Event { event, old: false, text: _ }, _) => {
                if let Some(text) = render(&event) {
                    output::say(&text);
                }
            }
            (Step::Event { old: true, .. }, _) => {}
            (Step::Ask(ask), Asks::Pause) => {
                output::say(&ask.render());
                return Ok(paused(session, &[ask], target, json)?);
            }
            (Step::Ask(ask), Asks::Allow) => settle(session, &ask, Decision::Allow).await?,
            (Step::Ask(ask), Asks::Leave) => {
                output::say(&ask.render());
                output::progress("nobody is there who could answer: it will be denied");
            }
            (Step::Ended(end), _) => return Ok(ended(session, &end, target, json)?),
        }
    }
}

async fn settle(session: &mut Session, ask: &Ask, decision: Decision) -> Result<(), Error> {
    let note = match decision {
        Decision::Allow => None,
        Decision::Deny => acp::Text::new("denied without a person at the terminal").ok(),
    };
    match session.answer(ask, decision, note).await? {
        Answered::Accepted => {
            output::progress(&format!("answered {} with {}", ask.permission_id, decision.as_str()));
        }
        Answered::Settled(how) => {
            output::progress(&format!("{} is settled already: {how}", ask.permission_id));
        }
    }
    Ok(())
}

/// How a run's end is told as an exit code.
pub(crate) fn exit_of(end: &Ended) -> Exit {
    match end.status {
        event::AgentStatus::Completed => Exit::Done,
        event::AgentStatus::Failed
        | event::AgentStatus::Canceled
        | event::AgentStatus::BudgetExceeded => Exit::Failed,
    }
}
