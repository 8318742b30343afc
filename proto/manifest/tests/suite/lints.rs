//! What lint finds, code by code, and what it leaves alone.
use std::collections::{BTreeMap, BTreeSet};

use manifest::{Code, Finding, Layer, Level, Manifest, Roster, Rulebook, lint, lint_ceiling};

use crate::{ceiling, manifest};

fn short(findings: &[Finding]) -> Vec<(Code, &str)> {
    findings.iter().map(|finding| (finding.code, finding.rule.as_str())).collect()
}

/// Of a manifest with these members.
fn found(members: &str) -> Vec<Finding> {
    lint(&manifest(members), None)
}

#[test]
fn a_pattern_that_no_subject_can_match_is_an_error_with_its_place() {
    let findings = found(
        "permissions:
  fs.read: {/etc/**: deny, '../x': deny, './a': deny, 'a//b': deny, 'a\\b': deny, '**/a/': deny, a: deny}
  process.exec: {'git status && rm**': deny, 'a  b': deny, ' a': deny, 'sh -c ''a; b''': deny, 'a **': deny, 'b ': deny}
  patch.import: {'src/**': deny, 'sha256:**': ask, '*': ask}
hard_deny: {fs.write: [/infra/**]}",
    );
    assert_eq!(
        short(&findings),
        [
            (Code::NeverMatches, "permissions.fs.read[/etc/**]"),
            (Code::NeverMatches, "permissions.fs.read[../x]"),
            (Code::NeverMatches, "permissions.fs.read[./a]"),
            (Code::NeverMatches, "permissions.fs.read[a//b]"),
            (Code::NeverMatches, "permissions.fs.read[a\\b]"),
            (Code::NeverMatches, "permissions.process.exec[git status && rm**]"),
            (Code::NeverMatches, "permissions.process.exec[a  b]"),
            (Code::NeverMatches, "permissions.process.exec[ a]"),
            (Code::NeverMatches, "permissions.process.exec[b ]"),
            (Code::NeverMatches, "permissions.patch.import[src/**]"),
            (Code::NeverMatches, "hard_deny.fs.write[/infra/**]"),
        ]
    );
    assert!(findings.iter().all(|finding| finding.level == Level::Error));
    assert_eq!((findings[0].at.line, findings[0].at.column), (7, 13));
}

#[test]
fn a_rule_about_a_profile_that_there_is_not_is_told() {
    let rules = "delegate: {explorers: deny, 'test*': allow, '**': ask, reviewer: ask, '*': deny}";
    let findings = found(&format!("permissions: {{{rules}}}"));
    let never = |finding: &&Finding| finding.code == Code::NeverMatches;
    let never: Vec<_> = findings.iter().filter(never).map(|finding| &*finding.rule).collect();
    assert_eq!(never, ["permissions.delegate[explorers]"]);
}

#[test]
fn precedence_that_is_not_what_it_looks_like_is_told() {
    let cases: [(&str, &[(Code, &str)]); 6] = [
        ("{'**': deny, 'src/**': allow}", &[(Code::CarveOut, "permissions.fs.read[src/**]")]),
        ("{'**': allow, 'src/**': deny}", &[]),
        (
            "{'src/*': allow, '*/main.rs': deny}",
            &[(Code::AmbiguousOverlap, "permissions.fs.read[*/main.rs]")],
        ),
        ("{'src/*': allow, 'lib/*': deny}", &[]),
        ("{'**': allow, '*': deny}", &[(Code::Shadowed, "permissions.fs.read[*]")]),
        ("{'a**/**': deny, 'a/b': allow}", &[(Code::Shadowed, "permissions.fs.read[a/b]")]),
    ];
    for (rules, expected) in cases {
        assert_eq!(
            short(&found(&format!("permissions: {{fs.read: {rules}}}"))),
            expected,
            "{rules}"
        );
    }
}

#[test]
fn an_allow_of_commands_that_is_wider_or_narrower_than_it_looks_is_told() {
    let cases: [(&str, &[(Code, &str)]); 12] = [
        ("allow", &[(Code::FlatExecAllow, "permissions.process.exec")]),
        ("{'*': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[*]")]),
        ("{'sh **': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[sh **]")]),
        (
            "{'sh **': {effect: allow, class: interpreter, id: shell}}",
            &[(Code::InterpreterWildcard, "shell")],
        ),
        ("{'py**': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[py**]")]),
        ("{'git **': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[git **]")]),
        ("{'tar **': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[tar **]")]),
        ("{'find **': allow}", &[(Code::InterpreterWildcard, "permissions.process.exec[find **]")]),
        ("{'git status **': allow}", &[]),
        ("{'cargo test**': allow}", &[]),
        ("{'sh x.sh': allow}", &[]),
        ("{'sh **': ask}", &[]),
    ];
    for (rules, expected) in cases {
        let findings = found(&format!("permissions: {{process.exec: {rules}}}"));
        assert_eq!(short(&findings), expected, "{rules}");
    }
}

#[test]
fn rules_that_the_rest_of_the_task_makes_idle_are_told() {
    let text = "id: a
title: a
goal: a
acceptance: [a]
allowed_paths: [src/, docs/**]
permissions:
  fs.write: {'src/a': allow, 'docs/**': ask, 'lib/**': allow, 'etc/**': deny, '*': allow}
  process.exec: {'cargo test**': allow, 'ls': allow, 'make**': ask, 'git**': deny}
execution: {backend: oci, image: a, allow_commands: [cargo]}
";
    let findings = lint(&Manifest::parse(text.as_bytes(), "a.yaml").unwrap(), None);
    assert_eq!(
        short(&findings),
        [
            (Code::OutsideAllowedPaths, "permissions.fs.write[lib/**]"),
            (Code::UnlistedProgram, "permissions.process.exec[ls]"),
        ]
    );
}

#[test]
fn a_rule_for_a_tool_that_no_server_lists_is_told() {
    let servers = "execution: {backend: oci, image: a, allow_commands: [ls], servers: {notes: {command: [ls], tools: [read, a/b]}}}";
    let rules = "permissions: {mcp.call: {'notes/read': allow, 'notes/a/*': ask, 'other/*': ask, 'notes/rm': deny, '*': ask}}";
    assert_eq!(
        short(&found(&format!("{rules}\n{servers}"))),
        [(Code::UnlistedTool, "permissions.mcp.call[other/*]")]
    );
}

#[test]
fn asks_that_nobody_can_answer_are_told() {
    let members = "approvers: {roles: [auditor]}
permissions:
  mcp.call:
    a: {effect: ask, approvers: {roles: [owner, operator]}}
    b: {effect: ask, approvers: {roles: [operator], count: 2, not: requester}}";
    assert_eq!(
        short(&found(members)),
        [(Code::Unanswerable, "approvers"), (Code::UnknownRole, "permissions.mcp.call[a]"),]
    );
    let people = |people: &[&str]| people.iter().map(|p| (*p).to_owned()).collect::<BTreeSet<_>>();
    let roster = Roster {
        roles: BTreeMap::from([
            ("operator".to_owned(), people(&["ann", "bob"])),
            ("owner".to_owned(), people(&["ann"])),
        ]),
    };
    let rest = members.replace("[auditor]", "[operator]");
    assert_eq!(
        short(&lint(&manifest(&rest), Some(&roster))),
        [(Code::Unanswerable, "permissions.mcp.call[b]")]
    );
}

#[test]
fn a_wait_without_an_end_is_told() {
    let hold = found("permissions: {}\ninteraction: {on_disconnect: hold}");
    assert_eq!(short(&hold), [(Code::NoTimeout, "interaction.permission_timeout")]);
    assert_eq!((hold[0].at.line, hold[0].at.column), (7, 14));
    assert_eq!(
        found("permissions: {}\ninteraction: {on_disconnect: hold, permission_timeout: 1h}"),
        []
    );
}

#[test]
fn files_that_contradict_each_other_are_told() {
    let rule = |role: &str| {
        format!(
            "permissions: {{mcp.call: {{a: {{effect: ask, id: same}}}}}}\napprovers: {{roles: [{role}]}}"
        )
    };
    let rules = Rulebook::new(manifest(&rule("operator")), Some(ceiling(&rule("admin"))), None);
    let findings = rules.lint(None);
    assert_eq!(short(&findings), [(Code::Unanswerable, "approvers"), (Code::DuplicateId, "same")]);
    assert!(findings.iter().all(|finding| finding.layer == Layer::Manifest));
    let alone = lint_ceiling(&ceiling("permissions: {fs.read: {/a: deny}}"), Layer::Tenant, None);
    assert_eq!((alone[0].layer, alone[0].code), (Layer::Tenant, Code::NeverMatches));
}

#[test]
fn every_code_is_in_the_documentation() {
    let page = include_str!("../../../../docs/manifest.md");
    for code in Code::ALL {
        assert!(page.contains(&format!("| `{}` |", code.as_str())), "{}", code.as_str());
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
    }
}

#[test]
fn a_test_of_a_program_that_is_refused_anyway_is_told() {
    let findings = found(
        "execution: {backend: oci, image: a, allow_commands: [ls]}
permissions: {process.exec: {'**': allow, 'rm**': deny}}
tests:
- {action: process.exec, argv: [ls], expect: allow}
- {action: process.exec, argv: [cat, x], expect: allow}
- {action: process.exec, subject: cat y, expect: allow}
- {action: process.exec, argv: [rm, x], expect: deny}",
    );
    let told: Vec<_> =
        short(&findings).into_iter().filter(|(_, rule)| rule.starts_with("tests")).collect();
    assert_eq!(told, [(Code::UnlistedProgram, "tests[1]"), (Code::UnlistedProgram, "tests[2]")]);
}

#[test]
fn a_denied_command_that_is_easily_written_otherwise_is_told() {
    let told = |members: &str, code: Code| -> Vec<String> {
        let of = found(members).into_iter().filter(|finding| finding.code == code);
        of.map(|finding| finding.rule).collect()
    };
    let options = |members: &str| told(members, Code::OptionsFirst);
    assert_eq!(
        options("permissions: {process.exec: {'cargo publish**': deny, 'cargo **': allow}}"),
        ["permissions.process.exec[cargo publish**]"]
    );
    assert_eq!(
        options("permissions: {process.exec: {'git push**': ask, 'git**': allow}}"),
        ["permissions.process.exec[git push**]"]
    );
    assert_eq!(
        options(
            "permissions: {process.exec: {'git **': allow}}\nhard_deny: {process.exec: ['git push**']}"
        ),
        ["hard_deny.process.exec[git push**]"]
    );
    for fine in [
        "permissions: {process.exec: {'git push**': deny, 'git status**': allow}}",
        "permissions: {process.exec: {'rm -rf**': deny, 'rm **': allow}}",
        "permissions: {process.exec: {'cargo publish**': deny, 'cargo **': ask}}",
    ] {
        assert_eq!(options(fine), [""; 0], "{fine}");
    }
    let brittle = |pattern: &str| {
        let members = format!("permissions: {{}}\nhard_deny: {{process.exec: [\"{pattern}\"]}}");
        told(&members, Code::BrittleDeny).len()
    };
    for pattern in ["sh -c 'rm -rf x'**", "rm -rf x", "rm ~/**"] {
        assert_eq!(brittle(pattern), 1, "{pattern}");
    }
    for pattern in ["rm -rf**", "*", "rm**"] {
        assert_eq!(brittle(pattern), 0, "{pattern}");
    }
}
