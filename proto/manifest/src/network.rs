//! What the files in force say about hosts, as a whole: the rules that a broker follows, and a decision for every
//! group of hosts that they tell apart. It decides about patterns by the same rules as about a single host.

use std::collections::BTreeSet;

use event::Effect;

use crate::action::Action;
use crate::decision::{Decision, Layer};
use crate::host::Hosts;
use crate::policy::{FALLBACK, Policy, Rule};
use crate::rulebook::Rulebook;

/// More groups than this nobody can be shown.
const MAX_GROUPS: usize = 400;
/// What a manifest that says no more than allow means: every host, and this port alone.
pub const OTHERWISE: &str = "*:443";
const OTHERWISE_PORT: u16 = 443;

/// Everything that is said about hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// In their order; each must allow a host.
    pub layers: Vec<NetworkLayer>,
    /// For every group of hosts that is not denied: its subject is the group's pattern. An ask is for all of them.
    pub reached: Vec<Decision>,
}

/// One file's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLayer {
    pub layer: Layer,
    /// Denied whatever else is written.
    pub never: Vec<HostRule>,
    /// The longest that covers a host decides; of equal length, the strictest.
    pub rules: Vec<HostRule>,
    pub otherwise: Otherwise,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    pub hosts: String,
    pub effect: Effect,
    pub rule: String,
}

/// What holds for a host that no rule of the file covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otherwise {
    pub effect: Effect,
    /// The only port that it allows.
    pub port: Option<u16>,
    pub rule: String,
}

/// The files tell too many groups of hosts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rules about network tell more than {MAX_GROUPS} groups of hosts apart; write fewer patterns"
)]
pub struct TooManyHosts;

impl Rulebook {
    /// Nothing where no host may be reached: a manifest without a word about network means none.
    pub fn network(&self) -> Result<Option<Network>, TooManyHosts> {
        if !self.manifest().policy.rules.contains_key(&Action::Network) {
            return Ok(None);
        }
        let reached: Vec<_> = self
            .groups()?
            .into_iter()
            .map(|hosts| self.decide_hosts(&hosts.to_string()))
            .filter(|decision| decision.effect != Effect::Deny)
            .collect();
        if reached.is_empty() {
            return Ok(None);
        }
        let layers = self.sides().into_iter().filter_map(|side| layer(side.layer, side.policy));
        Ok(Some(Network { layers: layers.collect(), reached }))
    }

    /// Every group of hosts that the files could decide differently about, where the manifest has a say: what its
    /// patterns and those of the ceilings have in common.
    fn groups(&self) -> Result<BTreeSet<Hosts>, TooManyHosts> {
        let own = written(&self.manifest().policy).chain(Hosts::parse(OTHERWISE).ok());
        let mut groups: BTreeSet<Hosts> = own.collect();
        if groups.len() > MAX_GROUPS {
            return Err(TooManyHosts);
        }
        let narrower: Vec<Hosts> =
            self.ceilings().flat_map(|(_, ceiling)| written(&ceiling.policy)).collect();
        for hosts in &narrower {
            let met: Vec<_> = groups.iter().filter_map(|group| group.meet(hosts)).collect();
            groups.extend(met);
            if groups.len() > MAX_GROUPS {
                return Err(TooManyHosts);
            }
        }
        Ok(groups)
    }
}

/// The patterns of a file's rules; those that are denied without exception only take away.
fn written(policy: &Policy) -> impl Iterator<Item = Hosts> {
    let rules = policy.rules.get(&Action::Network).into_iter().flat_map(Rule::all);
    rules.filter(|pattern| pattern.text != FALLBACK).filter_map(|it| Hosts::parse(&it.text).ok())
}

/// Nothing for a file that says nothing about network.
fn layer(layer: Layer, policy: &Policy) -> Option<NetworkLayer> {
    let action = Action::Network;
    let hard = policy.hard_deny.get(&action).map_or(&[][..], Vec::as_slice);
    let never = hard.iter().map(|hard| HostRule {
        hosts: if hard.text == FALLBACK { "*:*".to_owned() } else { hard.text.clone() },
        effect: Effect::Deny,
        rule: hard.name(action),
    });
    let never: Vec<_> = never.collect();
    let ruled = policy.rules.get(&action);
    if never.is_empty() && ruled.is_none() {
        return None;
    }
    let rules = ruled.into_iter().flat_map(Rule::all).filter(|it| it.text != FALLBACK);
    let rules = rules.map(|pattern| HostRule {
        hosts: pattern.text.clone(),
        effect: pattern.terms.effect,
        rule: pattern.name(action),
    });
    let whole = |effect| (effect, format!("permissions.{action}"));
    let (effect, rule) = match ruled {
        Some(Rule::Flat { effect, at: _ }) => whole(*effect),
        Some(Rule::Patterns { fallback: Some(fallback), .. }) => {
            (fallback.terms.effect, fallback.name(action))
        }
        Some(Rule::Patterns { fallback: None, .. }) => whole(Effect::Deny),
        // A ceiling that only denies something does not narrow the rest.
        None => (Effect::Allow, "default".to_owned()),
    };
    let port = (layer == Layer::Manifest).then_some(OTHERWISE_PORT);
    Some(NetworkLayer {
        layer,
        never,
        rules: rules.collect(),
        otherwise: Otherwise { effect, port, rule },
    })
}
