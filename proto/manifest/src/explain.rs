//! A decision with all that led to it and what nearly did, for people and for programs. It decides nothing.

use std::fmt;

use event::{Digest, Effect};
use serde::Serialize;

use crate::action::Action;
use crate::ballot::Side;
use crate::command::{Command, parse_exec_subject};
use crate::decision::{Decision, Layer, Matched};
use crate::glob::{self, Glob};
use crate::interpreter::{self, Inspection};
use crate::nearest::distance;
use crate::place::At;
use crate::policy::{FALLBACK, Rule};
use crate::requirement::Requirement;
use crate::rulebook::Rulebook;

/// Why something is allowed, asked or denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What counts: the strictest of all parts.
    pub decision: Decision,
    /// Where the rule that decides is written, if it is in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<At>,
    /// Of a command: the whole argv, then each command inside it about which a rule says something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Decision>,
    /// Patterns that do not match, and why they might have been meant to.
    pub near_misses: Vec<NearMiss>,
    /// What else is to be known: where a command could not be read on, and what refuses it beside the rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The files in force.
    pub files: Vec<SourceFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    pub layer: Layer,
    pub rule: String,
    pub effect: Effect,
    pub at: At,
    pub why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    pub layer: Layer,
    pub id: String,
    pub digest: Digest,
}

impl Rulebook {
    /// As [`Self::decide`], with everything around it.
    pub fn explain(&self, action: Action, subject: Option<&str>) -> Explanation {
        let mut explanation = self.explained(self.decide(action, subject), Vec::new());
        let argv = subject.filter(|_| action == Action::ProcessExec).and_then(parse_exec_subject);
        if let Some(argv) = argv {
            explanation.notes = self.notes(&Command { argv, program: None });
        }
        explanation
    }

    /// As [`Self::decide_exec`], with everything around it.
    pub fn explain_exec(&self, command: &Command) -> Explanation {
        let parts = self.decide_exec(command);
        let decision = Decision::strictest(parts.iter().cloned());
        let decision = decision.unwrap_or_else(|| self.decide(Action::ProcessExec, None));
        Explanation { notes: self.notes(command), ..self.explained(decision, parts) }
    }

    /// Whatever was decided: a command inside that was not seen is one about which nothing was decided.
    fn notes(&self, command: &Command) -> Vec<String> {
        let Inspection { class, unparsable, opaque, .. } = interpreter::inspect(command);
        let class = class.unwrap_or_default();
        let stopped = unparsable
            .or(opaque)
            .map(|why| format!("what {class} runs was not read to the end: {why}"));
        let refused = command.argv.first().and_then(|program| self.manifest().refusal(program));
        stopped.into_iter().chain(refused.map(|why| format!("effect: refused; {why}"))).collect()
    }

    fn explained(&self, decision: Decision, parts: Vec<Decision>) -> Explanation {
        let mut near_misses = Vec::new();
        if let Some(subject) = &decision.subject {
            for side in self.sides() {
                misses(side, &decision, subject, &mut near_misses);
            }
        }
        let place = self.place_of(decision.action, decision.layer, &decision.rule);
        let ceilings = self.ceilings().map(|(layer, ceiling)| SourceFile {
            layer,
            id: ceiling.id.clone(),
            digest: ceiling.digest,
        });
        let manifest = SourceFile {
            layer: Layer::Manifest,
            id: self.manifest().id.clone(),
            digest: self.manifest().digest,
        };
        let files = ceilings.chain([manifest]).collect();
        Explanation { decision, place, parts, near_misses, notes: Vec::new(), files }
    }

    /// Where a rule that a decision names is written.
    pub fn place_of(&self, action: Action, layer: Layer, rule: &str) -> Option<At> {
        let side = self.sides().into_iter().find(|side| side.layer == layer)?;
        let hard = side.policy.hard_deny.get(&action).into_iter().flatten();
        if let Some(hard) = hard.into_iter().find(|hard| hard.name(action) == rule) {
            return Some(hard.at);
        }
        let found = side.policy.rules.get(&action)?;
        let pattern = found.all().find(|pattern| pattern.name(action) == rule);
        match (pattern, found) {
            (Some(pattern), _) => Some(pattern.at),
            (None, Rule::Flat { at, .. } | Rule::Patterns { at, .. }) => {
                (rule == format!("permissions.{action}")).then_some(*at)
            }
        }
    }
}

fn misses(side: Side<'_>, decision: &Decision, subject: &str, found: &mut Vec<NearMiss>) {
    let Side { layer, policy } = side;
    let action = decision.action;
    let patterns = policy.patterns().filter(|(about, _)| *about == action);
    for (_, pattern) in patterns.filter(|(_, pattern)| pattern.text != FALLBACK) {
        let (rule, effect) = (pattern.name(action), pattern.terms.effect);
        let matched = Matched { layer, rule: rule.clone(), effect };
        if decision.matching.contains(&matched) {
            continue;
        }
        if let Some(why) = near(&pattern.text, subject, action) {
            found.push(NearMiss { layer, rule, effect, at: pattern.at, why });
        }
    }
}

/// Why a pattern that does not match might have been meant to.
fn near(pattern: &str, subject: &str, action: Action) -> Option<&'static str> {
    let further = pattern.replace("**", "*").replace('*', "**");
    if glob::matches(&further, subject) {
        return Some("a * stops at /; ** does not");
    }
    if Glob::new(&pattern.to_lowercase()).matches(&subject.to_lowercase()) {
        return Some("it differs in upper and lower case");
    }
    if action == Action::Network && pattern.strip_prefix("*.") == Some(subject) {
        return Some("*. covers what is below a domain, not the domain itself");
    }
    if action == Action::ProcessExec && subject.strip_prefix(pattern).is_some_and(goes_on) {
        return Some("it has no wildcard at its end and the command goes on");
    }
    if action.is_about_paths() {
        if pattern.strip_suffix("/**") == Some(subject) {
            return Some("it covers what is in the directory, not the directory");
        }
        let directory = pattern.trim_end_matches('/');
        if subject.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')) {
            return Some("it covers the directory, not what is in it; add /**");
        }
        let plain = pattern.trim_start_matches("./").trim_start_matches('/');
        if plain != pattern && glob::matches(plain, subject) {
            return Some("paths begin neither with / nor with ./");
        }
    }
    let short = pattern.len().max(subject.len()) <= 64 && pattern.len().min(subject.len()) > 4;
    (short && distance(pattern, subject) <= 2).then_some("it differs by a character or two")
}

fn goes_on(rest: &str) -> bool {
    rest.starts_with(' ')
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decision, place, parts, near_misses, notes, files } = self;
        let whole = parts.first().unwrap_or(decision);
        let subject = whole.subject.as_deref().unwrap_or("(no subject)");
        writeln!(f, "{} {} {}", decision.effect.as_str(), decision.action, Plain(subject))?;
        if whole.subject != decision.subject {
            let inside = decision.subject.as_deref().unwrap_or_default();
            writeln!(f, "  because of: {}", Plain(inside))?;
        }
        write!(f, "  rule: {} ({}", Plain(&decision.rule), decision.layer.as_str())?;
        match place {
            Some(At { line, column }) => writeln!(f, ", line {line}, column {column})")?,
            None => writeln!(f, ")")?,
        }
        writeln!(f, "  reason: {}", Plain(&decision.reason))?;
        if let Some(justification) = &decision.justification {
            writeln!(f, "  justification: {}", Plain(justification))?;
        }
        if let Some(approvers) = &decision.approvers {
            writeln!(f, "  answered by: {}", Answered(approvers))?;
        }
        for Matched { layer, rule, effect } in &decision.matching {
            let (effect, layer) = (effect.as_str(), layer.as_str());
            writeln!(f, "  matches: {effect} {layer} {}", Plain(rule))?;
        }
        for part in parts.iter().skip(1) {
            let subject = part.subject.as_deref().unwrap_or_default();
            let (effect, layer) = (part.effect.as_str(), part.layer.as_str());
            writeln!(f, "  inside: {effect} {} ({layer} {})", Plain(subject), Plain(&part.rule))?;
        }
        for NearMiss { layer, rule, effect, at: _, why } in near_misses {
            let (effect, layer) = (effect.as_str(), layer.as_str());
            writeln!(f, "  near miss: {effect} {layer} {}: {why}", Plain(rule))?;
        }
        for note in notes {
            writeln!(f, "  note: {}", Plain(note))?;
        }
        for SourceFile { layer, id, digest } in files {
            writeln!(f, "  {}: {id} {digest}", layer.as_str())?;
        }
        Ok(())
    }
}

/// Text of a file or subject, harmless on a terminal.
struct Plain<'t>(&'t str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            let hidden = crate::names::is_ignorable(character)
                || matches!(character, '\u{2028}' | '\u{2029}');
            if character.is_control() || hidden {
                write!(f, "{}", character.escape_unicode())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

struct Answered<'r>(&'r Requirement);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement { roles, not_requester, count, signature } = self.0;
        let people = if *count == 1 { "person" } else { "people" };
        write!(f, "{count} {people}")?;
        if !roles.is_empty() {
            let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
            write!(f, " with role {}", roles.join(" or "))?;
        }
        if *not_requester {
            write!(f, ", not the requester")?;
        }
        if *signature {
            write!(f, ", each with a signature")?;
        }
        Ok(())
    }
}
