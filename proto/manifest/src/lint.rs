//! What is probably not meant in files that are well-formed: rules that never decide, patterns that match
//! nothing, asks that nobody can answer. It judges the writing, never an action.

mod commands;
mod patterns;
mod people;

use std::collections::{BTreeMap, BTreeSet};

use event::Effect;
use serde::Serialize;

use crate::action::Action;
use crate::ceiling::Ceiling;
use crate::decision::Layer;
use crate::place::At;
use crate::policy::{Policy, Rule};
use crate::rulebook::Rulebook;
use crate::schema::{Manifest, OnDisconnect};

pub use people::Roster;

/// One thing to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub layer: Layer,
    pub level: Level,
    pub code: Code,
    /// The rule or key it is about.
    pub rule: String,
    pub text: String,
    #[serde(flatten)]
    pub at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It cannot be meant.
    Error,
    /// It may be meant.
    Warning,
}

/// What kind of finding; documented in docs/manifest.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    NeverMatches,
    OutsideAllowedPaths,
    UnlistedProgram,
    UnlistedTool,
    Shadowed,
    CarveOut,
    AmbiguousOverlap,
    InterpreterWildcard,
    FlatExecAllow,
    Unanswerable,
    UnknownRole,
    NoTimeout,
    DuplicateId,
    OptionsFirst,
    BrittleDeny,
}

impl Code {
    pub const ALL: [Self; 15] = [
        Self::NeverMatches,
        Self::OutsideAllowedPaths,
        Self::UnlistedProgram,
        Self::UnlistedTool,
        Self::Shadowed,
        Self::CarveOut,
        Self::AmbiguousOverlap,
        Self::InterpreterWildcard,
        Self::FlatExecAllow,
        Self::Unanswerable,
        Self::UnknownRole,
        Self::NoTimeout,
        Self::DuplicateId,
        Self::OptionsFirst,
        Self::BrittleDeny,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverMatches => "never-matches",
            Self::OutsideAllowedPaths => "outside-allowed-paths",
            Self::UnlistedProgram => "unlisted-program",
            Self::UnlistedTool => "unlisted-tool",
            Self::Shadowed => "shadowed",
            Self::CarveOut => "carve-out",
            Self::AmbiguousOverlap => "ambiguous-overlap",
            Self::InterpreterWildcard => "interpreter-wildcard",
            Self::FlatExecAllow => "flat-exec-allow",
            Self::Unanswerable => "unanswerable",
            Self::UnknownRole => "unknown-role",
            Self::NoTimeout => "no-timeout",
            Self::DuplicateId => "duplicate-id",
            Self::OptionsFirst => "options-first",
            Self::BrittleDeny => "brittle-deny",
        }
    }
}

/// Gathers findings of one file.
struct Notes<'l> {
    layer: Layer,
    found: &'l mut Vec<Finding>,
}

impl Notes<'_> {
    fn error(&mut self, code: Code, at: At, rule: impl Into<String>, text: impl Into<String>) {
        self.add(Level::Error, code, at, rule.into(), text.into());
    }

    fn warn(&mut self, code: Code, at: At, rule: impl Into<String>, text: impl Into<String>) {
        self.add(Level::Warning, code, at, rule.into(), text.into());
    }

    fn add(&mut self, level: Level, code: Code, at: At, rule: String, text: String) {
        self.found.push(Finding { layer: self.layer, level, code, rule, text, at });
    }
}

/// Of a manifest by itself.
pub fn lint(manifest: &Manifest, roster: Option<&Roster>) -> Vec<Finding> {
    let mut found = Vec::new();
    of_manifest(manifest, roster, &mut found);
    sorted(found)
}

/// Of a ceiling by itself; `layer` is the one it is written for.
pub fn lint_ceiling(ceiling: &Ceiling, layer: Layer, roster: Option<&Roster>) -> Vec<Finding> {
    let mut found = Vec::new();
    of_policy(&ceiling.policy, roster, &mut Notes { layer, found: &mut found });
    sorted(found)
}

impl Rulebook {
    /// Of every file in force, and of what they say together.
    pub fn lint(&self, roster: Option<&Roster>) -> Vec<Finding> {
        let mut found = Vec::new();
        for (layer, ceiling) in self.ceilings() {
            of_policy(&ceiling.policy, roster, &mut Notes { layer, found: &mut found });
        }
        of_manifest(self.manifest(), roster, &mut found);
        self.ids(&mut found);
        people::across(self, &mut found);
        sorted(found)
    }

    /// A rule's id says which rule decided; two files of one session share none.
    fn ids(&self, found: &mut Vec<Finding>) {
        let mut seen: BTreeMap<&str, Layer> = BTreeMap::new();
        for side in self.sides() {
            let mut notes = Notes { layer: side.layer, found: &mut *found };
            for (_, pattern) in side.policy.patterns() {
                let Some(id) = pattern.terms.id.as_deref() else { continue };
                match seen.get(id) {
                    Some(layer) if *layer != side.layer => {
                        let text = format!("the {} has a rule of that id", layer.as_str());
                        notes.warn(Code::DuplicateId, pattern.at, id, text);
                    }
                    Some(_) => {}
                    None => {
                        seen.insert(id, side.layer);
                    }
                }
            }
        }
    }
}

fn of_manifest(manifest: &Manifest, roster: Option<&Roster>, found: &mut Vec<Finding>) {
    let mut notes = Notes { layer: Layer::Manifest, found };
    of_policy(&manifest.policy, roster, &mut notes);
    patterns::of_the_task(manifest, &mut notes);
    patterns::of_the_tests(manifest, &mut notes);
    let waits = manifest.interaction.on_disconnect == Some(OnDisconnect::Hold);
    if waits && manifest.interaction.permission_timeout.is_none() {
        let text = "with hold an ask waits for nobody for a day; say how long it may";
        notes.warn(
            Code::NoTimeout,
            manifest.interaction.at,
            "interaction.permission_timeout",
            text,
        );
    }
}

fn of_policy(policy: &Policy, roster: Option<&Roster>, notes: &mut Notes<'_>) {
    for (action, rule) in &policy.rules {
        patterns::of_rule(*action, rule, notes);
        if let (Action::ProcessExec, Rule::Flat { effect: Effect::Allow, at }) = (action, rule) {
            let text = "every command is allowed, shells too; name the ones that are needed";
            notes.warn(Code::FlatExecAllow, *at, format!("permissions.{action}"), text);
        }
    }
    for (action, hard) in policy.hard_deny.iter().flat_map(|(a, all)| all.iter().map(|h| (*a, h))) {
        patterns::can_match(action, &hard.text, hard.at, &hard.name(action), notes);
    }
    commands::of_policy(policy, notes);
    people::of_policy(policy, roster, notes);
}

/// In the files' order; a finding that two ways led to is one.
fn sorted(found: Vec<Finding>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut found: Vec<_> =
        found.into_iter().filter(|finding| seen.insert(finding.clone())).collect();
    found.sort_by_key(|finding| {
        (finding.layer, finding.at.line, finding.at.column, finding.code, finding.rule.clone())
    });
    found
}
