//! The broker of one command: started before its container, told what the approved plan allows, heard until it ends.
//! Every decision that it makes goes to the ledger; without it the command connects to nobody.

mod heard;
mod start;

use std::collections::BTreeSet;
use std::path::PathBuf;

use egress::{Config, Effect, Host, Layer, Limits, Otherwise, Pattern, Rule, Rules, Target};
use receipt::{HostRule, Network, NetworkLayer, OtherHosts};

pub(crate) use heard::{Connections, Denial, Teller};
pub(crate) use start::Broker;

/// What this host has for commands that reach other hosts.
#[derive(Debug, Clone)]
pub(crate) struct Brokers {
    pub(crate) program: PathBuf,
    /// Hosts of this machine or site that plans may name.
    pub(crate) private: BTreeSet<Target>,
}

/// What a broker is told; nothing for a plan without a network.
pub(crate) fn config(network: &Network) -> Option<Config> {
    let Network::Broker { layers, private } = network else { return None };
    Some(Config {
        layers: layers.iter().map(layer).collect(),
        private: private.iter().filter_map(|text| text.parse().ok().map(Host)).collect(),
        limits: Limits::COMMAND,
    })
}

/// Of `listed`, the hosts that the layers allow.
pub(crate) fn private(layers: &[NetworkLayer], listed: &BTreeSet<Target>) -> BTreeSet<String> {
    let layers = layers.iter().map(layer).collect();
    let rules = Rules::of(&Config { layers, private: Vec::new(), limits: Limits::COMMAND });
    let allowed = listed.iter().filter(|target| rules.decide(target).effect == Effect::Allow);
    allowed.map(ToString::to_string).collect()
}

fn layer(layer: &NetworkLayer) -> Layer {
    let NetworkLayer { layer: _, never, rules, otherwise } = layer;
    let OtherHosts { effect, port, rule } = otherwise;
    Layer {
        never: never.iter().filter_map(rule_of).collect(),
        rules: rules.iter().filter_map(rule_of).collect(),
        otherwise: Otherwise { effect: permitted(*effect), port: *port, rule: rule.clone() },
    }
}

/// Nothing for a pattern that covers no target that a broker knows, such as one with `_` in it.
fn rule_of(rule: &HostRule) -> Option<Rule> {
    let HostRule { hosts, effect, rule } = rule;
    let hosts = Host(hosts.parse::<Pattern>().ok()?);
    Some(Rule { hosts, effect: permitted(*effect), rule: rule.clone() })
}

/// The plan is carried out, so what it asks for has been allowed.
fn permitted(effect: receipt::Effect) -> Effect {
    match effect {
        receipt::Effect::Allow | receipt::Effect::Ask => Effect::Allow,
        receipt::Effect::Deny => Effect::Deny,
    }
}
