//! Rules about commands that another way of writing the same command passes by. It compares texts; whether a
//! program takes its options in such places it does not know.

use event::Effect;

use crate::action::Action;
use crate::place::At;
use crate::policy::{Pattern, Policy};

use super::{Code, Notes};

/// Every command that is denied or asked about by its subcommand, beside an allow that lets options come first.
pub(super) fn of_policy(policy: &Policy, notes: &mut Notes<'_>) {
    let action = Action::ProcessExec;
    let patterns = || policy.patterns().filter(move |(about, _)| *about == action);
    let allows: Vec<&Pattern> = patterns()
        .map(|(_, pattern)| pattern)
        .filter(|pattern| pattern.terms.effect == Effect::Allow)
        .collect();
    for (_, pattern) in patterns().filter(|(_, pattern)| pattern.terms.effect != Effect::Allow) {
        passed_by(&pattern.text, pattern.at, &pattern.name(action), &allows, notes);
    }
    for hard in policy.hard_deny.get(&action).into_iter().flatten() {
        let name = hard.name(action);
        passed_by(&hard.text, hard.at, &name, &allows, notes);
        if let Some(why) = brittle(&hard.text) {
            notes.warn(Code::BrittleDeny, hard.at, name, why);
        }
    }
}

fn passed_by(text: &str, at: At, rule: &str, allows: &[&Pattern], notes: &mut Notes<'_>) {
    let Some((program, rest)) = text.split_once(' ') else { return };
    let subcommand = rest.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !subcommand || program.contains(['*', '?', '\'']) {
        return;
    }
    let word = rest.split([' ', '*', '?']).next().unwrap_or_default();
    let moved = format!("{program} -x {word}");
    let allow = allows.iter().find(|allow| allow.glob.matches(&moved));
    if let Some(allow) = allow {
        let name = allow.name(Action::ProcessExec);
        let text = format!("an option before {word} passes it by: {name} decides {moved}");
        notes.warn(Code::OptionsFirst, at, rule, text);
    }
}

/// Why a denied command is easily written otherwise.
fn brittle(text: &str) -> Option<&'static str> {
    if text.contains('\'') {
        return Some(
            "it holds a quoted word, and another script or another spacing is another text",
        );
    }
    if text.contains('~') {
        return Some("~ is no home directory here; argvs have the directory itself");
    }
    if text != "*" && !text.contains(['*', '?']) {
        return Some("it has no wildcard, so any further word passes it by; add ** at its end");
    }
    None
}
