//! Gathers what each layer says about one subject and settles it: the strictest wins, and an ask that nobody
//! could answer is a deny. It only counts; what may vote is decided elsewhere.

use std::cmp::Reverse;

use event::{Digest, Effect};

use crate::action::Action;
use crate::decision::{Decision, Layer, Matched, system};
use crate::glob::Glob;
use crate::policy::{HardDeny, Opinion, Policy, Reach};
use crate::requirement::Requirement;

/// A private character, for a name that no pattern spells.
pub(crate) const UNNAMED: char = '\u{f8ff}';

/// A file that has a say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'p> {
    pub(crate) layer: Layer,
    pub(crate) policy: &'p Policy,
}

struct Candidate {
    layer: Layer,
    rule: String,
    effect: Effect,
    reason: String,
    justification: Option<String>,
    /// Of a file's ask; what the system asks is answered as the files say for all their asks.
    approvers: Option<Requirement>,
    /// The greatest names the decision among equals.
    rank: u8,
}

pub(crate) struct Ballot<'p> {
    action: Action,
    subject: Option<String>,
    sides: &'p [Side<'p>],
    candidates: Vec<Candidate>,
    matching: Vec<Matched>,
    /// Some file allows it by no more than a wildcard.
    wildcard: bool,
    /// Some file allows it otherwise than by its very text.
    inexact: bool,
}

impl<'p> Ballot<'p> {
    pub(crate) fn new(action: Action, subject: Option<&str>, sides: &'p [Side<'p>]) -> Self {
        Self {
            action,
            subject: subject.map(str::to_owned),
            sides,
            candidates: Vec::new(),
            matching: Vec::new(),
            wildcard: false,
            inexact: false,
        }
    }

    pub(crate) fn by_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether it is allowed unseen though some file denies or asks about commands that may be inside.
    pub(crate) fn is_unseen(&self) -> bool {
        self.inexact && self.sides.iter().any(|side| side.policy.looks_inside())
    }

    /// Every file about the whole subject. A manifest without a rule asks; a ceiling without one is silent.
    pub(crate) fn rules(&mut self, subject: Option<&str>) {
        for side in self.sides {
            self.hard_denied(*side, subject);
            let matching: Vec<_> = side.policy.matching(self.action, subject).collect();
            for pattern in &matching {
                self.matching.push(Matched {
                    layer: side.layer,
                    rule: pattern.name(self.action),
                    effect: pattern.terms.effect,
                });
            }
            match side.policy.opinion(self.action, subject, &matching) {
                Some(opinion) => {
                    let allows = opinion.effect == Effect::Allow;
                    self.wildcard |= allows && opinion.reach == Reach::Wildcard;
                    self.inexact |= allows && opinion.reach != Reach::Exact;
                    self.opinion(*side, opinion);
                }
                None if side.layer == Layer::Manifest => self.opinion(*side, unruled(self.action)),
                None => {}
            }
        }
    }

    /// What holds for anything in the directory, whatever it is called: a subject that no pattern names, and every
    /// pattern that denies or asks about something in it. Longer exceptions to those do not count.
    pub(crate) fn tree(&mut self, directory: &str) {
        for unnamed in [format!("{directory}{UNNAMED}"), format!("{directory}{UNNAMED}/{UNNAMED}")]
        {
            self.rules(Some(&unnamed));
        }
        let below = Glob::new(&format!("{directory}**"));
        for side in self.sides {
            for hard in side.policy.hard_denied_within(self.action, &below) {
                self.hard(*side, hard);
            }
            for opinion in side.policy.strict_within(self.action, &below) {
                self.opinion(*side, opinion);
            }
        }
    }

    /// Only what the files say about exactly this text: of a part of a command.
    pub(crate) fn named(&mut self, subject: &str) {
        for side in self.sides {
            self.hard_denied(*side, Some(subject));
            if let Some(opinion) = side.policy.explicit(self.action, subject) {
                self.opinion(*side, opinion);
            }
        }
    }

    /// As [`Self::named`], of another name for the same program: a name can only narrow.
    pub(crate) fn alias(&mut self, subject: &str) {
        for side in self.sides {
            self.hard_denied(*side, Some(subject));
            let opinion = side.policy.explicit(self.action, subject);
            if let Some(mut opinion) = opinion.filter(|opinion| opinion.effect > Effect::Allow) {
                opinion.reason = format!("as {subject}: {}", opinion.reason);
                self.opinion(*side, opinion);
            }
        }
    }

    /// A built-in rule. One with a rank names the decision even where a file is as strict.
    pub(crate) fn system(&mut self, rule: &str, effect: Effect, reason: String, rank: u8) {
        self.push(Candidate {
            layer: Layer::System,
            rule: rule.to_owned(),
            effect,
            reason,
            justification: None,
            approvers: None,
            rank,
        });
    }

    /// Nothing when nobody had a say.
    pub(crate) fn settle(mut self, manifest: Digest) -> Option<Decision> {
        let effect = self.candidates.iter().map(|candidate| candidate.effect).max()?;
        self.matching.sort_by(|one, other| {
            let order = |matched: &Matched| (Reverse(matched.effect), matched.layer);
            order(one).cmp(&order(other)).then_with(|| one.rule.cmp(&other.rule))
        });
        self.matching.dedup();
        let approvers =
            if effect == Effect::Ask { self.approvers() } else { Some(Requirement::default()) };
        let Self { action, subject, candidates, mut matching, .. } = self;
        let deciding = candidates.into_iter().filter(|candidate| candidate.effect == effect);
        let Candidate { layer, rule, reason, justification, .. } =
            deciding.min_by(|one, other| {
                let order = |candidate: &Candidate| (Reverse(candidate.rank), candidate.layer);
                order(one).cmp(&order(other)).then_with(|| one.rule.cmp(&other.rule))
            })?;
        let asks = effect == Effect::Ask;
        let Some(approvers) = approvers else {
            let rule = system::APPROVERS.to_owned();
            let conflict = Matched { layer: Layer::System, rule, effect: Effect::Deny };
            matching.insert(0, conflict.clone());
            return Some(Decision {
                action,
                subject,
                effect: Effect::Deny,
                layer: conflict.layer,
                rule: conflict.rule,
                reason: "it asks, and no role may answer for every file that asks".to_owned(),
                justification: None,
                matching,
                approvers: None,
                manifest,
            });
        };
        let approvers = asks.then_some(approvers);
        Some(Decision {
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
        })
    }

    /// What satisfies every file that asks; where only the system asks, what the files say for all asks.
    fn approvers(&self) -> Option<Requirement> {
        let asking: Vec<_> = self
            .candidates
            .iter()
            .filter(|candidate| candidate.effect == Effect::Ask)
            .filter_map(|candidate| candidate.approvers.as_ref())
            .collect();
        let defaults = || self.sides.iter().filter_map(|side| side.policy.approvers.as_ref());
        let wanted = if asking.is_empty() { defaults().collect() } else { asking };
        wanted.into_iter().try_fold(Requirement::default(), |all, next| all.and(next))
    }

    fn hard_denied(&mut self, side: Side<'p>, subject: Option<&str>) {
        for hard in side.policy.hard_denied(self.action, subject) {
            self.hard(side, hard);
        }
    }

    fn hard(&mut self, side: Side<'p>, hard: &HardDeny) {
        self.push(Candidate {
            layer: side.layer,
            rule: hard.name(self.action),
            effect: Effect::Deny,
            reason: format!("{} is denied without exception", hard.text),
            justification: None,
            approvers: None,
            rank: 0,
        });
    }

    fn opinion(&mut self, side: Side<'p>, opinion: Opinion<'_>) {
        let Opinion { effect, rule, reason, justification, approvers, reach: _ } = opinion;
        let approvers = (effect == Effect::Ask)
            .then(|| approvers.or(side.policy.approvers.as_ref()).cloned().unwrap_or_default());
        self.push(Candidate {
            layer: side.layer,
            rule,
            effect,
            reason,
            justification: justification.map(str::to_owned),
            approvers,
            rank: 0,
        });
    }

    fn push(&mut self, candidate: Candidate) {
        let Candidate { layer, rule, effect, .. } = &candidate;
        self.matching.push(Matched { layer: *layer, rule: rule.clone(), effect: *effect });
        self.candidates.push(candidate);
    }
}

fn unruled(action: Action) -> Opinion<'static> {
    Opinion {
        effect: Effect::Ask,
        rule: "default".to_owned(),
        reason: format!("no rule names {action}"),
        justification: None,
        approvers: None,
        reach: Reach::Named,
    }
}
