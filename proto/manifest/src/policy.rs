//! The manifest's rules and the one evaluator of them: a pure function from action and subject to a decision
//! that names its rule. It knows nothing of sessions, people or earlier answers.

use std::collections::BTreeMap;

use event::Effect;

use crate::glob::Glob;

/// What a tool wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    FsRead,
    FsWrite,
    FsList,
    ProcessExec,
    Network,
    PatchImport,
    McpCall,
    Delegate,
}

impl Action {
    pub const ALL: [Self; 8] = [
        Self::FsRead,
        Self::FsWrite,
        Self::FsList,
        Self::ProcessExec,
        Self::Network,
        Self::PatchImport,
        Self::McpCall,
        Self::Delegate,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::FsRead => "fs.read",
            Self::FsWrite => "fs.write",
            Self::FsList => "fs.list",
            Self::ProcessExec => "process.exec",
            Self::Network => "network",
            Self::PatchImport => "patch.import",
            Self::McpCall => "mcp.call",
            Self::Delegate => "delegate",
        }
    }
}

/// What the manifest says about one action on one subject, and where it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub action: Action,
    pub subject: Option<String>,
    pub effect: Effect,
    /// Such as `permissions.fs.write[src/**]`; `default` when no rule names the action.
    pub rule: String,
    /// For people.
    pub reason: String,
}

/// Rules by action, compiled once per manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    rules: BTreeMap<Action, Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Flat(Effect),
    /// Looked at in this order: longest first, of equal length the strictest.
    Patterns {
        patterns: Vec<Pattern>,
        fallback: Option<Effect>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    glob: Glob,
    effect: Effect,
}

const FALLBACK: &str = "*";

impl Rule {
    pub(crate) fn patterns(entries: impl IntoIterator<Item = (String, Effect)>) -> Self {
        let mut patterns = Vec::new();
        let mut fallback = None;
        for (text, effect) in entries {
            if text == FALLBACK {
                fallback = Some(effect);
            } else {
                patterns.push(Pattern { glob: Glob::new(&text), text, effect });
            }
        }
        patterns.sort_by(|one, other| {
            let precedence = |pattern: &Pattern| (pattern.text.chars().count(), pattern.effect);
            // The text decides only which of two equal rules is named.
            precedence(other).cmp(&precedence(one)).then_with(|| one.text.cmp(&other.text))
        });
        Self::Patterns { patterns, fallback }
    }
}

impl Policy {
    pub(crate) fn new(rules: BTreeMap<Action, Rule>) -> Self {
        Self { rules }
    }

    /// No rule asks; a flat rule says its effect. Of a pattern map the longest match decides, then the
    /// strictest; `*` is only the fallback; without it a subject that nothing matches is denied, and no
    /// subject at all asks.
    pub fn decide(&self, action: Action, subject: Option<&str>) -> Decision {
        let name = action.as_str();
        let whole = format!("permissions.{name}");
        let (effect, rule, reason) = match (self.rules.get(&action), subject) {
            (None, _) => (Effect::Ask, "default".to_owned(), format!("no rule names {name}")),
            (Some(Rule::Flat(effect)), _) => {
                (*effect, whole, format!("{name} is {} for every subject", effect.as_str()))
            }
            (Some(Rule::Patterns { patterns, fallback }), subject) => {
                let matching = subject.and_then(|subject| {
                    patterns.iter().find(|pattern| pattern.glob.matches(subject))
                });
                match (matching, fallback, subject) {
                    (Some(Pattern { text, effect, glob: _ }), _, _) => (
                        *effect,
                        format!("{whole}[{text}]"),
                        format!(
                            "the longest pattern that matches, {text}, says {}",
                            effect.as_str()
                        ),
                    ),
                    (None, Some(effect), _) => (
                        *effect,
                        format!("{whole}[{FALLBACK}]"),
                        format!("no pattern matches and the fallback says {}", effect.as_str()),
                    ),
                    (None, None, Some(_)) => (
                        Effect::Deny,
                        whole,
                        format!("{name} has patterns, none matches and there is no fallback"),
                    ),
                    (None, None, None) => (
                        Effect::Ask,
                        whole,
                        format!(
                            "{name} has patterns, no fallback, and there is no subject to match"
                        ),
                    ),
                }
            }
        };
        Decision { action, subject: subject.map(str::to_owned), effect, rule, reason }
    }
}
