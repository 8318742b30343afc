//! Patterns that never match or never decide, and pairs whose precedence is by length alone. It compares what
//! patterns cover, not how they look.

use std::collections::BTreeMap;

use event::Effect;

use crate::action::Action;
use crate::command::parse_exec_subject;
use crate::execution::Backend;
use crate::glob::Glob;
use crate::interpreter::{has_options, is_class};
use crate::overlap::{contains, intersect};
use crate::place::At;
use crate::policy::{FALLBACK, Pattern, Rule};
use crate::policy_test::Example;
use crate::profile::Profile;
use crate::schema::Manifest;
use crate::server::{Server, tool_subject};

use super::{Code, Notes};

/// Pairs beyond this many patterns are not compared.
const MAX_COMPARED: usize = 400;

pub(super) fn of_rule(action: Action, rule: &Rule, notes: &mut Notes<'_>) {
    let Rule::Patterns { patterns, fallback, at: _ } = rule else { return };
    for pattern in patterns {
        can_match(action, &pattern.text, pattern.at, &pattern.name(action), notes);
    }
    if action == Action::ProcessExec {
        for pattern in rule.all() {
            reaches_interpreters(pattern, notes);
        }
    }
    let compared = patterns.get(..MAX_COMPARED).unwrap_or(patterns);
    for (index, later) in compared.iter().enumerate() {
        for earlier in &compared[..index] {
            pair(action, earlier, later, notes);
        }
    }
    let everything = patterns.iter().find(|pattern| pattern.text == "**");
    if let (Some(pattern), Some(fallback)) = (everything, fallback) {
        let text = format!("{} leaves nothing to the fallback", pattern.name(action));
        notes.warn(Code::Shadowed, fallback.at, fallback.name(action), text);
    }
}

/// Two patterns of one rule; `earlier` is preferred.
fn pair(action: Action, earlier: &Pattern, later: &Pattern, notes: &mut Notes<'_>) {
    let (first, second) = (earlier.terms.effect, later.terms.effect);
    if contains(&earlier.glob, &later.glob) {
        let text = format!("{} decides all that it covers", earlier.name(action));
        notes.warn(Code::Shadowed, later.at, later.name(action), text);
        return;
    }
    if first == second || !intersect(&earlier.glob, &later.glob) {
        return;
    }
    if !contains(&later.glob, &earlier.glob) {
        let text = format!(
            "it and {} cover some of the same, and which decides is a matter of length",
            later.name(action)
        );
        notes.warn(Code::AmbiguousOverlap, earlier.at, earlier.name(action), text);
    } else if first < second {
        let (weak, strict) = (first.as_str(), second.as_str());
        let text = format!("its {weak} is an exception to the {strict} of {}", later.name(action));
        notes.warn(Code::CarveOut, earlier.at, earlier.name(action), text);
    }
}

/// An error when no subject could ever match.
pub(super) fn can_match(action: Action, text: &str, at: At, rule: &str, notes: &mut Notes<'_>) {
    let why = match action {
        Action::FsRead | Action::FsWrite | Action::FsList => no_path(text),
        Action::ProcessExec => no_argv(text),
        Action::PatchImport => no_digest(text),
        Action::Delegate => no_profile(text),
        Action::McpCall | Action::Network => None,
    };
    if let Some(why) = why {
        notes.error(Code::NeverMatches, at, rule, why);
    }
}

fn no_profile(text: &str) -> Option<&'static str> {
    let glob = Glob::new(text);
    let named = Profile::ALL.iter().any(|profile| glob.matches(profile.as_str()));
    (!named).then_some("a profile is explorer, implementer, tester or reviewer")
}

fn no_path(text: &str) -> Option<&'static str> {
    if text.starts_with('/') {
        return Some("no subject is absolute");
    }
    if text.contains('\\') {
        return Some("no subject holds a backslash");
    }
    let plain = text.strip_suffix('/').unwrap_or(text);
    plain.split('/').find_map(|segment| match segment {
        ".." => Some("no subject has a .. segment"),
        "." if text != "." => Some("no subject has a . segment"),
        "" => Some("no subject has an empty segment"),
        _ => None,
    })
}

/// A patch is named by what it is, not by what is in it.
fn no_digest(text: &str) -> Option<&'static str> {
    let digest = Glob::new(&format!("sha256:{}", "?".repeat(64)));
    let apart = text != FALLBACK && !intersect(&digest, &Glob::new(text));
    apart.then_some("the subject is the patch's digest, not its paths; only * is of use")
}

/// What stands before the first wildcard must be the beginning of an argv's text.
fn no_argv(text: &str) -> Option<&'static str> {
    if text.ends_with(' ') {
        return Some("no subject ends in a blank");
    }
    let literal = text.find(['*', '?']).map_or(text, |end| &text[..end]);
    if literal.starts_with(' ') || literal.contains("  ") && !literal.contains('\'') {
        return Some("words of a command are joined by single spaces");
    }
    let mut quoted = false;
    for character in literal.chars() {
        match character {
            '\'' => quoted = !quoted,
            _ if quoted || character == '\\' || character == ' ' => {}
            _ if character.is_ascii_alphanumeric() || "_@%+=:,./-".contains(character) => {}
            _ => return Some("a word with such a character is in single quotes in every subject"),
        }
    }
    None
}

fn reaches_interpreters(pattern: &Pattern, notes: &mut Notes<'_>) {
    let wide = pattern.text == FALLBACK || !pattern.glob.is_literal();
    if pattern.terms.effect != Effect::Allow || !wide {
        return;
    }
    let prefix = if pattern.text == FALLBACK { "" } else { pattern.glob.prefix() };
    let words: Vec<String> = prefix.split(' ').map(str::to_owned).collect();
    let complete = words.len() > 1;
    // `git **` covers options that make git run something, too.
    let options = words.len() == 2 && words[1].is_empty() && has_options(&words[0]);
    if complete && !options && !is_class(&words) {
        return;
    }
    let text = match (pattern.terms.interpreter, complete) {
        (true, _) => "it allows whatever a shell, interpreter or wrapper is given",
        (false, true) if options => {
            "with options that run something it asks all the same, and lets all others through"
        }
        (false, true) => "it asks all the same: only class: interpreter allows such a program",
        (false, false) => "shells, interpreters and wrappers ask all the same; name the programs",
    };
    let rule = pattern.name(Action::ProcessExec);
    notes.warn(Code::InterpreterWildcard, pattern.at, rule, text);
}

/// Examples that the rules keep and the list of programs does not.
pub(super) fn of_the_tests(manifest: &Manifest, notes: &mut Notes<'_>) {
    if manifest.execution.backend == Backend::None {
        return;
    }
    for (index, test) in manifest.tests.iter().enumerate() {
        let argv = match &test.on {
            Example::Argv(argv) => Some(argv.clone()),
            Example::Subject(subject) if test.action == Action::ProcessExec => {
                parse_exec_subject(subject)
            }
            _ => None,
        };
        let program = argv.as_ref().and_then(|argv| argv.first());
        let refusal = program.and_then(|program| manifest.refusal(program));
        if let Some(why) = refusal.filter(|_| test.expect != Effect::Deny) {
            let expected = test.expect.as_str();
            let text =
                format!("it expects {expected}, and the command is refused all the same: {why}");
            notes.warn(Code::UnlistedProgram, test.at, format!("tests[{index}]"), text);
        }
    }
}

fn names_a_tool(servers: &BTreeMap<String, Server>, glob: &Glob) -> bool {
    servers.iter().any(|(name, server)| {
        server.tools.iter().any(|tool| glob.matches(&tool_subject(name, tool)))
    })
}

/// Rules against what the rest of the manifest says.
pub(super) fn of_the_task(manifest: &Manifest, notes: &mut Notes<'_>) {
    let allowed: Vec<Glob> = manifest
        .allowed_paths
        .iter()
        .map(|path| {
            Glob::new(&if path.ends_with('/') { format!("{path}**") } else { path.clone() })
        })
        .collect();
    for (action, pattern) in manifest.policy.patterns() {
        if pattern.terms.effect == Effect::Deny || pattern.text == FALLBACK {
            continue;
        }
        if action == Action::FsWrite
            && no_path(&pattern.text).is_none()
            && !allowed.iter().any(|allowed| intersect(allowed, &pattern.glob))
        {
            let text = "allowed_paths covers nothing of it, so it is denied all the same";
            notes.warn(Code::OutsideAllowedPaths, pattern.at, pattern.name(action), text);
        }
        let servers = &manifest.execution.servers;
        if action == Action::McpCall && !servers.is_empty() && !names_a_tool(servers, &pattern.glob)
        {
            let text = "no server of execution.servers lists such a tool";
            notes.warn(Code::UnlistedTool, pattern.at, pattern.name(action), text);
        }
        if action == Action::ProcessExec && manifest.execution.backend == Backend::Oci {
            let prefix = pattern.glob.prefix();
            let word = prefix.split_once(' ').map(|(program, _)| program);
            let program = word.or_else(|| pattern.glob.is_literal().then_some(prefix));
            let listed = &manifest.execution.allow_commands;
            if let Some(program) = program.filter(|program| !listed.iter().any(|l| l == program)) {
                let text = format!("execution.allow_commands does not list {program}");
                notes.warn(Code::UnlistedProgram, pattern.at, pattern.name(action), text);
            }
        }
    }
}
