//! `connect`: a person at the terminal answers each ask. Only `y` or `yes`, typed after the whole plan was shown,
//! allows; without a terminal everything is denied and nothing is read.
use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use acp::{AttachParams, OnDisconnect};
use event::{Decision, Scope, id::RunId};

use crate::{
    Error,
    error::{Exit, Explain},
    key::Signatory,
    output,
    run::{self, Interrupts, Wish},
    session::{Answered, Ask, Part, Session, Step, Verdict, render},
    target::Target,
    terminal::{self, Typed},
    verdict,
};

const EXAMPLES: &str = "\
Examples:
  harness connect --state ./mesh --workspace demo \"Fix the failing test\"
  harness connect --state ./mesh --attach 0198f000-0000-7000-8000-000000000002
  harness connect --gateway wss://10.0.0.5:8443 --ca ca.crt --token-file token --workspace demo \"Explain\"

Each ask shows its whole plan. Type y or yes to allow; anything else denies. Where the plan offers it, r allows exactly
this action for the rest of the run. Before a patch is imported, d shows the complete list and the diff. With --key, a
yes that needs your own signature carries it.";

const LEAD: &str = "Allow this?";
const OTHERWISE: &str = "anything else denies";
/// For whoever could not allow: a no must be typed, and nothing is one by accident.
const NO_KEY: &str =
    "You can not allow this without --key. Type n to deny; anything else leaves it open for others";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    wish: Wish,

    /// Join this run instead of starting one
    #[arg(long, value_name = "RUN", conflicts_with_all = ["prompt", "workspace", "task", "model"])]
    attach: Option<RunId>,

    /// Let asks wait when you leave, whatever the manifest says by default
    #[arg(long, conflicts_with = "attach")]
    hold: bool,

    /// Your signing key, for asks that need your own signature
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// What the agent is to do
    #[arg(required_unless_present = "attach")]
    prompt: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("there is no prompt")]
    NoPrompt,
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        "give one as the last argument".to_owned()
    }
}

pub(crate) async fn connect(args: Args) -> Result<Exit, Error> {
    let Args { target, wish, attach, hold, key, prompt } = args;
    let key = Signatory::for_target(key.as_deref(), &target)?;
    // Looking is not answering: without a terminal nobody is there to say anything.
    let watches = attach.is_some() && !io::stdin().is_terminal();
    let part = if watches { Part::Watches } else { Part::Answers };
    let mut session = match (attach, prompt) {
        (Some(run), _) => {
            Session::attach(target.connect().await?, AttachParams::run(run), part).await?
        }
        (None, Some(prompt)) => {
            let on_disconnect = hold.then_some(OnDisconnect::Hold);
            let beginning = wish.beginning(&target, &prompt, on_disconnect)?;
            Session::begin(target.connect().await?, beginning, part).await?
        }
        (None, None) => return Err(Failure::NoPrompt.into()),
    };
    let exit = converse(&mut session, &target, key.as_ref(), watches).await;
    session.leave().await;
    exit
}

async fn converse(
    session: &mut Session,
    target: &Target,
    key: Option<&Signatory>,
    watches: bool,
) -> Result<Exit, Error> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        let step = tokio::select! {
            step = session.next() => step?,
            () = interrupts.next() => {
                leaving(session, target);
                return Ok(Exit::Failed);
            }
        };
        match step {
            Step::Event { event, .. } => show(&event),
            Step::Ask(ask) if watches => {
                output::say(&ask.render());
                output::progress("input is not a terminal: the ask stays open");
            }
            Step::Ask(ask) => tokio::select! {
                asked = ask_person(session, &ask, key) => asked?,
                () = interrupts.next() => {
                    output::say("\nthe ask is not answered");
                    leaving(session, target);
                    return Ok(Exit::Failed);
                }
            },
            Step::Ended(end) => return Ok(run::ended(session, &end, target, false)?),
        }
    }
}

fn leaving(session: &Session, target: &Target) {
    let Some(run) = session.run() else { return output::progress("leaving") };
    let words = ["harness", "connect"].map(str::to_owned).into_iter().chain(target.flags());
    let words: Vec<_> = words.chain(["--attach".to_owned(), run.to_string()]).collect();
    output::progress(&format!("leaving; join it again with: {}", manifest::exec_subject(&words)));
}

fn show(event: &event::Event) {
    if let Some(text) = render(event) {
        output::say(&text);
    }
}

pub(crate) async fn ask_person(
    session: &mut Session,
    ask: &Ask,
    key: Option<&Signatory>,
) -> Result<(), Error> {
    output::say(&ask.render());
    if !io::stdin().is_terminal() {
        output::progress("input is not a terminal: denied");
        return answer(session, ask, Verdict::Deny, None, "input is not a terminal").await;
    }
    let asks = std::slice::from_ref(ask);
    if ask.needs_signature() && key.is_none() {
        let none = verdict::NoKey::of(ask);
        output::progress(&none.to_string());
        output::progress(&none.advice());
        return match terminal::ask(session, asks, NO_KEY).await?.as_deref() {
            Some("n" | "no") => {
                answer(session, ask, Verdict::Deny, None, "answered at a terminal").await
            }
            Some(_) => {
                output::progress("left open");
                Ok(())
            }
            None => Ok(()),
        };
    }
    let scope = match terminal::decision(session, asks, LEAD, OTHERWISE).await? {
        Some(Typed::Yes) => None,
        Some(Typed::Run) => Some(Scope::Run),
        Some(Typed::Else) => {
            return answer(session, ask, Verdict::Deny, None, "answered at a terminal").await;
        }
        None => return Ok(()),
    };
    let allow = verdict::allow(session.id(), ask, scope, key)?;
    answer(session, ask, allow, key, "answered at a terminal").await
}

async fn answer(
    session: &mut Session,
    ask: &Ask,
    verdict: Verdict,
    key: Option<&Signatory>,
    note: &str,
) -> Result<(), Error> {
    let decision = verdict.decision();
    let answered = session.answer(ask, verdict, acp::Text::new(note).ok()).await;
    match answered.map_err(|error| verdict::refused(error, key))? {
        Answered::Accepted => output::progress(match decision {
            Decision::Allow => "allowed",
            Decision::Deny => "denied",
        }),
        Answered::Counted(counted) => output::progress(&verdict::still_needed(ask, counted)),
        Answered::NotTheirs(why) => {
            output::progress(&format!("not counted: {why}; it stays open for others"));
        }
        Answered::Settled(how) => output::progress(&format!("settled already: {how}")),
    }
    Ok(())
}
