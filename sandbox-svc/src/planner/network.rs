//! What a command may connect to, as its plan shows it: the rules of every file, a part for each group of hosts that
//! they reach, and the hosts of this site among them.

use receipt::{HostRule, Network, NetworkLayer, OtherHosts};

use super::parts::Parts;
use super::{Planner, Stop};
use crate::broker;
use crate::refusal::{Reason, Refusal};

impl Planner<'_> {
    /// What is denied is no part: the command runs, and cannot go there.
    pub(super) fn network(&self, parts: &mut Parts) -> Result<Network, Stop> {
        let found = self.rulebook.network();
        let found = found.map_err(|many| Refusal::new(Reason::PlanTooLarge, many))?;
        let Some(manifest::Network { layers, reached }) = found else { return Ok(Network::None) };
        for decision in &reached {
            parts.add(decision.subject.clone().map(Into::into), decision);
        }
        let layers: Vec<_> = layers.into_iter().map(layer).collect();
        let private = self.brokers.map(|brokers| broker::private(&layers, &brokers.private));
        Ok(Network::Broker { layers, private: private.unwrap_or_default() })
    }
}

fn layer(layer: manifest::NetworkLayer) -> NetworkLayer {
    let manifest::NetworkLayer { layer, never, rules, otherwise } = layer;
    let manifest::Otherwise { effect, port, rule } = otherwise;
    NetworkLayer {
        layer,
        never: never.into_iter().map(host_rule).collect(),
        rules: rules.into_iter().map(host_rule).collect(),
        otherwise: OtherHosts { effect, port, rule },
    }
}

fn host_rule(rule: manifest::HostRule) -> HostRule {
    let manifest::HostRule { hosts, effect, rule } = rule;
    HostRule { hosts, effect, rule }
}

#[cfg(test)]
mod tests {
    use egress::{Effect, Pattern, Rules, Target};
    use manifest::{Action, Ceiling, Manifest, Rulebook};
    use proptest::prelude::*;
    use receipt::Network;

    use super::layer;
    use crate::broker;

    const HOSTS: [&str; 7] =
        ["a.test", "b.test", "x.a.test", "*.test", "*.a.test", "*.x.a.test", "*"];
    const PORTS: [&str; 3] = ["443", "22", "*"];
    const EFFECTS: [&str; 3] = ["allow", "ask", "deny"];
    const TARGETS: [&str; 7] =
        ["a.test", "b.test", "x.a.test", "y.a.test", "x.x.a.test", "other.test", "test"];

    #[derive(Debug, Clone)]
    struct Written {
        patterns: Vec<String>,
        text: String,
    }

    fn pattern() -> impl Strategy<Value = String> {
        (prop::sample::select(&HOSTS[..]), prop::sample::select(&PORTS[..]))
            .prop_map(|(host, port)| format!("{host}:{port}"))
    }

    fn effect() -> impl Strategy<Value = &'static str> {
        prop::sample::select(&EFFECTS[..])
    }

    fn flat() -> impl Strategy<Value = Written> {
        effect().prop_map(|effect| Written { patterns: Vec::new(), text: effect.to_owned() })
    }

    fn map() -> impl Strategy<Value = Written> {
        let patterns = prop::collection::btree_map(pattern(), effect(), 1..5);
        (patterns, prop::option::of(effect())).prop_map(|(rules, fallback)| {
            let rule = |(hosts, effect): (&String, &&str)| format!("'{hosts}': {effect}");
            let mut entries: Vec<_> = rules.iter().map(rule).collect();
            entries.extend(fallback.map(|effect| format!("'*': {effect}")));
            let patterns = rules.into_keys().collect();
            Written { patterns, text: format!("{{{}}}", entries.join(", ")) }
        })
    }

    fn rules() -> impl Strategy<Value = Written> {
        prop_oneof![1 => flat(), 4 => map()]
    }

    fn rulebook(own: &Written, above: Option<&Written>, never: &[String]) -> Rulebook {
        let text = format!(
            "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['**']\npermissions: {{network: {}}}\n",
            own.text
        );
        let manifest = Manifest::parse(text.as_bytes(), "a.yaml").unwrap();
        let mut text = "kind: ceiling\nid: c\n".to_owned();
        if let Some(above) = above {
            text.push_str(&format!("permissions: {{network: {}}}\n", above.text));
        }
        if !never.is_empty() {
            let never: Vec<_> = never.iter().map(|hosts| format!("'{hosts}'")).collect();
            text.push_str(&format!("hard_deny: {{network: [{}]}}\n", never.join(", ")));
        }
        let ceiling = Ceiling::parse(text.as_bytes(), "c.yaml").unwrap();
        Rulebook::new(manifest, Some(ceiling), None)
    }

    proptest! {
        /// So that a person's yes to the plan is a yes to all that the broker lets through, and to no more.
        #[test]
        fn a_broker_allows_what_the_rules_allow_or_ask_and_the_plan_says_which(
            own in rules(),
            above in prop::option::of(rules()),
            never in prop::collection::btree_set(pattern(), 0..2),
        ) {
            let never: Vec<_> = never.into_iter().collect();
            let rulebook = rulebook(&own, above.as_ref(), &never);
            let network = rulebook.network().unwrap();
            let reached = network.clone().map(|network| network.reached).unwrap_or_default();
            let broker = network.map(|network| {
                let layers = network.layers.into_iter().map(layer).collect();
                let network = Network::Broker { layers, private: Default::default() };
                Rules::of(&broker::config(&network).unwrap())
            });
            let covers = |pattern: &str, target: &Target| pattern.parse::<Pattern>().unwrap().covers(target);
            for host in TARGETS {
                for port in [443, 22, 80] {
                    let text = format!("{host}:{port}");
                    let target: Target = text.parse().unwrap();
                    let said = rulebook.decide(Action::Network, Some(&text)).effect;
                    let listed = own.patterns.iter().any(|pattern| covers(pattern, &target));
                    let expected = said != manifest::Effect::Deny && (listed || port == 443);
                    let allowed = broker.as_ref().is_some_and(|rules| rules.decide(&target).effect == Effect::Allow);
                    prop_assert_eq!(allowed, expected, "{}", text);
                    let shown = reached.iter().any(|decision| {
                        decision.effect == said && covers(decision.subject.as_deref().unwrap(), &target)
                    });
                    prop_assert!(!allowed || shown, "{}", text);
                }
            }
        }
    }
}
