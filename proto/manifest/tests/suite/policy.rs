//! The rules one by one, and the evaluator against a naive reference.
use std::collections::BTreeMap;

use event::Effect::{self, Allow, Ask, Deny};
use manifest::{Action, Decision, Layer, Matched, Requirement, Rulebook};
use proptest::prelude::*;

/// Without ceilings.
fn policy(permissions: &str) -> Rulebook {
    crate::rulebook(permissions)
}

fn short(decision: &Decision) -> (Effect, &str) {
    (decision.effect, &decision.rule)
}

#[test]
fn an_action_without_a_rule_asks() {
    let policy = policy("  mcp.call: allow");
    assert_eq!(
        policy.decide(Action::FsWrite, Some("a")),
        Decision {
            action: Action::FsWrite,
            subject: Some("a".into()),
            effect: Ask,
            layer: Layer::Manifest,
            rule: "default".into(),
            reason: "no rule names fs.write".into(),
            justification: None,
            matching: vec![Matched { layer: Layer::Manifest, rule: "default".into(), effect: Ask }],
            approvers: Some(Requirement::default()),
            manifest: policy.manifest().digest,
        }
    );
}

#[test]
fn a_flat_rule_holds_for_every_subject_and_for_none() {
    for (text, effect) in [("allow", Allow), ("ask", Ask), ("deny", Deny)] {
        let policy = policy(&format!("  network: {text}"));
        for subject in [Some("a:443"), None] {
            let decision = policy.decide(Action::Network, subject);
            assert_eq!(short(&decision), (effect, "permissions.network"));
        }
    }
}

#[test]
fn the_longest_matching_pattern_wins_whatever_its_effect() {
    let policy = policy("  fs.write: {'**': deny, 'src/**': allow, 'src/x/**': ask}");
    let on = |path| policy.decide(Action::FsWrite, Some(path));
    assert_eq!(short(&on("README")), (Deny, "permissions.fs.write[**]"));
    assert_eq!(short(&on("src/a")), (Allow, "permissions.fs.write[src/**]"));
    assert_eq!(short(&on("src/x/a")), (Ask, "permissions.fs.write[src/x/**]"));
}

#[test]
fn of_patterns_of_one_length_the_strictest_wins() {
    let policy = policy("  fs.write: {'a*c': allow, 'ab*': ask, '*bc': deny, '?b?': allow}");
    let on = |path| policy.decide(Action::FsWrite, Some(path));
    assert_eq!(short(&on("abc")), (Deny, "permissions.fs.write[*bc]"));
    assert_eq!(short(&on("abd")), (Ask, "permissions.fs.write[ab*]"));
    assert_eq!(short(&on("xby")), (Allow, "permissions.fs.write[?b?]"));
}

#[test]
fn the_star_is_only_the_fallback_even_for_subjects_it_would_not_cover() {
    let policy = policy("  mcp.call: {'*': ask, 'a': allow}");
    let on = |subject| policy.decide(Action::McpCall, subject);
    assert_eq!(short(&on(Some("a"))), (Allow, "permissions.mcp.call[a]"));
    assert_eq!(short(&on(Some("b"))), (Ask, "permissions.mcp.call[*]"));
    assert_eq!(short(&on(Some("b/c"))), (Ask, "permissions.mcp.call[*]"));
    assert_eq!(short(&on(None)), (Ask, "permissions.mcp.call[*]"));
}

#[test]
fn a_subject_that_nothing_matches_is_denied_and_no_subject_asks() {
    let policy = policy("  mcp.call: {'src/**': allow}");
    let on = |subject| policy.decide(Action::McpCall, subject);
    assert_eq!(short(&on(Some("other"))), (Deny, "permissions.mcp.call"));
    assert_eq!(short(&on(None)), (Ask, "permissions.mcp.call"));
}

#[test]
fn a_command_rule_with_one_star_does_not_reach_past_a_slash() {
    let policy = policy("  process.exec: {'git status*': allow, '*': ask}");
    let on = |argv: &[&str]| {
        let argv: Vec<String> = argv.iter().map(|token| (*token).to_owned()).collect();
        policy.decide(Action::ProcessExec, Some(&manifest::exec_subject(&argv))).effect
    };
    assert_eq!(on(&["git", "status", "--short"]), Allow);
    assert_eq!(on(&["git", "status", "src/lib.rs"]), Ask);
    assert_eq!(on(&["git", "status; rm x"]), Ask);
}

#[test]
fn reserved_names_are_read_and_decide_nothing() {
    let policy = policy("  git.push: allow\n  git.diff: {'*': allow}");
    for action in Action::ALL {
        assert_eq!(short(&policy.decide(action, None)), (Ask, "default"));
    }
}

/// The rules as the seed words them.
fn naive(rules: Option<&Rules>, subject: Option<&str>) -> Effect {
    let patterns = match rules {
        None => return Ask,
        Some(Rules::Flat(effect)) => return *effect,
        Some(Rules::Map(patterns)) => patterns,
    };
    let matching = |(pattern, _): &(&String, &Effect)| {
        *pattern != "*" && subject.is_some_and(|subject| manifest::glob::matches(pattern, subject))
    };
    let longest = patterns.iter().filter(matching).map(|(pattern, _)| pattern.len()).max();
    if let Some(longest) = longest {
        return patterns
            .iter()
            .filter(matching)
            .filter(|(pattern, _)| pattern.len() == longest)
            .map(|(_, effect)| *effect)
            .max()
            .unwrap();
    }
    match (patterns.get("*"), subject) {
        (Some(effect), _) => *effect,
        (None, Some(_)) => Deny,
        (None, None) => Ask,
    }
}

#[derive(Debug, Clone)]
enum Rules {
    Flat(Effect),
    Map(BTreeMap<String, Effect>),
}

fn effect() -> impl Strategy<Value = Effect> {
    prop::sample::select(vec![Allow, Ask, Deny])
}

fn rules() -> impl Strategy<Value = Option<Rules>> {
    let pattern = prop_oneof![Just("*".to_owned()), "[ab/*?]{1,4}"];
    prop::option::of(prop_oneof![
        effect().prop_map(Rules::Flat),
        prop::collection::btree_map(pattern, effect(), 1..6).prop_map(Rules::Map),
    ])
}

/// The lines of a manifest, the patterns in the order of `shuffle`.
fn written(rules: Option<&Rules>, shuffle: usize) -> Rulebook {
    let lines = match rules {
        None => "  fs.list: deny".to_owned(),
        Some(Rules::Flat(effect)) => format!("  mcp.call: {}", effect.as_str()),
        Some(Rules::Map(patterns)) => {
            let mut lines: Vec<_> = patterns
                .iter()
                .map(|(pattern, effect)| format!("    '{pattern}': {}", effect.as_str()))
                .collect();
            let len = lines.len();
            lines.rotate_left(shuffle % len);
            format!("  mcp.call:\n{}", lines.join("\n"))
        }
    };
    policy(&lines)
}

proptest! {
    #[test]
    fn the_evaluator_agrees_with_the_naive_reading_in_any_order_of_rules(
        rules in rules(),
        subject in prop::option::of("[ab/]{0,4}"),
        shuffle in 0usize..6,
    ) {
        let decision = written(rules.as_ref(), 0).decide(Action::McpCall, subject.as_deref());
        prop_assert_eq!(decision.effect, naive(rules.as_ref(), subject.as_deref()));
        let other = written(rules.as_ref(), shuffle).decide(Action::McpCall, subject.as_deref());
        prop_assert_eq!(Decision { manifest: decision.manifest, ..other }, decision);
    }

    #[test]
    fn a_deny_that_is_longest_is_never_turned_around(
        rules in rules(),
        subject in "[ab/]{1,4}",
    ) {
        let Some(Rules::Map(mut patterns)) = rules else { return Ok(()) };
        // Longer than any other pattern here, and it matches exactly the subject.
        let exact = format!("{subject}**");
        prop_assume!(exact.len() > 4);
        patterns.insert(exact, Deny);
        let policy = written(Some(&Rules::Map(patterns)), 0);
        prop_assert_eq!(policy.decide(Action::McpCall, Some(&subject)).effect, Deny);
    }
}
