//! `connect`: a person at the terminal answers each ask. Only `y` or `yes`, typed after the whole plan was shown,
//! allows; without a terminal everything is denied and nothing is read.
use std::io::{self, IsTerminal as _, Write as _};

use acp::{AttachParams, OnDisconnect};
use event::{Decision, id::RunId};
use rustix::termios::{QueueSelector, tcflush};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    Error,
    error::{Exit, Explain},
    output,
    run::{self, Interrupts, Wish},
    session::{Answered, Ask, Part, Session, Step, render},
    target::Target,
};

const EXAMPLES: &str = "\
Examples:
  harness connect --state ./mesh --workspace demo \"Fix the failing test\"
  harness connect --state ./mesh --attach 0198f000-0000-7000-8000-000000000002
  harness connect --gateway wss://10.0.0.5:8443 --ca ca.crt --token-file token --workspace demo \"Explain\"

Each ask shows its whole plan. Type y or yes to allow; anything else denies.";

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
    #[error("can not read the answer")]
    Read(#[source] io::Error),
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::NoPrompt => Exit::Usage,
            Self::Read(_) => Exit::Failed,
        }
    }
    fn advice(&self) -> String {
        match self {
            Self::NoPrompt => "give one as the last argument",
            Self::Read(_) => "use a terminal, or 'harness run'",
        }
        .to_owned()
    }
}

pub(crate) async fn connect(args: Args) -> Result<Exit, Error> {
    let Args { target, wish, attach, hold, prompt } = args;
    let mut session = match (attach, prompt) {
        (Some(run), _) => Session::attach(target.connect().await?, AttachParams::run(run)).await?,
        (None, Some(prompt)) => {
            let on_disconnect = hold.then_some(OnDisconnect::Hold);
            let beginning = wish.beginning(&target, &prompt, on_disconnect)?;
            Session::begin(target.connect().await?, beginning, Part::Answers).await?
        }
        (None, None) => return Err(Failure::NoPrompt.into()),
    };
    let exit = converse(&mut session).await;
    session.leave().await;
    exit
}

async fn converse(session: &mut Session) -> Result<Exit, Error> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        let step = tokio::select! {
            step = session.next() => step?,
            () = interrupts.next() => {
                output::progress("leaving");
                return Ok(Exit::Failed);
            }
        };
        match step {
            Step::Event { event, .. } => show(&event),
            Step::Ask(ask) => tokio::select! {
                asked = ask_person(session, &ask) => asked?,
                () = interrupts.next() => {
                    output::progress("leaving; the ask is not answered");
                    return Ok(Exit::Failed);
                }
            },
            Step::Ended(end) => return Ok(run::ended(session, &end, false)?),
        }
    }
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
    let mut line = prompt_line("Allow this? Type y or yes; anything else denies: ")?;
    loop {
        // The world goes on while a person thinks: the ask may expire, or somebody else may answer it.
        tokio::select! {
            typed = &mut line => {
                let decision = decide(&typed.map_err(io::Error::from).flatten().map_err(Failure::Read)?);
                return answer(session, ask, decision, "answered at a terminal").await;
            }
            step = session.next() => {
                let settled = matches!(&step?, Step::Event { event, .. } if { show(event); settles(event, ask) });
                if settled {
                    // What is typed now was meant for this ask, never for a later one.
                    output::progress("This ask is settled. Press Enter to go on.");
                    line.await.map_err(io::Error::from).flatten().map_err(Failure::Read)?;
                    return Ok(());
                }
            }
        }
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

fn settles(event: &event::Event, ask: &Ask) -> bool {
    match &event.data {
        event::Data::PermissionResolved(resolved) => resolved.permission_id == ask.permission_id,
        event::Data::AgentStopped(_) => true,
        _ => false,
    }
}

/// Asks for a line; what was typed before the question was shown does not count.
fn prompt_line(question: &str) -> Result<JoinHandle<io::Result<String>>, Error> {
    tcflush(io::stdin(), QueueSelector::IFlush).map_err(|errno| Failure::Read(errno.into()))?;
    let mut out = io::stderr().lock();
    write!(out, "{question}").and_then(|()| out.flush()).map_err(Failure::Read)?;
    Ok(spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        Ok(line)
    }))
}

/// Yes is two words; everything else, also nothing, is no.
fn decide(typed: &str) -> Decision {
    match typed.trim() {
        "y" | "yes" => Decision::Allow,
        _ => Decision::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_allows() {
        for yes in ["y", "yes", "y\n", " yes \r\n"] {
            assert_eq!(decide(yes), Decision::Allow, "{yes:?}");
        }
        for no in [
            "",
            "\n",
            "n",
            "no",
            "Y",
            "YES",
            "yes please",
            "yy",
            "y y",
            "ja",
            "allow",
            "1",
            "y\u{200b}",
        ] {
            assert_eq!(decide(no), Decision::Deny, "{no:?}");
        }
    }
}
