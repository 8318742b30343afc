//! The one decision about a target: deny unless every layer allows it. A pure function of the configuration and the
//! name; addresses come later and can only narrow.

use std::cmp::Reverse;

use crate::config::{Config, Effect, Host, Layer, Otherwise, Rule};
use crate::hosts::Target;

/// Every layer in force, and the hosts that may be private.
#[derive(Debug, Clone)]
pub struct Rules {
    layers: Vec<Layer>,
    private: Vec<Target>,
}

/// What holds for a target, and the rule that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'r> {
    pub effect: Effect,
    pub rule: &'r str,
}

impl Rules {
    pub fn of(config: &Config) -> Self {
        let mut layers = config.layers.clone();
        for layer in &mut layers {
            layer.rules.sort_by_key(|rule| {
                let Host(hosts) = &rule.hosts;
                (Reverse(hosts.as_str().chars().count()), rule.effect == Effect::Allow)
            });
        }
        Self { layers, private: config.private.iter().map(|Host(target)| target.clone()).collect() }
    }

    /// The first layer that denies is named; where none does, the last, which is the most particular.
    pub fn decide(&self, target: &Target) -> Verdict<'_> {
        let nobody = Verdict { effect: Effect::Deny, rule: "default" };
        let mut said = nobody;
        for layer in &self.layers {
            said = of_layer(layer, target);
            if said.effect == Effect::Deny {
                return said;
            }
        }
        said
    }

    /// Exactly as the administrator wrote it.
    pub fn may_be_private(&self, target: &Target) -> bool {
        self.private.contains(target)
    }
}

fn of_layer<'r>(layer: &'r Layer, target: &Target) -> Verdict<'r> {
    let covers = |rule: &&Rule| rule.hosts.0.covers(target);
    if let Some(Rule { rule, .. }) = layer.never.iter().find(covers) {
        return Verdict { effect: Effect::Deny, rule };
    }
    if let Some(Rule { effect, rule, .. }) = layer.rules.iter().find(covers) {
        return Verdict { effect: *effect, rule };
    }
    let Otherwise { effect, port, rule } = &layer.otherwise;
    let here = port.is_none_or(|port| port == target.port());
    Verdict { effect: if here { *effect } else { Effect::Deny }, rule }
}
