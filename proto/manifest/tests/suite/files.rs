//! The long form of rules, `hard_deny`, `approvers`, `tests` and ceilings: what is refused, and where.
use insta::assert_snapshot;
use manifest::{Ceiling, Manifest};

use crate::reading::SEED;

/// Every fault of the seed's manifest with these members added.
fn faults(members: &str) -> String {
    Manifest::parse(format!("{SEED}{members}\n").as_bytes(), "a.yaml").unwrap_err().to_string()
}

/// As [`faults`], with these permissions.
fn rule_faults(permissions: &str) -> String {
    let text = SEED.replace("permissions:\n  fs.read: allow\n", "");
    let text = format!("{text}permissions:\n{permissions}\n");
    Manifest::parse(text.as_bytes(), "a.yaml").unwrap_err().to_string()
}

fn ceiling_faults(text: &str) -> String {
    Ceiling::parse(text.as_bytes(), "c.yaml").unwrap_err().to_string()
}

#[test]
fn a_long_rule_with_anything_wrong_says_all_of_it() {
    assert_snapshot!(rule_faults(
        "  process.exec:
    'a**': {effect: maybe, id: Not Kebab, class: shell, justification: '', approvers: {}}
    'b**': {id: b}
    'c**': {effect: allow, approvers: {roles: [operator]}}
    'd**': {effect: ask, id: same, approvers: {roles: [], not: me, count: 0, signature: yes please}}
    'e**': {effect: ask, id: same, approvers: {roles: [operator, operator], count: 17}}
    'f**': {effect: deny, id: default, why: not}
    'g**': [allow]
  fs.read: {'**': {effect: allow, class: interpreter}}
  git.push: {'**': {effect: allow, class: interpreter}}
  network: {effect: allow}"
    ));
}

#[test]
fn patterns_of_the_network_are_names_with_ports() {
    assert_snapshot!(rule_faults(
        "  network:
    'registry.test': allow
    '10.0.0.1:443': allow
    '[::1]:443': allow
    'Registry.test:443': allow
    '**': allow
    '*pkg.test:443': allow
    'a.test:99999': allow"
    ));
}

#[test]
fn hard_deny_takes_lists_of_patterns_only() {
    assert_snapshot!(faults(
        "hard_deny:
  fs.write: infra/**
  fs.reed: [a]
  fs.read: []
  network: ['10.0.0.1:1']
  process.exec: ['rm**', 'rm**', 7]"
    ));
}

#[test]
fn a_test_that_does_not_hold_is_a_fault_of_the_file() {
    assert_snapshot!(faults(
        "tests:
  - {action: fs.read, subject: a, expect: deny}
  - {action: fs.write, subject: .git/config, expect: ask}
  - {action: fs.read, subject: a, expect: allow, rule: other}
  - {action: process.exec, argv: [ls], expect: allow}
  - {action: fs.read, subject: a, expect: allow}"
    ));
}

#[test]
fn a_test_that_says_no_action_or_two_subjects_is_a_fault() {
    assert_snapshot!(faults(
        "tests:
  - {subject: a, expect: perhaps}
  - {action: git.push, expect: allow}
  - {action: fs.read, argv: [ls], expect: allow}
  - {action: process.exec, subject: ls, argv: [ls], expect: ask}
  - {action: process.exec, argv: [], expect: ask}
  - nothing"
    ));
}

#[test]
fn a_ceiling_says_that_it_is_one_and_has_no_task() {
    assert_snapshot!(
        [
            ceiling_faults(""),
            ceiling_faults("id: c\n"),
            ceiling_faults("kind: manifest\nid: c\n"),
            ceiling_faults("kind: ceiling\nid: c\nallowed_paths: [a]\ngoal: x\n"),
            ceiling_faults("\u{feff}kind: ceiling\nid: c\n"),
            ceiling_faults("- kind\n"),
            ceiling_faults("kind: ceiling\nid: c\nid: d\n"),
            ceiling_faults("kind: ceiling\nid: c\nprotected_paths: [/etc, ../x, '']\n"),
            ceiling_faults(
                "kind: ceiling\nid: c\ntests: [{action: fs.read, subject: a, expect: deny}]\n"
            ),
        ]
        .join("\n\n")
    );
}

#[test]
fn what_the_seed_could_write_is_still_read() {
    let text = SEED.replace(
        "fs.read: allow",
        "git.push: allow\n  git.branch: {'**': {effect: deny, id: never}}\n  workspace.path_scope: ask",
    );
    let manifest = Manifest::parse(text.as_bytes(), "a.yaml").unwrap();
    assert_eq!(
        manifest.policy,
        Manifest::parse(SEED.replace("fs.read: allow", "git.diff: ask").as_bytes(), "b")
            .unwrap()
            .policy
    );
}

#[test]
fn examples_that_hold_are_kept() {
    let members = "tests:
  - {action: fs.read, expect: allow}
  - {action: fs.write, subject: src/x, expect: ask, rule: default}
  - {action: process.exec, argv: [ls, ''], expect: ask}";
    let manifest = Manifest::parse(format!("{SEED}{members}\n").as_bytes(), "a.yaml").unwrap();
    assert_eq!(manifest.tests.len(), 3);
}

#[test]
fn a_rule_has_no_name_that_a_built_in_one_has() {
    for id in ["default", "path", "host", "argv", "interpreter", "unparsable", "approvers"] {
        let text = format!(
            "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['**']\npermissions: {{mcp.call: {{a: {{effect: ask, id: {id}}}}}}}\n"
        );
        let faults = Manifest::parse(text.as_bytes(), "a.yaml").unwrap_err().to_string();
        assert!(faults.contains("is the name of a built-in rule"), "{faults}");
    }
}
