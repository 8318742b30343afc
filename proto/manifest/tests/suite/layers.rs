//! Ceilings above a manifest: the strictest decides, nothing widens, and who must answer adds up.
use event::Effect::{Allow, Ask, Deny};
use manifest::{Action, Decision, Layer, Matched, Requirement, Rulebook};

use crate::{ceiling, manifest, rulebook};

fn short(decision: &Decision) -> (event::Effect, Layer, &str) {
    (decision.effect, decision.layer, &decision.rule)
}

fn roles(roles: &[&str]) -> Requirement {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    Requirement { roles, ..Requirement::default() }
}

/// The rulebook of an organisation, a tenant and a manifest, each with these members.
fn three(organisation: &str, tenant: &str, task: &str) -> Rulebook {
    Rulebook::new(manifest(task), Some(ceiling(organisation)), Some(ceiling(tenant)))
}

#[test]
fn a_task_does_not_allow_what_its_organisation_denies() {
    let rules = three(
        "permissions: {mcp.call: deny}",
        "permissions: {mcp.call: allow}",
        "permissions: {mcp.call: {'**': allow}}",
    );
    let decision = rules.decide(Action::McpCall, Some("x"));
    assert_eq!(short(&decision), (Deny, Layer::Organisation, "permissions.mcp.call"));
    let matched = |layer, rule: &str, effect| Matched { layer, rule: rule.into(), effect };
    assert_eq!(
        decision.matching,
        [
            matched(Layer::Organisation, "permissions.mcp.call", Deny),
            matched(Layer::Tenant, "permissions.mcp.call", Allow),
            matched(Layer::Manifest, "permissions.mcp.call[**]", Allow),
        ]
    );
    assert_eq!(decision.manifest, rules.manifest().digest);
    assert_eq!(
        rules.policies(),
        [Layer::Organisation, Layer::Tenant].map(|l| (l, rules.ceiling(l).unwrap().digest))
    );
}

#[test]
fn a_ceiling_without_a_rule_has_no_opinion_and_a_manifest_without_one_asks() {
    let rules = three("permissions: {}", "title: t", "permissions: {fs.read: allow}");
    assert_eq!(rules.decide(Action::FsRead, Some("a")).effect, Allow);
    let unruled = rules.decide(Action::McpCall, Some("a"));
    assert_eq!(short(&unruled), (Ask, Layer::Manifest, "default"));
}

#[test]
fn a_map_in_a_ceiling_denies_what_it_does_not_match() {
    let rules =
        three("permissions: {fs.read: {'src/**': allow}}", "", "permissions: {fs.read: allow}");
    assert_eq!(rules.decide(Action::FsRead, Some("src/a")).effect, Allow);
    let other = rules.decide(Action::FsRead, Some("other"));
    assert_eq!(short(&other), (Deny, Layer::Organisation, "permissions.fs.read"));
}

#[test]
fn hard_deny_is_not_carved_by_a_longer_pattern_or_another_layer() {
    let task = "permissions: {fs.write: {'infra/keys/**': allow, '**': allow}}\nhard_deny: {fs.write: ['infra/**']}";
    for rules in [
        Rulebook::new(manifest(task), None, None),
        three("", "hard_deny: {fs.write: ['infra/**']}", "permissions: {fs.write: allow}"),
    ] {
        let decision = rules.decide(Action::FsWrite, Some("infra/keys/a"));
        assert_eq!(
            (decision.effect, decision.rule.as_str()),
            (Deny, "hard_deny.fs.write[infra/**]")
        );
        assert_eq!(rules.decide(Action::FsWrite, Some("src/a")).effect, Allow);
    }
    let all = Rulebook::new(
        manifest("permissions: {mcp.call: allow}\nhard_deny: {mcp.call: ['*']}"),
        None,
        None,
    );
    for subject in [None, Some("a"), Some("a/b")] {
        assert_eq!(all.decide(Action::McpCall, subject).effect, Deny);
    }
}

#[test]
fn a_rule_is_named_by_its_id_and_gives_its_reason() {
    let rules = rulebook(
        "  mcp.call:\n    'a**': {effect: allow, id: a-tools, justification: they only read}\n    '*': {effect: deny, id: rest}",
    );
    let decision = rules.decide(Action::McpCall, Some("ab"));
    assert_eq!(short(&decision), (Allow, Layer::Manifest, "a-tools"));
    assert_eq!(decision.justification.as_deref(), Some("they only read"));
    assert_eq!(short(&rules.decide(Action::McpCall, Some("b"))), (Deny, Layer::Manifest, "rest"));
}

#[test]
fn who_answers_is_the_rules_own_or_the_files_default() {
    let rules = Rulebook::new(
        manifest(
            "approvers: {roles: [operator], count: 2}\npermissions: {mcp.call: {'a': {effect: ask, approvers: {roles: [admin]}}, '*': ask}}",
        ),
        None,
        None,
    );
    let on = |action, subject| rules.decide(action, Some(subject)).approvers;
    assert_eq!(on(Action::McpCall, "a"), Some(roles(&["admin"])));
    let default = Requirement { count: 2, ..roles(&["operator"]) };
    assert_eq!(on(Action::McpCall, "b"), Some(default.clone()));
    // No rule at all asks as the file says, and so does the system.
    assert_eq!(on(Action::Delegate, "b"), Some(default.clone()));
    let rules = Rulebook::new(
        manifest("approvers: {roles: [operator], count: 2}\npermissions: {fs.write: allow}"),
        None,
        None,
    );
    let protected = rules.decide(Action::FsWrite, Some("Makefile"));
    assert_eq!(short(&protected), (Ask, Layer::System, "protected_paths"));
    assert_eq!(protected.approvers, Some(default));
    assert_eq!(rules.decide(Action::FsWrite, Some("a")).approvers, None);
}

#[test]
fn asks_of_several_files_add_up() {
    let rules = three(
        "permissions: {mcp.call: ask}\napprovers: {roles: [admin, operator], signature: true}",
        "permissions: {mcp.call: ask}\napprovers: {not: requester}",
        "permissions: {mcp.call: {'*': {effect: ask, approvers: {roles: [operator], count: 2}}}}",
    );
    let all =
        Requirement { not_requester: true, count: 2, signature: true, ..roles(&["operator"]) };
    let decision = rules.decide(Action::McpCall, Some("a"));
    assert_eq!(short(&decision), (Ask, Layer::Organisation, "permissions.mcp.call"));
    assert_eq!(decision.approvers, Some(all));
}

#[test]
fn an_ask_that_nobody_could_answer_is_a_deny() {
    let rules = three(
        "permissions: {mcp.call: ask}\napprovers: {roles: [admin]}",
        "",
        "permissions: {mcp.call: ask}\napprovers: {roles: [operator]}",
    );
    let decision = rules.decide(Action::McpCall, Some("a"));
    assert_eq!(short(&decision), (Deny, Layer::System, "approvers"));
    assert_eq!(decision.approvers, None);
}

#[test]
fn an_administrators_list_of_protected_paths_replaces_the_built_in_one() {
    let write = "permissions: {fs.write: allow}";
    let effect = |organisation: &str, tenant: &str, path| {
        three(organisation, tenant, write).decide(Action::FsWrite, Some(path)).effect
    };
    let list = "protected_paths: ['deploy/**']";
    for (organisation, tenant, path, expected) in [
        ("", "", "Makefile", Ask),
        ("", "", "deploy/x", Allow),
        (list, "", "Makefile", Allow),
        (list, "", "Deploy/x", Ask),
        (list, "", "deploy", Ask),
        (list, "protected_paths: [a]", "a", Ask),
        (list, "protected_paths: [a]", "deploy/x", Ask),
        ("", list, "Makefile", Allow),
        ("protected_paths: []", "", "Makefile", Allow),
        ("protected_paths: []", "", ".git/config", Deny),
    ] {
        assert_eq!(effect(organisation, tenant, path), expected, "{organisation} {tenant} {path}");
    }
}

#[test]
fn an_empty_list_of_permissions_asks_for_everything() {
    let rules = Rulebook::new(manifest("permissions: {}"), None, None);
    for action in Action::ALL {
        assert_eq!(short(&rules.decide(action, None)), (Ask, Layer::Manifest, "default"));
    }
}

#[test]
fn an_entry_that_ends_in_a_slash_protects_everything_below() {
    let rules = three("protected_paths: ['ci/']", "", "permissions: {fs.write: allow}");
    for (path, expected) in [
        ("ci/a", Ask),
        ("ci/a/b", Ask),
        ("CI/a", Ask),
        ("ci", Ask),
        ("cia", Allow),
        ("x/ci/a", Allow),
    ] {
        assert_eq!(rules.decide(Action::FsWrite, Some(path)).effect, expected, "{path}");
    }
}
