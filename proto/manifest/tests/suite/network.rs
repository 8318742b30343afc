//! The rules about network as a whole: what is reached, by which groups of hosts, and what each file says.
use event::Effect::{Allow, Ask, Deny};
use manifest::{Action, HostRule, Layer, NetworkLayer, Otherwise, Rulebook};

use crate::{ceiling, manifest, rulebook};

/// Every group that is reached, as `effect hosts rule`.
fn reached(rules: &Rulebook) -> Vec<String> {
    let network = rules.network().unwrap();
    let told = network.into_iter().flat_map(|network| network.reached).map(|decision| {
        assert_eq!(decision.action, Action::Network);
        let hosts = decision.subject.unwrap();
        format!("{} {hosts} {}", decision.effect.as_str(), decision.rule)
    });
    told.collect()
}

#[test]
fn without_a_word_or_with_nothing_but_denials_there_is_no_network() {
    for permissions in [
        "  fs.read: allow",
        "  network: deny",
        "  network: {'*': deny}",
        "  network: {'a.test:443': deny}",
        "  network: {'a.test:443': deny, '*': deny}",
    ] {
        assert_eq!(rulebook(permissions).network(), Ok(None), "{permissions}");
    }
    let organisation = ceiling("permissions: {network: deny}");
    let rules = Rulebook::new(manifest("permissions: {network: allow}"), Some(organisation), None);
    assert_eq!(rules.network(), Ok(None));
    let tenant = ceiling("hard_deny: {network: ['*']}");
    let rules = Rulebook::new(manifest("permissions: {network: allow}"), None, Some(tenant));
    assert_eq!(rules.network(), Ok(None));
}

#[test]
fn a_flat_rule_or_a_fallback_reaches_one_port_of_every_host() {
    assert_eq!(reached(&rulebook("  network: allow")), ["allow *:443 permissions.network"]);
    assert_eq!(reached(&rulebook("  network: ask")), ["ask *:443 permissions.network"]);
    assert_eq!(
        reached(&rulebook("  network: {'a.test:22': allow, '*': ask}")),
        ["ask *:443 permissions.network[*]", "allow a.test:22 permissions.network[a.test:22]"]
    );
}

#[test]
fn a_map_reaches_what_it_lists_and_denies_the_rest() {
    let rules =
        rulebook("  network: {'*.pkg.test:443': ask, 'ab.pkg.test:443': allow, 'b.test:22': deny}");
    let ask = "ask *.pkg.test:443 permissions.network[*.pkg.test:443]";
    assert_eq!(
        reached(&rules),
        [ask, "allow ab.pkg.test:443 permissions.network[ab.pkg.test:443]"]
    );
    let rule = |hosts: &str, effect| HostRule {
        hosts: hosts.to_owned(),
        effect,
        rule: format!("permissions.network[{hosts}]"),
    };
    let layer = NetworkLayer {
        layer: Layer::Manifest,
        never: Vec::new(),
        // The longest first.
        rules: vec![
            rule("ab.pkg.test:443", Allow),
            rule("*.pkg.test:443", Ask),
            rule("b.test:22", Deny),
        ],
        otherwise: Otherwise {
            effect: Deny,
            port: Some(443),
            rule: "permissions.network".to_owned(),
        },
    };
    assert_eq!(rules.network().unwrap().unwrap().layers, [layer]);
}

#[test]
fn what_a_ceiling_asks_about_or_denies_inside_an_allowed_group_is_a_group_of_its_own() {
    let organisation = ceiling(
        "permissions: {network: {'x.pkg.test:443': ask, 'y.pkg.test:*': deny, '*': allow}}",
    );
    let tenant = ceiling("hard_deny: {network: ['*.evil.test:443']}");
    let task = manifest("permissions: {network: {'*.pkg.test:443': allow, 'a.test:*': allow}}");
    let rules = Rulebook::new(task, Some(organisation), Some(tenant));
    assert_eq!(
        reached(&rules),
        [
            "allow *.pkg.test:443 permissions.network[*]",
            "allow a.test:* permissions.network[*]",
            "ask x.pkg.test:443 permissions.network[x.pkg.test:443]",
        ]
    );
    let layers: Vec<_> = rules
        .network()
        .unwrap()
        .unwrap()
        .layers
        .iter()
        .map(|it| (it.layer, it.never.len()))
        .collect();
    assert_eq!(layers, [(Layer::Organisation, 0), (Layer::Tenant, 1), (Layer::Manifest, 0)]);
}

#[test]
fn more_groups_than_anybody_can_be_shown_are_refused() {
    let many: Vec<_> = (0..401).map(|n| format!("'h{n}.test:443': allow")).collect();
    let rules = rulebook(&format!("  network: {{{}}}", many.join(", ")));
    assert!(rules.network().is_err());
}
