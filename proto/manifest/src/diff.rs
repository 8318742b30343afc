//! What another set of files would decide otherwise, over subjects made from both and over subjects that came
//! up before. It compares decisions, not texts.

mod keys;

use std::collections::{BTreeMap, BTreeSet};

use event::Effect;
use serde::Serialize;

use crate::action::Action;
use crate::decision::{Decision, Layer};
use crate::policy::{FALLBACK, Policy};
use crate::protected::Protected;
use crate::requirement::Requirement;
use crate::rulebook::Rulebook;

pub use keys::{KeyChange, diff_keys};

/// A member of each kind of the interpreter class, and two that nobody can read.
const INTERPRETERS: [&str; 21] = [
    "sh -c x",
    "sh x",
    "sh -c '$X'",
    "fish -c x",
    "python3 x",
    "perl -e x",
    "env x",
    "env -S '$X'",
    "xargs x",
    "sudo x",
    "ssh x x",
    "vim x",
    "find . -delete",
    "find . -exec x '{}' ';'",
    "git -c a=b x",
    "git config a b",
    "tar -I x -xf x",
    "sed -f x",
    "make -f x",
    "go run x",
    "npm exec x",
];

/// A subject that is decided differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub before: Outcome,
    pub after: Outcome,
    /// More is allowed, or fewer or other people need to answer.
    pub widening: bool,
    /// How often it came up in what was recorded.
    pub recorded: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub effect: Effect,
    pub layer: Layer,
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Requirement>,
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        let Decision { effect, layer, rule, approvers, .. } = decision;
        Self { effect, layer, rule, approvers }
    }
}

/// A decision that was once asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recorded {
    pub action: Action,
    pub subject: Option<String>,
}

/// Every subject with another effect or other approvers, by action and subject. The corpus is made from the
/// patterns of both sides, and from `recorded`.
pub fn diff(old: &Rulebook, new: &Rulebook, recorded: &[Recorded]) -> Vec<Change> {
    let mut corpus: BTreeMap<Recorded, u64> = BTreeMap::new();
    for subject in generated(old).into_iter().chain(generated(new)) {
        corpus.entry(subject).or_default();
    }
    if old.protected() != new.protected() {
        for subject in protected(old, new) {
            corpus.entry(Recorded { action: Action::FsWrite, subject: Some(subject) }).or_default();
        }
    }
    for subject in recorded {
        *corpus.entry(subject.clone()).or_default() += 1;
    }
    corpus
        .into_iter()
        .filter_map(|(Recorded { action, subject }, recorded)| {
            let before = Outcome::from(old.decide(action, subject.as_deref()));
            let after = Outcome::from(new.decide(action, subject.as_deref()));
            let same = before.effect == after.effect && before.approvers == after.approvers;
            let widening = widens(&before, &after);
            (!same).then_some(Change { action, subject, before, after, widening, recorded })
        })
        .collect()
}

fn widens(before: &Outcome, after: &Outcome) -> bool {
    match (&before.approvers, &after.approvers) {
        (Some(before), Some(after)) => !after.covers(before),
        _ => after.effect < before.effect,
    }
}

fn generated(rulebook: &Rulebook) -> BTreeSet<Recorded> {
    let mut subjects = BTreeSet::new();
    for action in Action::ALL {
        subjects.insert(Recorded { action, subject: None });
        subjects.insert(Recorded { action, subject: Some(unheard_of(action).to_owned()) });
    }
    for side in rulebook.sides() {
        for (action, pattern) in written(side.policy) {
            let mut samples = samples(pattern);
            if action == Action::ProcessExec {
                samples.extend(of_the_class(pattern));
            }
            let samples = samples.into_iter();
            subjects.extend(samples.map(|subject| Recorded { action, subject: Some(subject) }));
        }
    }
    let of_the_class = INTERPRETERS.map(|text| Some(text.to_owned()));
    subjects.extend(of_the_class.map(|subject| Recorded { action: Action::ProcessExec, subject }));
    let allowed = rulebook.manifest().allowed_paths.iter();
    for subject in allowed.flat_map(|pattern| samples(pattern)) {
        subjects.insert(Recorded { action: Action::FsWrite, subject: Some(subject) });
    }
    subjects
}

fn written(policy: &Policy) -> impl Iterator<Item = (Action, &str)> {
    let rules = policy.patterns().map(|(action, pattern)| (action, pattern.text.as_str()));
    let hard = policy
        .hard_deny
        .iter()
        .flat_map(|(action, hard)| hard.iter().map(|hard| (*action, hard.text.as_str())));
    rules.chain(hard)
}

/// Members of the class that a pattern with a wildcard may cover: those that begin as it does, and its program
/// with the words that make another one of the class.
fn of_the_class(pattern: &str) -> impl Iterator<Item = String> {
    let place = pattern.find('*').filter(|_| pattern != FALLBACK);
    let before = place.map(|place| pattern[..place].to_owned());
    before.into_iter().flat_map(|before| {
        INTERPRETERS.map(|whole| {
            let tail = whole.split_once(' ').map_or(whole, |(_, tail)| tail);
            if whole.starts_with(&before) {
                whole.to_owned()
            } else if before.ends_with(' ') {
                format!("{before}{tail}")
            } else {
                format!("{before} {tail}")
            }
        })
    })
}

/// Paths of every list, at the top and wherever the tasks may modify something.
fn protected(old: &Rulebook, new: &Rulebook) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = Protected::builtin_examples().collect();
    let mut roots = BTreeSet::from([String::new()]);
    for rulebook in [old, new] {
        let lists = rulebook.ceilings().filter_map(|(_, ceiling)| ceiling.protected_paths.as_ref());
        names.extend(lists.flatten().flat_map(|entry| samples(entry)));
        roots.extend(rulebook.manifest().allowed_paths.iter().filter_map(|path| {
            let root = path.strip_suffix("**").unwrap_or(path);
            (root.ends_with('/') && !root.contains(['*', '?'])).then(|| root.to_owned())
        }));
    }
    roots.iter().flat_map(|root| names.iter().map(move |name| format!("{root}{name}"))).collect()
}

/// What no rule was written for.
fn unheard_of(action: Action) -> &'static str {
    match action {
        Action::Network => "unheard-of.invalid:1",
        Action::FsRead | Action::FsWrite | Action::FsList => "unheard-of/x",
        Action::ProcessExec => "unheard-of x",
        Action::PatchImport | Action::McpCall | Action::Delegate => "unheard-of",
    }
}

/// Subjects that the pattern covers, and some just beside it.
fn samples(pattern: &str) -> BTreeSet<String> {
    let mut samples = BTreeSet::new();
    for (many, one) in [("", ""), ("x", "x"), ("x/y", "x"), (" x", " x"), (" x/y", "x")] {
        // Ports and question marks are single characters; a digit fits both.
        let text = pattern.replace("**", "\0").replace('*', one).replace('\0', many);
        let text = text.replace('?', "1").replace(":x", ":443");
        samples.insert(format!("{text}x"));
        samples.insert(text.trim_end_matches('/').to_owned());
        samples.insert(text);
    }
    samples.remove("");
    samples
}
