//! `manifest diff`: what two files decide otherwise. What is widened must be said to be meant.
use std::path::{Path, PathBuf};

use manifest::{Action, Ceiling, Change, Effect, KeyChange, Layer, Manifest, Outcome, Rulebook};
use serde::Serialize;

use super::{
    explain::Approvers,
    files::{self, Book, Ceilings, Parsed},
    recorded,
};
use crate::{
    Error,
    error::{Exit, Explain},
    escape, output,
    words::requirement,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task manifest, or ceiling, as it is
    old: PathBuf,
    /// The same as it is to be
    new: PathBuf,
    #[command(flatten)]
    ceilings: Ceilings,
    /// Decide also what was asked for in the ledger of this running mesh
    #[arg(long, value_name = "STATE")]
    ledger: Option<PathBuf>,
    /// Decide also what was asked for in this file of entries, one JSON value a line
    #[arg(long, value_name = "FILE.jsonl")]
    recorded: Option<PathBuf>,
    /// Exit 0 also when something is widened
    #[arg(long)]
    allow_widening: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    ok: bool,
    widening: usize,
    narrowing: usize,
    /// Decisions that came up before.
    recorded: usize,
    changes: Vec<Shown>,
    /// Of keys other than the rules; the widening ones count as such too.
    keys: Vec<KeyChange>,
}

#[derive(Serialize)]
struct Shown {
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    before: Side,
    after: Side,
    widening: bool,
    /// How often it came up before.
    recorded: u64,
}

#[derive(Serialize)]
struct Side {
    effect: Effect,
    layer: Layer,
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvers: Option<Approvers>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the new file widens {0} of the decisions and keys that were compared")]
    Widens(usize),
    #[error("{} and {} are not both manifests or both ceilings", .0.display(), .1.display())]
    Unlike(PathBuf, PathBuf),
}

impl Explain for Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Widens(_) => Exit::Failed,
            Self::Unlike(..) => Exit::Usage,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Widens(_) => "give --allow-widening when each of them is meant",
            Self::Unlike(..) => "compare two files of one form",
        }
        .to_owned()
    }
}

pub(super) async fn diff(args: Args) -> Result<Exit, Error> {
    let Args { old, new, ceilings, ledger, recorded, allow_widening, json } = args;
    let (before, after) = books(&old, &new, &ceilings)?;
    let mut known = Vec::new();
    if let Some(state) = &ledger {
        known.extend(recorded::in_ledger(state).await?);
    }
    if let Some(path) = &recorded {
        known.extend(recorded::in_file(path)?);
    }
    let changes = manifest::diff(&before, &after, &known);
    let keys = manifest::diff_keys(&before, &after);
    let widening = changes.iter().filter(|change| change.widening).count()
        + keys.iter().filter(|change| change.widening).count();
    let narrowing = changes.len() + keys.len() - widening;
    let ok = widening == 0 || allow_widening;
    if json {
        let changes = changes.into_iter().map(Shown::from).collect();
        let recorded = known.len();
        output::document(
            "policy-diff",
            &Document { ok, widening, narrowing, recorded, changes, keys },
        )?;
    } else {
        for change in &changes {
            output::line_out(&told(change))?;
        }
        for change in &keys {
            output::line_out(&told_of_key(change))?;
        }
        let recorded = known.len();
        output::progress(&format!(
            "{widening} decisions and keys are widened and {narrowing} narrowed; {recorded} were recorded"
        ));
    }
    if ok { Ok(Exit::Done) } else { Err(Failure::Widens(widening).into()) }
}

fn books(old: &Path, new: &Path, ceilings: &Ceilings) -> Result<(Rulebook, Rulebook), Error> {
    match (files::read(old)?, files::read(new)?) {
        (Parsed::Manifest(before), Parsed::Manifest(after)) => {
            Ok((Book::of(*before, old, ceilings)?.rules, Book::of(*after, new, ceilings)?.rules))
        }
        (Parsed::Ceiling(before), Parsed::Ceiling(after)) => {
            Ok((narrowing(before, old, ceilings)?, narrowing(after, new, ceilings)?))
        }
        (Parsed::Manifest(_), Parsed::Ceiling(_)) | (Parsed::Ceiling(_), Parsed::Manifest(_)) => {
            Err(Failure::Unlike(old.to_owned(), new.to_owned()).into())
        }
    }
}

/// Under it everything that a ceiling does not narrow is allowed.
const OPEN: &str = "{id: everything, title: everything, goal: everything, acceptance: [x], allowed_paths: ['**'], \
    permissions: {fs.read: allow, fs.write: allow, fs.list: allow, process.exec: allow, network: allow, \
    patch.import: allow, mcp.call: allow, delegate: allow}}";

/// A ceiling over a manifest that allows everything: what is decided then is the ceiling's own.
fn narrowing(ceiling: Ceiling, path: &Path, ceilings: &Ceilings) -> Result<Rulebook, files::Error> {
    let open = Manifest::parse(OPEN.as_bytes(), "everything")
        .map_err(|faults| files::Error::Faults { path: path.to_owned(), faults })?;
    // Beside the organisation's ceiling, if that is given; else as the organisation's.
    let book = Book::of(open, path, ceilings)?;
    let organisation = book.rules.ceiling(Layer::Organisation).cloned();
    let manifest = book.rules.manifest().clone();
    Ok(match organisation {
        Some(organisation) => Rulebook::new(manifest, Some(organisation), Some(ceiling)),
        None => Rulebook::new(manifest, Some(ceiling), None),
    })
}

impl From<Change> for Shown {
    fn from(change: Change) -> Self {
        let Change { action, subject, before, after, widening, recorded } = change;
        Self { action, subject, before: before.into(), after: after.into(), widening, recorded }
    }
}

impl From<Outcome> for Side {
    fn from(outcome: Outcome) -> Self {
        let Outcome { effect, layer, rule, approvers } = outcome;
        Self { effect, layer, rule, approvers: approvers.map(Approvers::from) }
    }
}

fn told(change: &Change) -> String {
    let Change { action, subject, before, after, widening, recorded } = change;
    let mark = if *widening { "WIDENS " } else { "narrows" };
    let subject = match subject {
        Some(subject) => escape::line(subject),
        None => "(no subject)".to_owned(),
    };
    let times = match recorded {
        0 => String::new(),
        times => format!("; recorded {times} times"),
    };
    format!("{mark} {action} {subject}: {} -> {}{times}", side(before), side(after))
}

fn told_of_key(change: &KeyChange) -> String {
    let KeyChange { layer, key, before, after, widening } = change;
    let mark = if *widening { "WIDENS " } else { "changes" };
    let (key, before, after) = (escape::line(key), escape::line(before), escape::line(after));
    format!("{mark} {key} of {}: {before} -> {after}", layer.as_str())
}

fn side(outcome: &Outcome) -> String {
    let Outcome { effect, layer, rule, approvers } = outcome;
    let who = approvers.as_ref().filter(|approvers| !approvers.is_trivial()).map(|approvers| {
        let roles = approvers.roles.iter().map(String::as_str);
        let who = requirement(roles, approvers.not_requester, approvers.count, approvers.signature);
        format!(" of {who}")
    });
    let (effect, who) = (effect.as_str(), who.unwrap_or_default());
    format!("{effect}{who} ({} of {})", escape::line(rule), layer.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_that_allows_everything_does() {
        let open = Manifest::parse(OPEN.as_bytes(), "everything").unwrap();
        let rules = Rulebook::new(open, None, None);
        for action in Action::ALL {
            assert_eq!(rules.decide(action, None).effect, Effect::Allow, "{action}");
        }
    }
}
