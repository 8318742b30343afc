//! What is told about a decision, what changes between two rulebooks, and the text that a task begins with.
use event::Effect::{Allow, Ask, Deny};
use insta::assert_snapshot;
use manifest::{
    Action, Change, Command, Manifest, Recorded, Rulebook, diff, diff_keys, lint, starter,
};

use crate::{ceiling, manifest, rulebook};

#[test]
fn an_explanation_names_rule_place_reason_and_files() {
    let rules = Rulebook::new(
        manifest(
            "permissions:
  process.exec:
    'cargo test**': {effect: ask, id: tests, justification: \"they take\\e[31m long\", approvers: {roles: [operator], count: 2, not: requester}}
    'rm -rf**': deny
    '*': ask",
        ),
        Some(ceiling("permissions: {process.exec: {'**': allow}}")),
        None,
    );
    let exec = |argv: &[&str]| rules.explain_exec(&Command::new(argv.iter().copied())).to_string();
    assert_snapshot!(
        [
            exec(&["cargo", "test"]),
            exec(&["sh", "-c", "ls; rm -rf x"]),
            exec(&["python3", "\u{202e}x"]),
        ]
        .join("\n")
    );
}

#[test]
fn an_explanation_is_a_document_too() {
    let rules = rulebook("  fs.read: {'src/*': allow, '**': deny}");
    let explanation = rules.explain(Action::FsRead, Some("src/a/b"));
    insta::assert_json_snapshot!(explanation);
}

#[test]
fn an_explanation_says_where_reading_stopped_and_what_refuses_the_program() {
    let execution = "execution: {backend: oci, image: x, allow_commands: [sh]}";
    let task = format!("permissions: {{process.exec: allow}}\n{execution}");
    let rules = Rulebook::new(manifest(&task), None, None);
    let notes = |argv: &[&str]| rules.explain_exec(&Command::new(argv.iter().copied())).notes;
    assert_eq!(
        notes(&["sh", "-c", "f() { x; }"]),
        ["what sh runs was not read to the end: it has a function or a pattern"]
    );
    assert_eq!(
        notes(&["ls", "-l"]),
        ["effect: refused; execution.allow_commands does not list ls"]
    );
    assert_eq!(notes(&["sh", "-c", "ls"]), [""; 0]);
    let explanation = rules.explain(Action::ProcessExec, Some("ls -l"));
    assert_eq!(explanation.notes, notes(&["ls", "-l"]));
    assert!(explanation.to_string().contains("  note: effect: refused; "), "{explanation}");
    let none = rulebook("  process.exec: allow").explain_exec(&Command::new(["ls"]));
    assert_eq!(
        none.notes,
        ["effect: refused; execution has no back end, so there is no command tool"]
    );
}

#[test]
fn near_misses_say_why() {
    let rules = rulebook(
        "  fs.read: {'src/*': allow, 'SRC/**': allow, 'src/a/b/**': allow, src/a: allow, /src/a/b: allow, 'other': allow}
  process.exec: {'cargo test': allow}
  network: {'*.pkg.test:443': allow}",
    );
    let why = |action, subject| {
        let explanation = rules.explain(action, Some(subject));
        explanation.near_misses.iter().map(|miss| miss.why).collect::<Vec<_>>()
    };
    assert_eq!(
        why(Action::FsRead, "src/a/b"),
        [
            "it covers what is in the directory, not the directory",
            "paths begin neither with / nor with ./",
            "it differs in upper and lower case",
            "a * stops at /; ** does not",
            "it covers the directory, not what is in it; add /**",
        ]
    );
    assert_eq!(
        why(Action::ProcessExec, "cargo test --lib"),
        ["it has no wildcard at its end and the command goes on"]
    );
    assert_eq!(
        why(Action::Network, "pkg.test:443"),
        ["*. covers what is below a domain, not the domain itself"]
    );
}

#[test]
fn what_becomes_wider_is_told_apart_from_what_becomes_narrower() {
    let old = rulebook("  mcp.call: {'a/**': ask, 'b': allow, '*': deny}");
    let new = rulebook("  mcp.call: {'a/**': allow, 'b': ask, '*': deny}");
    let recorded = Recorded { action: Action::McpCall, subject: Some("a/seen".into()) };
    let changes = diff(&old, &new, &[recorded.clone(), recorded]);
    let short = |change: &Change| {
        let subject = change.subject.clone().unwrap_or_default();
        (subject, change.before.effect, change.after.effect, change.widening, change.recorded)
    };
    let changes: Vec<_> = changes.iter().map(short).collect();
    assert!(changes.contains(&("a/seen".into(), Ask, Allow, true, 2)), "{changes:?}");
    assert!(changes.contains(&("b".into(), Allow, Ask, false, 0)), "{changes:?}");
    assert!(changes.iter().all(|(subject, ..)| subject.starts_with('a') || subject == "b"));
    assert_eq!(diff(&old, &old, &[]), []);
}

#[test]
fn fewer_people_to_answer_is_a_widening_though_it_still_asks() {
    let ask = |count| {
        rulebook(&format!("  mcp.call: {{'*': {{effect: ask, approvers: {{count: {count}}}}}}}"))
    };
    let changes = diff(&ask(2), &ask(1), &[]);
    assert!(!changes.is_empty() && changes.iter().all(|change| change.widening));
    assert!(diff(&ask(1), &ask(2), &[]).iter().all(|change| !change.widening));
}

#[test]
fn an_allow_that_reaches_interpreters_is_a_widening() {
    for (before, after) in [
        ("{'*': allow}", "{'*': {effect: allow, class: interpreter}}"),
        ("{'**': allow}", "allow"),
        ("{'git **': allow}", "{'git **': {effect: allow, class: interpreter}}"),
        ("{'find **': allow}", "{'find **': {effect: allow, class: interpreter}}"),
        ("{'py**': allow}", "{'py**': {effect: allow, class: interpreter}}"),
        ("{'timeout 5 **': allow}", "{'timeout 5 **': {effect: allow, class: interpreter}}"),
        ("{'make**': allow}", "{'make**': {effect: allow, class: interpreter}}"),
        ("{'*': allow}", "allow"),
        (
            "{'**': {effect: allow, class: interpreter}, 'rm **': deny}",
            "{'**': {effect: allow, class: interpreter}}",
        ),
    ] {
        let rules = |rule: &str| rulebook(&format!("  process.exec: {rule}"));
        let (before, after) = (rules(before), rules(after));
        assert!(diff(&before, &after, &[]).iter().any(|change| change.widening));
        assert!(diff(&after, &before, &[]).iter().all(|change| !change.widening));
    }
}

#[test]
fn what_a_list_no_longer_protects_is_a_widening() {
    let task = manifest("permissions: {fs.write: allow}");
    let under = |list: &str| Rulebook::new(task.clone(), Some(ceiling(list)), None);
    let widened = |before: &str, after: &str| -> Vec<String> {
        let changes = diff(&under(before), &under(after), &[]);
        changes.into_iter().filter(|change| change.widening).filter_map(|c| c.subject).collect()
    };
    let found = widened("", "protected_paths: ['ci/**']");
    for path in ["makefile", "build.rs", ".github/x"] {
        assert!(found.iter().any(|subject| subject == path), "{path}: {found:?}");
    }
    let found = widened("protected_paths: ['ci/**', a]", "protected_paths: [a]");
    assert!(found.iter().any(|subject| subject == "ci/x"), "{found:?}");
    assert_eq!(widened("protected_paths: [a]", "protected_paths: [a]"), [""; 0]);
}

#[test]
fn other_keys_that_give_more_are_widenings_too() {
    let with = |members: &str| {
        Rulebook::new(manifest(&format!("permissions: {{}}\n{members}")), None, None)
    };
    let oci = |members: &str| {
        format!("execution: {{backend: oci, image: x, allow_commands: [ls], {members}}}")
    };
    for (before, after, key) in [
        (
            "approvers: {count: 2}".to_owned(),
            "approvers: {count: 1, not: requester}".to_owned(),
            "approvers",
        ),
        ("budget: {max_steps: 1}".into(), "budget: {max_steps: 2}".into(), "budget.max_steps"),
        ("budget: {max_steps: 1}".into(), String::new(), "budget.max_steps"),
        ("models: [a]".into(), "models: [a, b]".into(), "models"),
        ("models: [a]".into(), String::new(), "models"),
        (
            oci(""),
            "execution: {backend: oci, image: x, allow_commands: [ls, sh]}".into(),
            "execution.allow_commands",
        ),
        (oci(""), oci("limits: {memory: 1GiB}"), "execution.limits.memory"),
        (oci(""), oci("dependencies: [a]"), "execution.dependencies"),
        (oci(""), oci("checks: {t: [ls]}"), "execution.checks.t"),
        (oci(""), oci("servers: {n: {command: [ls], tools: [a]}}"), "execution.servers.n"),
        (
            oci("servers: {n: {command: [ls], tools: [a], timeout: 1s}}"),
            oci("servers: {n: {command: [ls], tools: [a, b], timeout: 1s}}"),
            "execution.servers.n",
        ),
        (
            oci("servers: {n: {command: [ls], tools: [a], output: 1KiB}}"),
            oci("servers: {n: {command: [ls], tools: [a]}}"),
            "execution.servers.n",
        ),
    ] {
        let changes = diff_keys(&with(&before), &with(&after));
        let keys: Vec<_> = changes.iter().map(|c| (c.key.as_str(), c.widening)).collect();
        assert_eq!(keys, [(key, true)], "{before} {after}");
        let back = diff_keys(&with(&after), &with(&before));
        assert_eq!(back.len(), 1);
        // A requirement that gained one thing and lost another is wider both ways.
        assert!(key == "approvers" || !back[0].widening, "{back:?}");
    }
    let under =
        |members: &str| Rulebook::new(manifest("permissions: {}"), Some(ceiling(members)), None);
    let change = &diff_keys(&under("approvers: {signature: true}"), &under(""))[..];
    assert!(matches!(change, [only] if only.key == "approvers" && only.widening), "{change:?}");
    assert_eq!(diff_keys(&under("title: a"), &under("title: b")), []);
}

#[test]
fn a_new_ceiling_shows_as_narrowing() {
    let task = manifest("permissions: {fs.write: allow}");
    let old = Rulebook::new(task.clone(), None, None);
    let new = Rulebook::new(task, Some(ceiling("hard_deny: {fs.write: ['infra/**']}")), None);
    let changes = diff(&old, &new, &[]);
    assert!(!changes.is_empty());
    assert!(changes.iter().all(|change| change.after.effect == Deny && !change.widening));
}

#[test]
fn a_new_task_begins_with_a_file_that_is_read_and_gives_no_error() {
    for id in ["fix-tests", "1", "true", "null"] {
        let manifest = Manifest::parse(starter(id).as_bytes(), "a.yaml").unwrap();
        assert_eq!(manifest.id, id);
        let errors = lint(&manifest, None);
        assert!(
            errors.iter().all(|finding| finding.level == manifest::Level::Warning),
            "{errors:?}"
        );
    }
}
