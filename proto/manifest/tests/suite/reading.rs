//! What a manifest says, member by member.
use std::collections::BTreeMap;
use std::time::Duration;

use event::{Digest, Effect};
use manifest::{
    Action, Backend, Budget, Delivery, Execution, Interaction, Limits, Manifest, Mode,
    OnDisconnect, Server,
};

/// The first seed's keys only.
pub(crate) const SEED: &str = "\
id: demo-task
title: Demo
goal: Make the tests pass.
acceptance:
  - tests pass
allowed_paths:
  - src/**
  - docs/
permissions:
  fs.read: allow
";

/// Every key.
pub(crate) const FULL: &str = "\
id: demo
title: A demonstration
goal: >
  Fix the
  application.
acceptance: [it works, \"it is: safe\"]
allowed_paths: [app.txt]
permissions:
  fs.read: {\"**\": allow, \".env\": deny}
  fs.write:
    app.txt: allow
  process.exec: ask
  patch.import: ask
  network: deny
  mcp.call: deny
  delegate: deny
  git.push: deny
  workspace.path_scope: allow
budget: {max_model_tokens: 1000, max_tool_calls: 10, max_steps: 8, max_wall_time: 10m}
delivery: {type: artifact}
execution:
  backend: oci
  mode: snapshot
  image: registry.example/demo@sha256:2222222222222222222222222222222222222222222222222222222222222222
  allow_commands: [sh, cargo]
  checks: {test: [cargo, test, --lib]}
  servers:
    notes: {command: [sh, -c, notes], tools: [read_notes, write/note], timeout: 20s, output: 32KiB}
  limits:
    memory: 256MiB
    pids: 64
    cpus: 1.5
    time: 90s
    output: 65536
    workspace_bytes: 64MiB
    workspace_inodes: 2000
    file_bytes: 1MiB
    tmp_bytes: 16MiB
  dependencies: [cargo-home]
interaction: {on_disconnect: hold, permission_timeout: 24h}
models: [scripted, other]
";

fn parse(text: &str) -> Manifest {
    Manifest::parse(text.as_bytes(), "demo.yaml").unwrap()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_manifest_of_the_first_seed_has_the_careful_defaults() {
    let manifest = parse(SEED);
    let expected = Manifest {
        id: "demo-task".into(),
        title: "Demo".into(),
        goal: "Make the tests pass.".into(),
        acceptance: texts(&["tests pass"]),
        allowed_paths: texts(&["src/**", "docs/"]),
        budget: Budget::default(),
        delivery: Delivery::PullRequest,
        policy: manifest.policy.clone(),
        tests: vec![],
        execution: Execution {
            backend: Backend::None,
            mode: Mode::Snapshot,
            image: None,
            allow_commands: vec![],
            checks: BTreeMap::new(),
            servers: BTreeMap::new(),
            limits: Limits::DEFAULT,
            dependencies: vec![],
        },
        interaction: Interaction::default(),
        models: vec![],
        digest: Digest::of(SEED.as_bytes()),
    };
    assert_eq!(manifest, expected);
}

#[test]
fn every_key_is_read() {
    let manifest = parse(FULL);
    let expected = Manifest {
        id: "demo".into(),
        title: "A demonstration".into(),
        goal: "Fix the application.\n".into(),
        acceptance: texts(&["it works", "it is: safe"]),
        allowed_paths: texts(&["app.txt"]),
        budget: Budget {
            max_model_tokens: Some(1_000),
            max_tool_calls: Some(10),
            max_steps: Some(8),
            max_wall_time: Some(Duration::from_secs(600)),
        },
        delivery: Delivery::Artifact,
        policy: manifest.policy.clone(),
        tests: vec![],
        execution: Execution {
            backend: Backend::Oci,
            mode: Mode::Snapshot,
            image: Some(format!("registry.example/demo@sha256:{}", "2".repeat(64))),
            allow_commands: texts(&["sh", "cargo"]),
            checks: BTreeMap::from([("test".to_owned(), texts(&["cargo", "test", "--lib"]))]),
            servers: BTreeMap::from([(
                "notes".to_owned(),
                Server {
                    argv: texts(&["sh", "-c", "notes"]),
                    tools: texts(&["read_notes", "write/note"]),
                    timeout: Some(Duration::from_secs(20)),
                    output: Some(32_768),
                },
            )]),
            limits: Limits {
                memory: 256 << 20,
                pids: 64,
                cpus_milli: 1_500,
                time: Duration::from_secs(90),
                output: 65_536,
                workspace_bytes: 64 << 20,
                workspace_inodes: 2_000,
                file_bytes: 1 << 20,
                tmp_bytes: 16 << 20,
            },
            dependencies: texts(&["cargo-home"]),
        },
        interaction: Interaction {
            on_disconnect: Some(OnDisconnect::Hold),
            permission_timeout: Some(Duration::from_secs(24 * 3_600)),
            at: manifest::At::default(),
        },
        models: texts(&["scripted", "other"]),
        digest: Digest::of(FULL.as_bytes()),
    };
    assert_eq!(manifest, expected);
    let rules = manifest::Rulebook::new(manifest, None, None);
    assert_eq!(rules.decide(Action::FsRead, Some(".env")).effect, Effect::Deny);
    assert_eq!(rules.decide(Action::McpCall, None).effect, Effect::Deny);
}

#[test]
fn the_digest_is_of_the_bytes_not_of_the_meaning() {
    let spaced = format!("# a remark\n{SEED}");
    let (one, other) = (parse(SEED), parse(&spaced));
    assert_ne!(one.digest, other.digest);
    assert_eq!(Manifest { digest: one.digest, ..other }, one);
}

#[test]
fn a_path_may_be_modified_by_pattern_or_below_a_directory_and_never_outside() {
    let manifest = parse(SEED);
    for (path, expected) in [
        ("src/a.rs", true),
        ("src/a/b.rs", true),
        ("docs/a", true),
        ("docs", false),
        ("docsx/a", false),
        ("Cargo.toml", false),
        ("src/../Cargo.toml", false),
        ("/src/a.rs", false),
        ("src//a.rs", false),
        ("./src/a.rs", false),
        ("src/a\\b", false),
        ("", false),
    ] {
        assert_eq!(manifest.may_modify(path), expected, "{path}");
    }
}

#[test]
fn a_few_anchors_are_taken() {
    let text = SEED.replace("  - tests pass", "  - &same tests pass\n  - *same");
    assert_eq!(parse(&text).acceptance, texts(&["tests pass", "tests pass"]));
}
