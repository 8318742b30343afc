//! `run` and `resume`: runs without a person at the terminal. An ask that nobody answers pauses the run; it is never
//! answered by default.
use std::path::PathBuf;

use acp::{NewParams, OnDisconnect};
use event::Decision;

use crate::{
    Error,
    error::Exit,
    key::Signatory,
    output,
    session::{Answered, Ask, Beginning, Ended, Errand, Part, Session, Step, Verdict, render},
    target::Target,
    verdict,
};

mod given;
mod interrupt;
mod report;
mod resume;

pub(crate) use interrupt::Interrupts;
pub(crate) use report::ended;
pub(crate) use resume::{ResumeArgs, resume};

pub(crate) use given::Given;
use given::in_force;
use report::{Whose, paused};

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

    /// With --yes: sign with this key of yours what needs your own signature; it is shown, and nobody is asked
    #[arg(long, value_name = "FILE", requires = "yes")]
    key: Option<PathBuf>,

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
    let RunArgs { target, wish, yes, key, no_hold, json, prompt } = args;
    let key = Signatory::for_target(key.as_deref(), &target)?;
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
        (Err(error), Asks::Pause) if error.is_about_holding() => {
            return Err(report::Error::NotBegun(error).into());
        }
        (Err(error), _) => return Err(error.into()),
    };
    output::progress(&format!("session {}", session.id()));
    let (mut given, lookup) = (Given::of(key), target.lookup(session.id()));
    let exit = follow(&mut session, asks, &mut given, Whose::Requester, &target, json).await;
    session.leave().await;
    Ok(given.end(exit?, lookup)?)
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
            errand: Errand::Prompt {
                content: acp::Text::new(prompt).map_err(|why| unfit("the prompt", &why))?,
                max_model_tokens: budget("--max-model-tokens", max_model_tokens)?,
                max_tool_calls: budget("--max-tool-calls", max_tool_calls)?,
            },
        })
    }
}

async fn follow(
    session: &mut Session,
    asks: Asks,
    given: &mut Given,
    whose: Whose,
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
                given.heard(&event);
                if let Some(text) = render(&event) {
                    output::say(&text);
                }
            }
            (Step::Event { old: true, .. }, _) => {}
            (Step::Ask(ask), Asks::Pause) => {
                output::say(&ask.render());
                return Ok(paused(session, &[ask], whose, target, json)?);
            }
            (Step::Ask(ask), Asks::Allow) => say_yes(session, &ask, given).await?,
            (Step::Ask(ask), Asks::Leave) => {
                output::say(&ask.render());
                output::progress("nobody is there who could answer: it will be denied");
            }
            (Step::Ended(end), _) => return Ok(ended(session, &end, target, json)?),
        }
    }
}

/// Whether an ask still waits for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Open,
    Settled,
}

/// `--yes` says what one person can, and signs only with a key that is given; what needs more goes on waiting.
pub(crate) async fn say_yes(
    session: &mut Session,
    ask: &Ask,
    given: &mut Given,
) -> Result<(), Error> {
    if ask.needs_signature() {
        output::say(&ask.render());
        if given.key().is_none() {
            output::progress(
                "it needs a person's own signature, which --yes gives only with --key: it waits for somebody else",
            );
            return Ok(());
        }
    }
    let allow = verdict::allow(session.id(), ask, None, given.key())?;
    settle(session, ask, allow, given).await.map(drop)
}

async fn settle(
    session: &mut Session,
    ask: &Ask,
    verdict: Verdict,
    given: &mut Given,
) -> Result<Stands, Error> {
    let decision = verdict.decision();
    let note = match decision {
        Decision::Allow => None,
        Decision::Deny => acp::Text::new("denied without a person at the terminal").ok(),
    };
    match session
        .answer(ask, verdict, note)
        .await
        .map_err(|error| verdict::refused(error, given.key()))?
    {
        Answered::Accepted => {
            given.accepted(ask, decision);
            output::progress(&format!("answered {} with {}", ask.permission_id, decision.as_str()));
            Ok(Stands::Settled)
        }
        Answered::Counted(counted) => {
            output::progress(&verdict::still_needed(ask, counted));
            Ok(Stands::Open)
        }
        Answered::NotTheirs(why) => Err(report::Error::NotTheirs { why, who: ask.needs() }.into()),
        Answered::Settled(how) => {
            output::progress(&format!("{} is settled already: {how}", ask.permission_id));
            match in_force(session, ask, given).await? {
                Some(found) if found == decision => {
                    output::progress("that is what you answered; it stands");
                }
                Some(_) | None => given.lost(ask, how),
            }
            Ok(Stands::Settled)
        }
    }
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
