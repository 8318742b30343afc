//! What a plan rests on: each decision as a part, whose allows the asking ones need, and the ceilings that were in
//! force. It shows what was decided and decides nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use manifest::{Action, Decision, Rulebook, Target, system};
use receipt::{Effect, Layer, Part, PathText, Plan, Policy, Requirement};

use super::{Planner, subject_of};
use crate::patch::{Entry, Patch};
use crate::tree::{Node, RelPath};

/// Above this many paths the parts of a plan are grouped by the rule that decided them.
const SHOWN: usize = 400;
/// Up to so many protected paths are parts of their own even then; the patch names them all.
const SHOWN_PROTECTED: usize = 200;
/// Parts with many rules behind them are larger; a plan has room for so many values in all.
const ROOM: usize = 4_500;

/// Parts in the order of the plan, and the allows that they need.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    wanted: Vec<Requirement>,
}

impl Parts {
    pub(super) fn of(decisions: impl IntoIterator<Item = Decision>) -> Self {
        let mut parts = Self::default();
        for decision in decisions {
            let subject = decision.subject.clone().map(PathText::from);
            parts.add(subject, &decision);
        }
        parts
    }

    /// With the path's own bytes for a subject.
    pub(super) fn add_at(&mut self, path: &RelPath, decision: &Decision) {
        self.add(Some(subject_of(path)), decision);
    }

    pub(super) fn add_named(&mut self, subject: &str, decision: &Decision) {
        self.add(Some(subject.to_owned().into()), decision);
    }

    /// Told by how they were decided, each kind with its number of paths.
    pub(super) fn add_grouped(
        &mut self,
        action: Action,
        decisions: impl IntoIterator<Item = Decision>,
    ) {
        let all = Self::of(decisions);
        self.wanted.extend(all.wanted);
        self.parts.extend(grouped(action, all.parts));
    }

    pub(super) fn add(&mut self, subject: Option<PathText>, decision: &Decision) {
        self.wanted.extend(decision.approvers.as_ref().map(requirement));
        self.parts.push(part(subject, decision));
    }

    pub(super) fn put_into(self, plan: &mut Plan) {
        let Self { parts, wanted } = self;
        plan.effect = receipt::strictest(&parts);
        plan.parts = parts;
        plan.approval = receipt::meant(wanted);
    }
}

impl Planner<'_> {
    /// A part for each path. Very many are grouped by the rule that decided them, the protected ones last.
    pub(super) fn decide_paths(&self, action: Action, patch: &Patch, parts: &mut Parts) {
        let entries: BTreeMap<&RelPath, &Entry> =
            patch.entries.iter().map(|entry| (&entry.path, entry)).collect();
        let mut all = Parts::default();
        for (path, entry) in entries {
            all.add_at(path, &self.decide_path(action, entry, patch));
        }
        parts.wanted.append(&mut all.wanted);
        if all.parts.len() <= SHOWN && all.parts.iter().map(room).sum::<usize>() <= ROOM {
            parts.parts.append(&mut all.parts);
            return;
        }
        let is_protected = |part: &Part| part.rule == system::PROTECTED_PATHS;
        let (apart, rest): (Vec<_>, Vec<_>) = all.parts.into_iter().partition(is_protected);
        if apart.len() <= SHOWN_PROTECTED && apart.iter().map(room).sum::<usize>() <= ROOM {
            parts.parts.extend(apart);
            parts.parts.extend(grouped(action, rest));
        } else {
            parts.parts.extend(grouped(action, apart));
            parts.parts.extend(grouped(action, rest));
        }
    }

    fn decide_path(&self, action: Action, entry: &Entry, patch: &Patch) -> Decision {
        let path = &entry.path;
        let directory =
            entry.change.after().or_else(|| entry.change.before()).is_some_and(Node::is_directory);
        let mut text = path.to_subject();
        if action == Action::FsWrite {
            let along = directory && self.holds_something_modifiable(path, patch);
            let target = if directory { Target::Directory { along } } else { Target::File };
            return self.rulebook.decide_write(&text, target);
        }
        if directory {
            // So that a pattern for everything in it covers the directory itself.
            text.push('/');
        }
        self.decide(action, &text)
    }

    /// A directory may be made or removed along with something in it that may.
    fn holds_something_modifiable(&self, path: &RelPath, patch: &Patch) -> bool {
        let manifest = self.manifest();
        patch
            .entries
            .iter()
            .any(|entry| entry.path.is_below(path) && manifest.may_modify(&entry.path.to_subject()))
    }
}

fn grouped(action: Action, parts: Vec<Part>) -> impl Iterator<Item = Part> {
    let mut groups: BTreeMap<(Reverse<Effect>, Layer, String), u64> = BTreeMap::new();
    for Part { effect, layer, rule, .. } in parts {
        *groups.entry((Reverse(effect), layer, rule)).or_default() += 1;
    }
    groups.into_iter().map(move |((Reverse(effect), layer, rule), count)| Part {
        action: action.as_str().to_owned(),
        subject: Some(format!("{count} paths").into()),
        effect,
        layer,
        rule,
        justification: None,
        matching: Vec::new(),
    })
}

/// How many values it has.
fn room(part: &Part) -> usize {
    8 + 4 * part.matching.len()
}

fn part(subject: Option<PathText>, decision: &Decision) -> Part {
    let Decision { action, effect, layer, rule, justification, matching, .. } = decision;
    let alone = matches!(matching.as_slice(), [one] if one.rule == *rule && one.layer == *layer);
    Part {
        action: action.as_str().to_owned(),
        subject,
        effect: *effect,
        layer: *layer,
        rule: rule.clone(),
        justification: justification.clone(),
        matching: if alone { Vec::new() } else { matching.clone() },
    }
}

fn requirement(wanted: &manifest::Requirement) -> Requirement {
    let manifest::Requirement { roles, not_requester, count, signature } = wanted.clone();
    Requirement { roles, not_requester, count, signature }
}

/// The ceilings in force, which are part of what is approved.
pub(super) fn policies(rulebook: &Rulebook) -> Vec<Policy> {
    let policy = |(layer, digest)| Policy { layer, digest };
    rulebook.policies().into_iter().map(policy).collect()
}
