//! `connect`: a person at the terminal answers each ask. Only `y` or `yes`, typed after the whole plan was shown,
//! allows; without a terminal everything is denied and nothing is read.
use std::io::{self, IsTerminal as _};

use acp::{AttachParams, OnDisconnect};
use event::{Decision, id::RunId};

use crate::{
    Error,
    error::{Exit, Explain},
    output,
    run::{self, Interrupts, Wish},
    session::{Answered, Ask, Part, Session, Step, render},
    target::Target,
    terminal,
};

const EXAMPLES: &str = "\
Examples:
  harness connect --state ./mesh --workspace demo \"Fix the failing test\"
  harness connect --state ./mesh --attach 0198f000-0000-7000-8000-000000000002
  harness connect --gateway wss://10.0.0.5:8443 --ca ca.crt --token-file token --workspace demo \"Explain\"

Each ask shows its whole plan. Type y or yes to allow; anything else denies. Before a patch is imported, d shows the
complete list and the diff.";

const QUESTION: &str = "Allow this? Type y or yes; anything else denies";

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
    let Args { target, wish, attach, hold, prompt } = args;
    let mut session = match (attach, prompt) {
        (Some(run), _) => {
            Session::attach(target.connect().await?, AttachParams::run(run), Part::Answers).await?
        }
        (None, Some(prompt)) => {
            let on_disconnect = hold.then_some(OnDisconnect::Hold);
            let beginning = wish.beginning(&target, &prompt, on_disconnect)?;
            Session::begin(target.connect().await?, beginning, Part::Answers).await?
        }
        (None, None) => return Err(Failure::NoPrompt.into()),
    };
    let exit = converse(&mut session, &target).await;
    session.leave().await;
    exit
}

async fn converse(session: &mut Session, target: &Target) -> Result<Exit, Error> {
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
            Step::Ask(ask) => tokio::select! {
                asked = ask_person(session, &ask) => asked?,
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

async fn ask_person(session: &mut Session, ask: &Ask) -> Result<(), Error> {
    output::say(&ask.render());
    if !io::stdin().is_terminal() {
        output::progress("input is not a terminal: denied");
        return answer(session, ask, Decision::Deny, "input is not a terminal").await;
    }
    match terminal::decision(session, std::slice::from_ref(ask), QUESTION).await? {
        Some(decision) => answer(session, ask, decision, "answered at a terminal").await,
        None => Ok(()),
    }
}

async fn answer(
    session: &mut Session,
    ask: &Ask,
    decision: Decision,
    note: &str,
) -> Result<(), Error> {
    match session.answer(ask, decision, acp::Text::new(note).ok()).await? {
        Answered::Accepted => output::progress(match decision {
            Decision::Allow => "allowed",
            Decision::Deny => "denied",
        }),
        Answered::Settled(how) => output::progress(&format!("settled already: {how}")),
    }
    Ok(())
}
