//! `manifest explain`: one action on one subject, and everything that had a say in it. The words are the rules' own and
//! shown escaped; nothing of them is left out.
use std::path::PathBuf;

use event::Digest;
use manifest::{
    Action, Command, Decision, Effect, Explanation, Layer, Matched, NearMiss, Requirement,
    SourceFile, parse_exec_subject,
};
use serde::Serialize;

use super::files::{Book, Ceilings};
use crate::{
    Error,
    error::{Exit, Explain},
    escape, output,
    words::requirement,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task manifest
    file: PathBuf,
    /// Such as fs.write; for a command give the argv after -- instead
    #[arg(required_unless_present = "argv", conflicts_with = "argv")]
    action: Option<String>,
    /// Path, host:port or whatever the action is about
    subject: Option<String>,
    /// A command as it would be run
    #[arg(last = true, value_name = "ARGV")]
    argv: Vec<String>,
    #[command(flatten)]
    ceilings: Ceilings,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no action")]
struct NotAnAction(String);

impl Explain for NotAnAction {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        let names: Vec<&str> = Action::ALL.into_iter().map(Action::as_str).collect();
        format!("give one of {}", names.join(", "))
    }
}

pub(super) fn explain(args: Args) -> Result<Exit, Error> {
    let Args { file, action, subject, argv, ceilings, json } = args;
    let book = Book::read(&file, &ceilings)?;
    let explanation = match action {
        None => book.rules.explain_exec(&Command::new(argv)),
        Some(name) => {
            let action = Action::named(&name).ok_or(NotAnAction(name))?;
            let subject = subject.as_deref();
            // What is the subject of an argv is taken apart as that argv.
            match subject.filter(|_| action == Action::ProcessExec).and_then(parse_exec_subject) {
                Some(argv) => book.rules.explain_exec(&Command::new(argv)),
                None => book.rules.explain(action, subject),
            }
        }
    };
    let shown = Shown::of(&book, explanation);
    match json {
        true => output::document("policy-explanation", &shown)?,
        false => output::line_out(shown.text().trim_end())?,
    }
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    decision: Decided,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    /// The whole argv, then each command in it that a rule speaks of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Decided>,
    near_misses: Vec<Near>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    files: Vec<InForce>,
}

/// A decision in the spelling of this program's documents.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decided {
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    effect: Effect,
    layer: Layer,
    rule: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    justification: Option<String>,
    matching: Vec<Matched>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvers: Option<Approvers>,
    manifest_digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Approvers {
    roles: Vec<String>,
    not_requester: bool,
    count: u8,
    signature: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Place {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    pub(super) line: u64,
    pub(super) column: u64,
}

#[derive(Debug, Serialize)]
struct Near {
    layer: Layer,
    rule: String,
    effect: Effect,
    #[serde(flatten)]
    place: Place,
    why: &'static str,
}

#[derive(Debug, Serialize)]
struct InForce {
    layer: Layer,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    id: String,
    digest: Digest,
}

impl From<Requirement> for Approvers {
    fn from(requirement: Requirement) -> Self {
        let Requirement { roles, not_requester, count, signature } = requirement;
        Self { roles: roles.into_iter().collect(), not_requester, count, signature }
    }
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Self {
        let Decision {
            action,
            subject,
            effect,
            layer,
            rule,
            reason,
            justification,
            matching,
            approvers,
            manifest,
        } = decision;
        let approvers = approvers.map(Approvers::from);
        Self {
            action,
            subject,
            effect,
            layer,
            rule,
            reason,
            justification,
            matching,
            approvers,
            manifest_digest: manifest,
        }
    }
}

impl Place {
    /// `file:line:column`, escaped.
    pub(super) fn text(&self) -> String {
        let Self { file, line, column } = self;
        format!("{}:{line}:{column}", escape::line(file.as_deref().unwrap_or("?")))
    }
}

impl Shown {
    fn of(book: &Book, explanation: Explanation) -> Self {
        let Explanation { decision, place, parts, near_misses, notes, files } = explanation;
        let at = |layer, at: manifest::At| Place {
            file: book.file(layer),
            line: at.line,
            column: at.column,
        };
        let near = |miss: NearMiss| {
            let NearMiss { layer, rule, effect, at: place, why } = miss;
            Near { layer, rule, effect, place: at(layer, place), why }
        };
        let in_force = |source: SourceFile| {
            let SourceFile { layer, id, digest } = source;
            InForce { layer, file: book.file(layer), id, digest }
        };
        Self {
            place: place.map(|place| at(decision.layer, place)),
            decision: decision.into(),
            parts: parts.into_iter().map(Decided::from).collect(),
            near_misses: near_misses.into_iter().map(near).collect(),
            notes,
            files: files.into_iter().map(in_force).collect(),
        }
    }

    fn text(&self) -> String {
        let Self { decision, place, parts, near_misses, notes, files } = self;
        let whole = parts.first().unwrap_or(decision);
        let mut out =
            format!("{} {}{}\n", decision.effect.as_str(), decision.action, whole.about());
        let mut tell = |line: String| {
            out.push_str("  ");
            out.push_str(&line);
            out.push('\n');
        };
        if whole.subject != decision.subject {
            tell(format!("because of:{}", decision.about()));
        }
        let place = place.as_ref().map(|place| format!(" at {}", place.text())).unwrap_or_default();
        tell(format!(
            "rule: {} ({}){place}",
            escape::line(&decision.rule),
            decision.layer.as_str()
        ));
        tell(format!("reason: {}", escape::line(&decision.reason)));
        if let Some(justification) = &decision.justification {
            tell(format!("justification: {}", escape::line(justification)));
        }
        if let Some(Approvers { roles, not_requester, count, signature }) = &decision.approvers {
            let roles = roles.iter().map(String::as_str);
            tell(format!(
                "answered by: {}",
                requirement(roles, *not_requester, *count, *signature)
            ));
        }
        for matched in &decision.matching {
            tell(format!("matches: {}", rule(matched.effect, matched.layer, &matched.rule)));
        }
        for part in parts.iter().skip(1) {
            let by = rule(part.effect, part.layer, &part.rule);
            tell(format!("inside:{} is {by}", part.about()));
        }
        for Near { layer, rule: name, effect, place, why } in near_misses {
            tell(format!("near miss: {} at {}: {why}", rule(*effect, *layer, name), place.text()));
        }
        for note in notes {
            tell(format!("note: {}", escape::line(note)));
        }
        for InForce { layer, file, id, digest } in files {
            let file = escape::line(file.as_deref().unwrap_or_default());
            tell(format!("{}: {} {file} {digest}", layer.as_str(), escape::line(id)));
        }
        out
    }
}

impl Decided {
    fn about(&self) -> String {
        match &self.subject {
            Some(subject) => format!(" {} ({})", escape::line(subject), escape::extent(subject)),
            None => " (no subject)".to_owned(),
        }
    }
}

fn rule(effect: Effect, layer: Layer, name: &str) -> String {
    format!("{} by {} of {}", effect.as_str(), escape::line(name), layer.as_str())
}
