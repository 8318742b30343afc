//! The rules of one file, and what that file alone says about a subject. It knows nothing of other layers,
//! sessions, people or earlier answers.

use std::collections::BTreeMap;

use event::Effect;

use crate::action::Action;
use crate::glob::Glob;
use crate::overlap::may_intersect;
use crate::place::At;
use crate::requirement::Requirement;

/// Rules by action, what no rule carves out of, and who answers the asks; compiled once per file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub(crate) rules: BTreeMap<Action, Rule>,
    /// Sorted by text.
    pub(crate) hard_deny: BTreeMap<Action, Vec<HardDeny>>,
    /// Of every ask of this file that does not name its own.
    pub(crate) approvers: Option<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Flat {
        effect: Effect,
        at: At,
    },
    /// Looked at in this order: longest first, of equal length the strictest.
    Patterns {
        patterns: Vec<Pattern>,
        fallback: Option<Pattern>,
        at: At,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) glob: Glob,
    pub(crate) terms: Terms,
    pub(crate) at: At,
}

/// What a pattern's value says, short or long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) effect: Effect,
    pub(crate) id: Option<String>,
    pub(crate) justification: Option<String>,
    /// `class: interpreter`.
    pub(crate) interpreter: bool,
    pub(crate) approvers: Option<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HardDeny {
    pub(crate) text: String,
    pub(crate) glob: Glob,
    pub(crate) at: At,
}

pub(crate) const FALLBACK: &str = "*";

/// How an allow reaches a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By its very text.
    Exact,
    /// For all subjects, or naming the class of interpreters.
    Named,
    Wildcard,
}

/// What one file says.
#[derive(Debug, Clone)]
pub(crate) struct Opinion<'p> {
    pub(crate) effect: Effect,
    pub(crate) rule: String,
    pub(crate) reason: String,
    pub(crate) justification: Option<&'p str>,
    pub(crate) approvers: Option<&'p Requirement>,
    pub(crate) reach: Reach,
}

impl Terms {
    pub(crate) fn short(effect: Effect) -> Self {
        Self { effect, id: None, justification: None, interpreter: false, approvers: None }
    }
}

impl Pattern {
    pub(crate) fn new(text: String, terms: Terms, at: At) -> Self {
        Self { glob: Glob::new(&text), text, terms, at }
    }

    /// The author's id, or the rule's place in the file.
    pub(crate) fn name(&self, action: Action) -> String {
        match &self.terms.id {
            Some(id) => id.clone(),
            None => format!("permissions.{action}[{}]", self.text),
        }
    }

    fn opinion(&self, action: Action, reason: String, reach: Reach) -> Opinion<'_> {
        Opinion {
            effect: self.terms.effect,
            rule: self.name(action),
            reason,
            justification: self.terms.justification.as_deref(),
            approvers: self.terms.approvers.as_ref(),
            reach,
        }
    }
}

impl HardDeny {
    /// A lone `*` is every subject here too.
    pub(crate) fn matches(&self, subject: Option<&str>) -> bool {
        self.text == FALLBACK || subject.is_some_and(|subject| self.glob.matches(subject))
    }

    pub(crate) fn name(&self, action: Action) -> String {
        format!("hard_deny.{action}[{}]", self.text)
    }
}

impl Rule {
    pub(crate) fn patterns(entries: impl IntoIterator<Item = Pattern>, at: At) -> Self {
        let (mut fallback, mut patterns) = (None, Vec::new());
        for pattern in entries {
            if pattern.text == FALLBACK {
                fallback = Some(pattern);
            } else {
                patterns.push(pattern);
            }
        }
        patterns.sort_by_cached_key(|pattern| {
            let length = std::cmp::Reverse(pattern.text.chars().count());
            // The text decides only which of two equal rules is named.
            (length, std::cmp::Reverse(pattern.terms.effect), pattern.text.clone())
        });
        Self::Patterns { patterns, fallback, at }
    }

    /// Every pattern in the order of precedence, the fallback last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Pattern> {
        let (patterns, fallback) = match self {
            Self::Flat { .. } => (&[][..], None),
            Self::Patterns { patterns, fallback, at: _ } => (&patterns[..], fallback.as_ref()),
        };
        patterns.iter().chain(fallback)
    }
}

impl Policy {
    /// Every pattern of every action.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (Action, &Pattern)> {
        self.rules.iter().flat_map(|(action, rule)| rule.all().map(|pattern| (*action, pattern)))
    }

    /// Whether a part of a command could be denied or asked about that the whole is not.
    pub(crate) fn looks_inside(&self) -> bool {
        let action = Action::ProcessExec;
        let hard = self.hard_deny.get(&action).is_some_and(|listed| !listed.is_empty());
        let narrows =
            |pattern: &Pattern| pattern.text != FALLBACK && pattern.terms.effect != Effect::Allow;
        hard || self.rules.get(&action).is_some_and(|rule| rule.all().any(narrows))
    }

    /// What is denied whatever else is written.
    pub(crate) fn hard_denied<'p>(
        &'p self,
        action: Action,
        subject: Option<&str>,
    ) -> impl Iterator<Item = &'p HardDeny> {
        let listed = self.hard_deny.get(&action).map_or(&[][..], Vec::as_slice);
        listed.iter().filter(move |hard| hard.matches(subject))
    }

    /// What is denied, whatever else is written, of something that the pattern covers.
    pub(crate) fn hard_denied_within<'p>(
        &'p self,
        action: Action,
        within: &Glob,
    ) -> impl Iterator<Item = &'p HardDeny> {
        let listed = self.hard_deny.get(&action).map_or(&[][..], Vec::as_slice);
        listed.iter().filter(move |hard| hard.text == FALLBACK || may_intersect(&hard.glob, within))
    }

    /// Each pattern that denies or asks about something that `within` covers; never the fallback.
    pub(crate) fn strict_within<'p>(
        &'p self,
        action: Action,
        within: &Glob,
    ) -> impl Iterator<Item = Opinion<'p>> {
        let patterns = match self.rules.get(&action) {
            Some(Rule::Patterns { patterns, .. }) => patterns.as_slice(),
            Some(Rule::Flat { .. }) | None => &[],
        };
        let strict = patterns.iter().filter(move |pattern| {
            pattern.terms.effect != Effect::Allow && may_intersect(&pattern.glob, within)
        });
        strict.filter_map(move |pattern| self.of_matching(action, &[pattern]))
    }

    /// The patterns that match, the deciding one first; never the fallback.
    pub(crate) fn matching<'p>(
        &'p self,
        action: Action,
        subject: Option<&str>,
    ) -> impl Iterator<Item = &'p Pattern> {
        let patterns = match self.rules.get(&action) {
            Some(Rule::Patterns { patterns, .. }) => patterns.as_slice(),
            Some(Rule::Flat { .. }) | None => &[],
        };
        let subject = subject.map(str::to_owned);
        patterns.iter().filter(move |pattern| {
            subject.as_deref().is_some_and(|subject| pattern.glob.matches(subject))
        })
    }

    /// Only what a pattern says about the subject itself.
    pub(crate) fn explicit<'p>(&'p self, action: Action, subject: &str) -> Option<Opinion<'p>> {
        let matching: Vec<_> = self.matching(action, Some(subject)).collect();
        self.of_matching(action, &matching)
    }

    /// Of the patterns that match, the longest decides, then the strictest.
    pub(crate) fn of_matching<'p>(
        &self,
        action: Action,
        matching: &[&'p Pattern],
    ) -> Option<Opinion<'p>> {
        let first = *matching.first()?;
        // A pattern that is the subject itself names it, even beside a longer one that also allows it.
        let exact = matching
            .iter()
            .any(|pattern| pattern.glob.is_literal() && pattern.terms.effect == Effect::Allow);
        let reach = if exact { Reach::Exact } else { reach(first.terms.interpreter) };
        let effect = first.terms.effect.as_str();
        let reason = format!("the longest pattern that matches, {}, says {effect}", first.text);
        Some(first.opinion(action, reason, reach))
    }

    /// A flat rule says its effect. Of a pattern map the longest match decides, then the strictest; `*` is
    /// only the fallback; without it a subject that nothing matches is denied, and no subject at all asks.
    /// Nothing when no rule names the action.
    pub(crate) fn opinion<'p>(
        &'p self,
        action: Action,
        subject: Option<&str>,
        matching: &[&'p Pattern],
    ) -> Option<Opinion<'p>> {
        let whole = |effect: Effect, reason: String| Opinion {
            effect,
            rule: format!("permissions.{action}"),
            reason,
            justification: None,
            approvers: None,
            reach: Reach::Named,
        };
        let fallback = match self.rules.get(&action)? {
            Rule::Flat { effect, at: _ } => {
                let reason = format!("{action} is {} for every subject", effect.as_str());
                return Some(whole(*effect, reason));
            }
            Rule::Patterns { fallback, .. } => fallback,
        };
        let decided = self.of_matching(action, matching);
        Some(decided.unwrap_or_else(|| match (fallback, subject) {
            (Some(fallback), _) => {
                let effect = fallback.terms.effect.as_str();
                let reason = format!("no pattern matches and the fallback says {effect}");
                fallback.opinion(action, reason, reach(fallback.terms.interpreter))
            }
            (None, Some(_)) => whole(
                Effect::Deny,
                format!("{action} has patterns, none matches and there is no fallback"),
            ),
            (None, None) => whole(
                Effect::Ask,
                format!("{action} has patterns, no fallback, and there is no subject to match"),
            ),
        }))
    }
}

fn reach(named: bool) -> Reach {
    if named { Reach::Named } else { Reach::Wildcard }
}
