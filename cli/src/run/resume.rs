//! `resume`: answers what a paused run waits for, under the plan that was read. Whatever is no yes leaves it open.
use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use acp::AttachParams;
use event::{Decision, Scope, id::RunId};

use super::{
    Asks, Stands, follow,
    given::Given,
    report::{Error, Whose, paused},
    settle,
};
use crate::{
    error::Exit,
    key::Signatory,
    output,
    session::{Ask, Part, Session, Verdict},
    target::Target,
    terminal::{self, Typed},
    verdict,
};

const RESUME_EXAMPLES: &str = "\
Examples:
  harness resume --state ./mesh 0198f000-0000-7000-8000-000000000002 --approve --plan sha256:47dc540c94ceb704a23875c11273e16bb0b8a87aed84de911f2133568115f254
  harness resume --state ./mesh 0198f000-0000-7000-8000-000000000002 --approve --scope run --key ./my-key/approval.key
  harness resume --state ./mesh 0198f000-0000-7000-8000-000000000002 --deny

Everything that waits now is shown and answered alike. Without --plan a terminal is asked before anything is
approved; where there is no terminal, only a plan is approved whose digest is given. Later asks pause the run again.
An ask that needs your own signature is approved with --key. Where several people are needed, the run waits for the rest.";

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

    /// What the approval covers: once, or exactly this action in the rest of the run where the plan offers that
    #[arg(long, value_name = "SCOPE", value_parser = scope, conflicts_with = "deny")]
    scope: Option<Scope>,

    /// Your signing key, for asks that need your own signature
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Print the result as one JSON document
    #[arg(long)]
    json: bool,
}

const LEAD: &str = "Approve this?";
const OTHERWISE: &str = "anything else leaves it open";

#[derive(Debug, thiserror::Error)]
#[error("a scope is once or run")]
struct NotAScope;

fn scope(text: &str) -> Result<Scope, NotAScope> {
    [Scope::Once, Scope::Run].into_iter().find(|scope| scope.as_str() == text).ok_or(NotAScope)
}

pub(crate) async fn resume(args: ResumeArgs) -> Result<Exit, crate::Error> {
    let ResumeArgs { target, run, approve, deny: _, plan, mut scope, key, json } = args;
    let run = RunId::parse(&run).map_err(|_| Error::NotARun(run))?;
    let mut given = Given::of(Signatory::for_target(key.as_deref(), &target)?);
    let mut session =
        Session::attach(target.connect().await?, AttachParams::run(run), Part::Answers).await?;
    let open = session.open_asks();
    if open.is_empty() {
        let lookup = target.lookup(session.id());
        return Err(Error::NotWaiting { run, lookup }.into());
    }
    for ask in &open {
        output::say(&ask.render());
    }
    let decision = if approve { Decision::Allow } else { Decision::Deny };
    if approve {
        open.iter().try_for_each(|ask| verdict::possible(ask, scope, given.key()))?;
    }
    if let Err(error) = may_answer(&open, decision, plan) {
        if matches!(error, Error::NoPlan) {
            paused(&session, &open, Whose::Anybody, &target, json)?;
        }
        return Err(error.into());
    }
    if approve && plan.is_none() {
        match terminal::decision(&mut session, &open, LEAD, OTHERWISE).await? {
            Some(Typed::Yes) => {}
            Some(Typed::Run) => scope = Some(Scope::Run),
            Some(Typed::Else) | None => return Err(Error::LeftOpen.into()),
        }
    }
    let lookup = target.lookup(session.id());
    let mut waiting = Vec::new();
    for ask in open {
        let verdict = match decision {
            Decision::Allow => verdict::allow(session.id(), &ask, scope, given.key())?,
            Decision::Deny => Verdict::Deny,
        };
        if settle(&mut session, &ask, verdict, &mut given).await? == Stands::Open {
            waiting.push(ask);
        }
    }
    let exit = match waiting.is_empty() {
        true => {
            let (asks, whose) = (Asks::Pause, Whose::Anybody);
            follow(&mut session, asks, &mut given, whose, &target, json).await
        }
        false => Ok(paused(&session, &waiting, Whose::Counted, &target, json)?),
    };
    session.leave().await;
    Ok(given.end(exit?, lookup)?)
}

/// An approval is of a plan that was read: of the one whose digest is given, or of those that were just shown at a
/// terminal.
fn may_answer(open: &[Ask], decision: Decision, plan: Option<event::Digest>) -> Result<(), Error> {
    match plan {
        Some(expected) => match open.iter().find(|ask| ask.plan_digest != expected) {
            Some(ask) => Err(Error::OtherPlan { expected, found: ask.plan_digest }),
            None => Ok(()),
        },
        None if decision == Decision::Allow && !io::stdin().is_terminal() => Err(Error::NoPlan),
        None => Ok(()),
    }
}
