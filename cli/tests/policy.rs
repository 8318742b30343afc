//! `harness manifest`: what it decides is what the executor decides, and nothing of a file reaches the terminal raw.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

const MANIFEST: &str = r#"id: task
title: t
goal: g
acceptance: [a]
allowed_paths: ["src/**"]
permissions:
  fs.read: allow
  fs.write: {"src/**": allow, "docs/**": ask, "*": deny}
  process.exec:
    "cargo test**": {effect: allow, id: tests, justification: "no effects\u202e\n- outside"}
    "rm**": deny
    "sh -c **": {effect: ask, class: interpreter, approvers: {roles: [operator], not: requester, count: 2, signature: true}}
    "*": ask
tests:
  - {action: process.exec, argv: [cargo, test], expect: allow, rule: tests}
  - {action: fs.write, subject: src/a.rs, expect: allow}
"#;
const CEILING: &str =
    "kind: ceiling\nid: top\npermissions: {fs.write: {\"src/secret/**\": deny, \"**\": allow}}\n";

/// In a directory that holds `task.yaml` and `top.yaml`.
fn manifest(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        if !path.exists() {
            fs::write(path, text).unwrap();
        }
    };
    write("task.yaml", MANIFEST);
    write("top.yaml", CEILING);
    let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
    program.arg("manifest").args(args).current_dir(dir).stdin(Stdio::null());
    let Output { status, stdout, stderr } = program.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(stdout), text(stderr));
    for said in [&stdout, &stderr] {
        assert!(!said.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{said}");
    }
    (status.code().unwrap(), stdout, stderr)
}

fn document(dir: &Path, args: &[&str], kind: &str) -> (i32, Value) {
    let (code, stdout, stderr) = manifest(dir, args);
    let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    assert_eq!((&document["schemaVersion"], &document["kind"]), (&json!(1), &json!(kind)));
    (code, document)
}

#[test]
fn a_command_line_or_file_that_can_not_be_used_is_2_and_says_why() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("bad.yaml"), "kind: ceiling\nid: top\nfrob: 1\n").unwrap();
    for (args, why) in [
        (vec!["new", "Wrong Id"], "is no id"),
        (vec!["new", "a\"\ntitle: x"], "is no id"),
        (vec!["new", "task", "--out", "task.yaml"], "already exists"),
        (vec!["explain", "task.yaml", "fs.wriet", "x"], "give one of fs.read"),
        (vec!["explain", "task.yaml"], "required"),
        (vec!["explain", "top.yaml", "fs.read", "x"], "is a ceiling"),
        (vec!["explain", "bad.yaml", "fs.read", "x"], "bad.yaml:3:1: "),
        (vec!["explain", "task.yaml", "fs.read", "x", "--ceiling", "bad.yaml"], "bad.yaml:3:1: "),
        (vec!["lint", "bad.yaml"], "bad.yaml:3:1: "),
        (vec!["test", "bad.yaml"], "bad.yaml:3:1: "),
        (vec!["diff", "task.yaml", "top.yaml"], "not both"),
        (vec!["diff", "task.yaml", "task.yaml", "--recorded", "top.yaml"], "top.yaml:1: "),
        (vec!["diff", "task.yaml", "task.yaml", "--ledger", "nowhere"], "not a state directory"),
    ] {
        let (code, stdout, stderr) = manifest(home.path(), &args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(why), "{args:?}: {stderr}");
    }
}

#[test]
fn a_new_manifest_is_one_that_holds() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(manifest(home.path(), &["new", "fix-it", "--out", "new.yaml"]).0, 0);
    let (code, printed, _) = manifest(home.path(), &["new", "fix-it"]);
    assert_eq!((code, printed), (0, fs::read_to_string(home.path().join("new.yaml")).unwrap()));
    let (code, said, _) = manifest(home.path(), &["test", "new.yaml"]);
    assert_eq!(
        (code, said.lines().all(|line| line.starts_with("ok   new.yaml:"))),
        (0, true),
        "{said}"
    );
    let (code, found, stderr) = manifest(home.path(), &["lint", "--deny-warnings", "new.yaml"]);
    assert_eq!((code, found.as_str()), (0, ""), "{stderr}");
}

#[test]
fn schemas_are_json() {
    let home = tempfile::tempdir().unwrap();
    for (args, key) in [(vec!["schema"], "goal"), (vec!["schema", "--ceiling"], "protected_paths")]
    {
        let (code, printed, _) = manifest(home.path(), &args);
        let schema: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!((code, schema["properties"].get(key).is_some()), (0, true));
    }
}

#[test]
fn a_command_is_explained_with_what_is_inside_it() {
    let home = tempfile::tempdir().unwrap();
    let command = "ls\n\n; rm -rf \u{202e}x";
    let args = ["explain", "task.yaml", "--json", "--", "sh", "-c", command];
    let (code, told) = document(home.path(), &args, "policy-explanation");
    assert_eq!(
        (code, &told["decision"]["effect"], &told["decision"]["rule"]),
        (0, &json!("deny"), &json!("permissions.process.exec[rm**]"))
    );
    assert_eq!(told["place"], json!({"file": "task.yaml", "line": 11, "column": 5}));
    let whole = &told["parts"][0];
    assert_eq!(whole["subject"], format!("sh -c '{command}'"));
    assert_eq!(
        whole["approvers"],
        json!({"roles": ["operator"], "notRequester": true, "count": 2, "signature": true})
    );
    assert_eq!(whole["manifestDigest"], told["files"][0]["digest"]);
    let (_, text, _) = manifest(home.path(), &["explain", "task.yaml", "--", "sh", "-c", command]);
    assert!(text.starts_with("deny process.exec sh -c 'ls\\n\\n; rm -rf \\u{202e}x' ("), "{text}");
    assert!(text.contains("\n  inside: ") && text.contains(" at task.yaml:11:5\n"), "{text}");
}

#[test]
fn the_authors_words_and_the_ceilings_place_are_shown() {
    let home = tempfile::tempdir().unwrap();
    let (_, text, _) = manifest(home.path(), &["explain", "task.yaml", "--", "cargo", "test"]);
    assert!(text.contains("justification: no effects\\u{202e}\\n- outside\n"), "{text}");
    let write = ["explain", "task.yaml", "fs.write", "./src//secret/k", "--ceiling", "top.yaml"];
    let (_, told) =
        document(home.path(), &[&write[..], &["--json"]].concat(), "policy-explanation");
    assert_eq!(
        (&told["decision"]["layer"], &told["decision"]["subject"], &told["place"]["file"]),
        (&json!("organisation"), &json!("src/secret/k"), &json!("top.yaml"))
    );
    assert_eq!(told["decision"]["matching"].as_array().unwrap().len(), 3, "{told}");
}

#[test]
fn lint_fails_at_errors_and_where_it_is_told_so_at_warnings() {
    let home = tempfile::tempdir().unwrap();
    let (code, found, _) = manifest(home.path(), &["lint", "task.yaml"]);
    assert_eq!(code, 0, "{found}");
    assert!(found.lines().all(|line| line.starts_with("task.yaml:")) && !found.is_empty());
    assert_eq!(manifest(home.path(), &["lint", "--deny-warnings", "task.yaml"]).0, 1);
    fs::write(home.path().join("tokens"), "").unwrap();
    let with_people = ["lint", "task.yaml", "top.yaml", "--tokens-file", "tokens", "--json"];
    let (code, told) = document(home.path(), &with_people, "policy-lint");
    let codes: Vec<_> = told["findings"].as_array().unwrap().iter().map(|it| &it["code"]).collect();
    assert_eq!((code, &told["ok"]), (1, &json!(false)), "{told}");
    assert!(codes.contains(&&json!("unanswerable")), "{codes:?}");
}

#[test]
fn every_test_is_told_and_one_that_does_not_hold_fails() {
    let home = tempfile::tempdir().unwrap();
    let (code, said, _) = manifest(home.path(), &["test", "task.yaml"]);
    assert_eq!(
        (code, said.as_str()),
        (
            0,
            "ok   task.yaml:15:5: allow for process.exec on cargo test by tests\nok   task.yaml:16:5: allow for fs.write on src/a.rs\n"
        )
    );
    let wrong = MANIFEST.replace("subject: src/a.rs", "subject: README.md");
    fs::write(home.path().join("wrong.yaml"), wrong).unwrap();
    let (code, said, stderr) = manifest(home.path(), &["test", "wrong.yaml"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(said.starts_with("FAIL wrong.yaml:16:5: "), "{said}");
    assert!(
        stderr.contains("tests that do not hold: 1;") && !stderr.contains("1 of 1"),
        "{stderr}"
    );
    fs::write(
        home.path().join("closed.yaml"),
        "kind: ceiling\nid: top\nhard_deny: {fs.write: [\"src/**\"]}\n",
    )
    .unwrap();
    let args = ["test", "task.yaml", "--ceiling", "closed.yaml", "--json"];
    let (code, told) = document(home.path(), &args, "policy-tests");
    let held: Vec<_> = told["tests"].as_array().unwrap().iter().map(|test| &test["ok"]).collect();
    assert_eq!((code, held), (1, vec![&json!(true), &json!(false)]));
}

#[test]
fn a_widening_must_be_said_to_be_meant() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("wide.yaml"), MANIFEST.replace("\"rm**\": deny", "\"rm**\": ask"))
        .unwrap();
    let told =
        |args: &[&str]| document(home.path(), &[&["diff", "--json"], args].concat(), "policy-diff");
    let (code, same) = told(&["task.yaml", "task.yaml"]);
    assert_eq!((code, &same["changes"]), (0, &json!([])));
    let (code, wider) = told(&["task.yaml", "wide.yaml"]);
    assert_eq!((code, &wider["ok"], &wider["narrowing"]), (1, &json!(false), &json!(0)));
    assert!(wider["widening"].as_u64().unwrap() > 0);
    assert_eq!(told(&["task.yaml", "wide.yaml", "--allow-widening"]).0, 0);
    let (code, narrower) = told(&["wide.yaml", "task.yaml"]);
    assert_eq!((code, &narrower["widening"]), (0, &json!(0)));
    fs::write(home.path().join("open.yaml"), "kind: ceiling\nid: top\n").unwrap();
    assert_eq!((told(&["open.yaml", "top.yaml"]).0, told(&["top.yaml", "open.yaml"]).0), (0, 1));
}

#[test]
fn what_was_recorded_is_decided_again() {
    let home = tempfile::tempdir().unwrap();
    let entry = |subject: &str| {
        json!({"logIndex": 1, "event": {
            "v": 1, "eventId": "0198f000-0000-7000-8000-000000000001", "at": "2026-01-01T00:00:00.000000Z",
            "type": "policy.decision",
            "data": {"callId": "0198f000-0000-7000-8000-000000000002",
                "planDigest": format!("sha256:{}", "0".repeat(64)),
                "action": "fs.write", "subject": subject, "effect": "allow"}}})
    };
    let lines = format!("{}\n{}\n", entry("src/deep/er.rs"), entry("src/deep/er.rs"));
    fs::write(home.path().join("recorded.jsonl"), lines).unwrap();
    fs::write(
        home.path().join("less.yaml"),
        MANIFEST.replace("{\"src/**\": allow, ", "{\"src/**\": allow, \"src/deep/er.rs\": ask, "),
    )
    .unwrap();
    let args = ["diff", "task.yaml", "less.yaml", "--recorded", "recorded.jsonl", "--json"];
    let (code, told) = document(home.path(), &args, "policy-diff");
    assert_eq!((code, &told["recorded"], &told["widening"]), (0, &json!(2), &json!(0)), "{told}");
    let found = told["changes"].as_array().unwrap().iter();
    let counted: Vec<_> = found
        .filter(|change| change["subject"] == "src/deep/er.rs")
        .map(|change| &change["recorded"])
        .collect();
    assert_eq!(counted, [&json!(2)]);
}
