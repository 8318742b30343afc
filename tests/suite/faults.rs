//! What approvals, rules and patches have got wrong elsewhere, tried against the whole; where one service shows all of a
//! property by itself, its own test is named. No test here weakens a rule to be met.
//!
//! | Property | Shown by |
//! |---|---|
//! | Waiting for a person uses up no other limit | agent-svc `half_an_hour_of_waiting_for_a_person_counts_against_no_other_limit`; [`asks`] |
//! | Refused, expired, canceled and left alone are told apart | `denials`; agent-svc `sources` |
//! | An ask survives its connection, is shown again whatever was seen, and is settled once | [`asks`]; `denials`, `kills`, `held` |
//! | A late answer is told that the time is over | [`asks`]; `denials` |
//! | Of two answers one wins; the other learns whose | `race`; agent-svc `of_two_answers_at_once_exactly_one_wins_a_hundred_times` |
//! | An allow for the run is for the exact arguments | [`asks`]; `approvals`; `red_team::standing`; sandbox-svc `a_standing_allow_is_for_the_exact_command_under_the_very_same_policy` |
//! | What is shown is what runs, byte for byte; an answer names what was displayed | [`shown`]; `denials`; harness `escape`, `run` |
//! | Nothing that a tool says of itself decides, and a tool that changed is asked for anew | `servers`; sandbox-svc `servers` |
//! | Nothing that a model says about its call decides | `servers`; [`shown`]; agent-svc `an_effect_that_is_asked_needs_its_person_whatever_the_model_says` |
//! | An answer to a world that has changed does nothing and is used up | [`world`]; `red_team::policies`; sandbox-svc `boundary` |
//! | Each command inside a command is decided, the strictest counts | `decisions`; manifest `commands`; sandbox-svc `every_command_inside_a_command_is_judged` |
//! | One rule book, whoever asks and whether anybody is there | `decisions` |
//! | A rule file that cannot be used stops the start and is named with its line | [`files`]; `bad_input`; gateway `manifests`, sandbox-svc `every_fault_of_every_file_is_told_at_once` |
//! | An empty list says what the documentation says | [`files`]; manifest `an_empty_list_of_permissions_asks_for_everything` |
//! | Layers only narrow, the order of rules says nothing | [`files`]; manifest `a_further_deny_never_widens`, `layers_agree_with_the_naive_reading_in_any_order` |
//! | Paths are normal before they are matched, and `..` leads nowhere | [`files`]; manifest `paths` |
//! | What runs on its own later is asked for, once; `.git` is never written | [`paths`]; sandbox-svc `what_runs_later_is_asked_for_once_and_git_is_never_written` |
//! | A declaration wider than a task may have is refused before the engine is asked | [`paths`]; `red_team::door` |
//! | A child's asks reach whoever watches its parent, and outlive any process | `children` |
//!
//! Not to be shown, because there is no such thing here: tools of servers that are reached over a network.

mod asks;
mod files;
mod paths;
mod shown;
mod world;

use anyhow::{Context as _, Result};
use e2e::{Books, Line, Person, Rig, until};
use event::id::SessionId;
use serde_json::{Value, json};

const EXEC: &str = "process.exec";

fn argv(items: &[&str]) -> Value {
    json!({"argv": items})
}

/// The lines of one writer about the session, once its run has ended.
async fn ended(rig: &Rig, session: SessionId, writer: &str) -> Result<Vec<Line>> {
    let books = Books::open(rig)?;
    until("the run's end", || async {
        let lines = books.stream("agent-svc", session).await.ok()?;
        lines.iter().any(|line| line.kind == "agent.stopped").then_some(())
    })
    .await;
    books.stream(writer, session).await
}

fn of_kind<'a>(lines: &'a [Line], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line.kind == kind).map(|line| &line.data).collect()
}

/// How the next call ended: its error's code, or that it went well.
async fn result(person: &mut Person) -> Result<String> {
    let result = person.next_of("tool.result").await?;
    if result.data["ok"] == json!(true) {
        return Ok("ok".to_owned());
    }
    Ok(result.data["error"]["code"].as_str().context("a code")?.to_owned())
}
