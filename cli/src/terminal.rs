//! What a person at a terminal is asked and types. What was typed before a question stood there never counts, and only
//! `y` or `yes` is a yes; it answers nothing by itself.
use std::io::{self, Write as _};

use event::{Data, Event, Scope};
use rustix::termios::{QueueSelector, tcflush, tcgetwinsize};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    Error,
    error::{Causes, Exit, Explain},
    output,
    session::{self, Ask, Session, Step, render},
};

/// Lines of a terminal that does not say how many it has.
const LINES: usize = 24;
/// What stands above a patch's text.
pub(crate) const LEGEND: &str = "The complete list and the diff. A backslash is doubled; \\t, \\r and \\u{…} stand \
    for characters that would not be seen.";

#[derive(Debug, thiserror::Error)]
#[error("can not read the answer")]
pub(crate) struct Unreadable(#[from] io::Error);

impl Explain for Unreadable {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "use a terminal, or 'harness run'".to_owned()
    }
}

/// Whether what is asked can still be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Open,
    Settled,
}

/// What was typed, as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    /// To what the plan offers first.
    Yes,
    /// To the exact action for the rest of the run.
    Run,
    Else,
}

/// The question for a yes to `asks`: `lead`, what can be typed, and what all else does.
pub(crate) async fn decision(
    session: &mut Session,
    asks: &[Ask],
    lead: &str,
    otherwise: &str,
) -> Result<Option<Typed>, Error> {
    let run = !asks.is_empty() && asks.iter().all(|ask| ask.scopes().contains(&Scope::Run));
    let run_too =
        if run { " for once, r for exactly this action in the rest of the run" } else { "" };
    let question = format!("{lead} Type y or yes{run_too}; {otherwise}");
    let typed = ask(session, asks, &question).await?;
    Ok(typed.map(|typed| read_as(&typed, run)))
}

/// Asks about what was just shown, and shows patches as often as it is told to. `None` when an ask is settled meanwhile.
pub(crate) async fn ask(
    session: &mut Session,
    asks: &[Ask],
    question: &str,
) -> Result<Option<String>, Error> {
    let patches: Vec<&Ask> = asks.iter().filter(|ask| ask.patch().is_some()).collect();
    let question = match patches.as_slice() {
        [] => format!("{question}: "),
        _ => format!("{question}; d shows the complete list and the diff: "),
    };
    loop {
        let Some(typed) = line(session, asks, &question).await? else { return Ok(None) };
        if typed.trim() != "d" || patches.is_empty() {
            return Ok(Some(typed.trim().to_owned()));
        }
        for ask in &patches {
            if page(session, asks, ask).await? == Asked::Settled {
                return Ok(None);
            }
        }
    }
}

/// Shows a patch, a screen at a time.
async fn page(session: &mut Session, asks: &[Ask], ask: &Ask) -> Result<Asked, Error> {
    let screen = screen();
    output::progress(LEGEND);
    let (mut offset, mut rest, mut shown) = (0, String::new(), 1);
    loop {
        let next = match session.patch_page(ask, acp::PatchFormat::V1, offset).await {
            Ok(page) => {
                rest.push_str(page.text());
                page.next_offset()
            }
            Err(error @ session::Error::Violation(_)) => return Err(error.into()),
            Err(error) => {
                output::progress(&format!("the diff can not be shown: {}", Causes(&error)));
                return Ok(Asked::Open);
            }
        };
        while let Some(end) = rest.find('\n') {
            output::progress(&rest[..end]);
            rest.drain(..=end);
            shown += 1;
            if shown % screen == 0 {
                match line(session, asks, "-- Enter goes on, q goes back: ").await? {
                    None => return Ok(Asked::Settled),
                    Some(typed) if typed.trim() == "q" => return Ok(Asked::Open),
                    Some(_) => {}
                }
            }
        }
        let Some(next) = next else { break };
        offset = next;
    }
    if !rest.is_empty() {
        output::progress(&rest);
    }
    output::progress("-- end of the diff");
    Ok(Asked::Open)
}

/// The next line that is typed, while the session goes on: the ask may expire, or somebody else may answer it.
async fn line(
    session: &mut Session,
    asks: &[Ask],
    question: &str,
) -> Result<Option<String>, Error> {
    let mut typing = prompt(question)?;
    let mut later = Vec::new();
    let typed = loop {
        tokio::select! {
            typed = &mut typing => break Some(read(typed)?),
            step = session.next() => match step? {
                Step::Event { event, old, text: _ } => {
                    let settled = asks.iter().any(|ask| settles(&event, ask));
                    // The question stands on the line that this would go on.
                    match render(&event) {
                        Some(text) if !old => output::say(&format!("\n{text}")),
                        Some(_) | None if settled => output::say(""),
                        Some(_) | None => continue,
                    }
                    if settled {
                        // What is typed now was meant for this ask, never for a later one.
                        output::progress("This ask is settled. Press Enter to go on.");
                        read(typing.await)?;
                        break None;
                    }
                    show(question)?;
                }
                Step::Ask(ask) => later.push(ask),
                Step::Ended(_) => {
                    output::say("\nThe run has ended. Press Enter to go on.");
                    read(typing.await)?;
                    break None;
                }
            },
        }
    };
    session.put_back(later);
    Ok(typed)
}

fn settles(event: &Event, ask: &Ask) -> bool {
    match &event.data {
        Data::PermissionResolved(resolved) => resolved.permission_id == ask.permission_id,
        Data::AgentStopped(stopped) => stopped.parent_run_id.is_none(),
        _ => false,
    }
}

fn read(typed: Result<io::Result<String>, tokio::task::JoinError>) -> Result<String, Unreadable> {
    Ok(typed.map_err(io::Error::from).flatten()?)
}

/// Asks for a line; what was typed before the question was shown does not count.
fn prompt(question: &str) -> Result<JoinHandle<io::Result<String>>, Unreadable> {
    tcflush(io::stdin(), QueueSelector::IFlush).map_err(io::Error::from)?;
    show(question)?;
    Ok(spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        Ok(line)
    }))
}

fn show(question: &str) -> Result<(), Unreadable> {
    let mut out = io::stderr().lock();
    Ok(write!(out, "{question}").and_then(|()| out.flush())?)
}

/// One less than the terminal has: the question needs one.
fn screen() -> usize {
    let rows = tcgetwinsize(io::stdin()).map_or(0, |size| usize::from(size.ws_row));
    if rows < 3 { LINES - 1 } else { rows - 1 }
}

/// Yes is two words, and `r` where it was offered; everything else, also nothing, is no yes.
fn read_as(typed: &str, run: bool) -> Typed {
    match typed.trim() {
        "y" | "yes" => Typed::Yes,
        "r" if run => Typed::Run,
        _ => Typed::Else,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_allows() {
        for yes in ["y", "yes", "y\n", " yes \r\n"] {
            assert_eq!(read_as(yes, false), Typed::Yes, "{yes:?}");
        }
        for no in [
            "",
            "\n",
            "n",
            "no",
            "d",
            "q",
            "r",
            "R",
            "run",
            "Y",
            "YES",
            "yes please",
            "yy",
            "y y",
            "y r",
            "ja",
            "allow",
            "1",
            "y\u{200b}",
        ] {
            assert_eq!(read_as(no, false), Typed::Else, "{no:?}");
        }
    }

    #[test]
    fn the_rest_of_the_run_is_meant_only_by_its_letter() {
        assert_eq!(read_as("r\n", true), Typed::Run);
        assert_eq!(read_as("y", true), Typed::Yes);
        for no in ["R", "rr", "run", "y r", "r y", ""] {
            assert_eq!(read_as(no, true), Typed::Else, "{no:?}");
        }
    }
}
