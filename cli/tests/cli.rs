//! The built program: exit codes, one line per failure, nothing half done, nothing left running.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

const HARNESS: &str = env!("CARGO_BIN_EXE_harness");

fn harness(args: &[&str]) -> Output {
    Command::new(HARNESS).args(args).stdin(Stdio::null()).output().unwrap()
}

/// The exit code and the one line that a failure leaves on stderr.
fn failure(args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = harness(args);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(said.starts_with("harness: ") && said.contains("; "), "{args:?}: {said}");
    assert!(stdout.is_empty(), "{args:?}");
    (status.code().unwrap(), said)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn help_is_not_a_failure() {
    for args in
        [vec!["--help"], vec!["up", "--help"], vec!["pki", "issue", "--help"], vec!["--version"]]
    {
        let Output { status, stdout, stderr } = harness(&args);
        assert_eq!((status.code(), stderr.len()), (Some(0), 0), "{args:?}");
        assert!(!stdout.is_empty());
    }
    assert!(String::from_utf8(harness(&["run", "--help"]).stdout).unwrap().contains("Examples:"));
}

#[test]
fn without_a_command_the_commands_are_listed_and_it_is_usage() {
    let Output { status, stdout, stderr } = harness(&[]);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{said}");
    for command in ["up", "run", "resume", "connect", "audit", "doctor"] {
        assert!(said.contains(&format!("\n  {command} ")), "{said}");
    }
}

#[test]
fn a_command_line_that_does_not_fit_is_usage() {
    let absent = "/nowhere/at/all";
    for args in [
        vec!["--unknown"],
        vec!["frobnicate"],
        vec!["up"],
        vec!["up", "--state", "x", "--frob"],
        vec!["up", "--state", "x", "--workspace", "demo"],
        vec!["run", "prompt"],
        vec!["run", "--state", absent, "prompt"],
        vec!["run", "--gateway", "wss://h", "prompt"],
        vec!["run", "--state", absent, "--yes", "--no-hold", "prompt"],
        vec!["resume", "--state", absent, "run"],
        vec!["resume", "--state", absent, "run", "--approve", "--deny"],
        vec!["resume", "--state", absent, "not-a-run", "--approve"],
        vec!["connect", "--state", absent],
        vec!["connect", "--state", absent, "prompt"],
        vec!["patch", "show", "--state", absent, "not-an-id"],
        vec!["patch", "show", "--state", absent],
        vec!["runs", "cleanup", "--state", absent],
        vec!["grants", "list", "--state", absent, "not-an-id"],
        vec!["grants", "revoke", "--state", absent, "not-an-id", "not-an-id"],
        vec!["connect", "--state", absent, "--key", absent, "prompt"],
        vec!["key", "new", "--subject", "", "--out", absent],
        vec!["audit", "query", "--state", absent],
        vec!["audit", "verify"],
        vec!["audit", "verify", "--state", absent, "--head", "x"],
        vec!["manifest", "validate"],
        vec!["manifest", "validate", absent],
        vec!["manifest", "validate", "."],
        vec!["manifest", "test", "."],
        vec![
            "token",
            "create",
            "--tokens-file",
            "t",
            "--tenant",
            "a",
            "--subject",
            "b",
            "--role",
            "king",
            "--expires",
            "1d",
        ],
        vec![
            "token",
            "create",
            "--tokens-file",
            "t",
            "--tenant",
            "a",
            "--subject",
            "b",
            "--role",
            "viewer",
            "--expires",
            "1",
        ],
        vec!["pki", "init", "--dir", "p", "--trust-domain", "*"],
        vec!["pki", "issue", "--dir", absent, "--out", "o", "auditor", "ada"],
        vec!["pki", "issue", "--dir", absent, "--out", "o", "svc", "king-svc"],
    ] {
        let (code, said) = failure(&args);
        assert_eq!(code, 2, "{args:?}: {said}");
    }
}

#[test]
fn addresses_that_leak_or_lead_astray_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "opaque").unwrap();
    for url in [
        "ws://10.0.0.1:80",
        "wss://me:pw@127.0.0.1:1",
        "wss://127.0.0.1:1/?token=pw",
        "http://127.0.0.1:1",
    ] {
        let args = [
            "connect",
            "--gateway",
            url,
            "--token-file",
            text(&token),
            "--workspace",
            "w",
            "hello",
        ];
        let (code, said) = failure(&args);
        assert_eq!(code, 2, "{said}");
        assert!(!said.contains("pw"), "{said}");
    }
}

#[test]
fn unreachable_and_foreign_peers_are_failures() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "opaque").unwrap();
    let run = |url: &str| {
        failure(&[
            "run",
            "--gateway",
            url,
            "--token-file",
            text(&token),
            "--workspace",
            "w",
            "hello",
        ])
    };
    let (code, said) = run("ws://127.0.0.1:1");
    assert_eq!(code, 1);
    assert!(said.contains("harness up"), "{said}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-Other\r\n\r\n").unwrap();
        let mut rest = String::new();
        drop(BufReader::new(stream).read_line(&mut rest));
    });
    assert_eq!(run(&url).0, 1);
    other.join().unwrap();
}

#[test]
fn an_authority_issues_private_files_and_overwrites_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (dir, out) = (home.path().join("pki"), home.path().join("ada"));
    let init = ["pki", "init", "--dir", text(&dir), "--trust-domain", "harness.example"];
    assert!(harness(&init).status.success());
    assert_eq!(failure(&init).0, 2);
    let issue = ["pki", "issue", "--dir", text(&dir), "--out", text(&out), "auditor", "ada"];
    assert!(harness(&issue).status.success());
    let before = fs::read(out.join("tls.key")).unwrap();
    assert_eq!(failure(&issue).0, 2);
    assert_eq!(fs::read(out.join("tls.key")).unwrap(), before);
    assert_eq!((mode(&out), mode(&out.join("tls.key")), mode(&dir)), (0o700, 0o600, 0o700));
    let place = home.path().join("x");
    let odd = ["pki", "issue", "--dir", text(&dir), "--out", text(&place), "auditor", "a/b"];
    assert_eq!(failure(&odd).0, 2);
    let long = [
        "pki",
        "issue",
        "--days",
        "400",
        "--dir",
        text(&dir),
        "--out",
        text(&place),
        "auditor",
        "a",
    ];
    assert_eq!(failure(&long).0, 2);
    assert!(!place.exists());
}

#[test]
fn a_token_is_printed_once_and_kept_by_digest() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tokens.toml");
    let create = |expires: &'static str| {
        vec![
            "token",
            "create",
            "--tenant",
            "local",
            "--subject",
            "ada",
            "--role",
            "operator",
            "--expires",
            expires,
        ]
    };
    let with_file = |mut args: Vec<&'static str>, path: &'static str| {
        args.extend(["--tokens-file", path]);
        args
    };
    let path: &'static str = text(&file).to_owned().leak();
    let minted = harness(&with_file(create("90d"), path));
    assert!(minted.status.success());
    let token = String::from_utf8(minted.stdout).unwrap();
    assert!(token.starts_with("hns_") && token.ends_with('\n'));
    assert!(!fs::read_to_string(&file).unwrap().contains(token.trim()));
    assert_eq!(mode(&file), 0o600);
    assert_eq!(failure(&with_file(create("366d"), path)).0, 2);
    assert_eq!(failure(&with_file(create("0s"), path)).0, 2);
}

#[test]
fn the_examples_of_the_offline_commands_work_as_they_are_written() {
    let home = tempfile::tempdir().unwrap();
    let good = "id: task\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [\"src/**\"]\npermissions: {}\n";
    fs::create_dir_all(home.path().join("tasks")).unwrap();
    fs::create_dir_all(home.path().join("mesh/gateway")).unwrap();
    fs::write(home.path().join("task.yaml"), good).unwrap();
    fs::write(home.path().join("tasks/task.yaml"), good).unwrap();
    let path = format!("{}:/usr/bin:/bin", text(Path::new(HARNESS).parent().unwrap()));
    let mut ran = 0;
    for command in ["pki", "token", "key", "manifest"] {
        let help = String::from_utf8(harness(&[command, "--help"]).stdout).unwrap();
        for line in help.lines().filter_map(|line| line.strip_prefix("  harness ")) {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", &format!("harness {line}")])
                .current_dir(home.path())
                .env("PATH", &path);
            let done = shell.output().unwrap();
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
            ran += 1;
        }
    }
    assert!(ran >= 16, "only {ran} examples");
}

#[test]
fn every_fault_of_a_manifest_is_told_with_its_place() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("task.yaml");
    fs::write(&file, "id: Wrong Id\ntitle: t\nfrob: 1\n").unwrap();
    let Output { status, stdout, stderr } = harness(&["manifest", "validate", text(&file)]);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(2), 0));
    assert!(said.lines().count() >= 3, "{said}");
    assert!(said.lines().next().unwrap().starts_with(&format!("{}:1:", text(&file))), "{said}");
    assert!(said.lines().last().unwrap().starts_with("harness: "), "{said}");

    let json = harness(&["manifest", "validate", "--json", text(&file)]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (document["schemaVersion"].as_u64(), document["kind"].as_str()),
        (Some(1), Some("manifest-validation"))
    );
    assert_eq!(document["ok"].as_bool(), Some(false));
}

#[test]
fn an_absent_engine_blocks_and_is_named() {
    let Output { status, stdout, stderr } =
        harness(&["doctor", "--engine-socket", "/nowhere.sock", "--json"]);
    assert_eq!(status.code(), Some(3));
    let document: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(
        (document["kind"].as_str(), document["ok"].as_bool()),
        (Some("doctor"), Some(false))
    );
    let engine = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "engine")
        .unwrap();
    assert_eq!(engine["status"], "fail");
    assert!(engine["found"].as_str().unwrap().contains("/nowhere.sock"));
    assert!(String::from_utf8(stderr).unwrap().starts_with("harness: "));
}

/// A service that is asked about its settings is content.
const CHECK: &str = r#"case " $* " in *" --check-config "*) exit 0;; esac"#;

/// By a process of its own: what this one writes, a child of another test would hold open for a moment, and what is open
/// for writing can not be run.
fn install(from: &Path, to: &Path) {
    let done = Command::new("install").args(["-m", "755", text(from), text(to)]).status();
    assert!(done.unwrap().success());
}

/// The program with five services beside it that do what `script` says.
fn installed(home: &Path, script: &str) -> PathBuf {
    fs::set_permissions(home, fs::Permissions::from_mode(0o711)).unwrap();
    let dir = home.join("bin");
    fs::create_dir(&dir).unwrap();
    let program = dir.join("harness");
    install(Path::new(HARNESS), &program);
    let service = home.join("service");
    fs::write(&service, format!("#!/bin/sh\n{CHECK}\n{script}\n")).unwrap();
    for name in ["gateway", "agent-svc", "sandbox-svc", "model-svc", "audit-svc", "harness-egress"]
    {
        install(&service, &dir.join(name));
    }
    fs::create_dir(home.join("work")).unwrap();
    fs::write(home.join("turns.yaml"), "script: []\n").unwrap();
    fs::write(home.join("engine"), "").unwrap();
    program
}

fn up(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    let workspace = format!("demo={}", text(&home.join("work")));
    command.args([
        "up",
        "--state",
        text(&home.join("state")),
        "--script",
        text(&home.join("turns.yaml")),
    ]);
    command.args(["--workspace", &workspace, "--engine-socket", text(&home.join("engine"))]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn up_without_its_services_says_which_is_missing_and_makes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let program = installed(home.path(), "exit 0");
    fs::remove_file(home.path().join("bin/model-svc")).unwrap();
    let Output { status, stdout, stderr } = up(&program, home.path()).output().unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(1), 0));
    assert!(String::from_utf8(stderr).unwrap().contains("model-svc is not beside this program"));
    assert!(!home.path().join("state").exists());
}

#[test]
fn up_ends_with_the_words_of_the_service_that_ended() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"case $0 in */audit-svc) echo "harness-audit-svc: no room; make some" >&2; exit 2;; esac; exec sleep 600"#;
    let program = installed(home.path(), script);
    let Output { status, stdout, stderr } = up(&program, home.path()).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(1), 0), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("harness: audit-svc ended with exit code 2"), "{said}");
    assert!(last.contains("no room; make some"), "{said}");
}

/// Starts `up` whose services never become ready, and waits until all five run.
fn waiting(home: &Path) -> (Child, Vec<u32>) {
    waiting_for(home, "exec sleep 600")
}

fn waiting_for(home: &Path, script: &str) -> (Child, Vec<u32>) {
    let program = installed(home, script);
    let child = up(&program, home).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let mut pids = Vec::new();
    while pids.len() < 5 || pids.iter().any(|pid| comm(*pid) != "sleep") {
        assert!(Instant::now() < until, "the services did not start");
        std::thread::yield_now();
        let text = fs::read_to_string(home.join("state/pids")).unwrap_or_default();
        pids = text.lines().map(|line| line.parse().unwrap()).collect();
    }
    (child, pids)
}

fn end(child: &Child) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Gone, or dead and not yet reaped by whoever inherited it.
fn is_over(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')) || comm(pid) != "sleep"
}

fn all_over(pids: &[u32]) {
    let until = Instant::now() + Duration::from_secs(30);
    while !pids.iter().all(|pid| is_over(*pid)) {
        assert!(Instant::now() < until, "services outlive 'up'");
        std::thread::yield_now();
    }
}

#[test]
fn services_do_not_outlive_up_even_when_it_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let (mut child, pids) = waiting(home.path());
    child.kill().unwrap();
    child.wait().unwrap();
    all_over(&pids);
}

#[test]
fn a_signal_ends_all_of_it_and_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    let (child, pids) = waiting(home.path());
    end(&child);
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(0), 0));
    all_over(&pids);
}

#[test]
fn held_runs_are_told_of_at_the_end_and_ended_only_while_nothing_runs() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"case " $* " in *" --purge "*) echo "ended $*"; exit 0;; esac; exec sleep 600"#;
    let (mut child, pids) = waiting_for(home.path(), script);
    let state = home.path().join("state");
    fs::create_dir_all(state.join("sandbox-svc/state/environments/1")).unwrap();
    let cleanup = || {
        let program = home.path().join("bin/harness");
        Command::new(program).args(["runs", "cleanup", "--state", text(&state)]).output().unwrap()
    };
    let refused = cleanup();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("used by another 'harness up'"), "{said}");

    let mut errors = child.stderr.take().unwrap();
    end(&child);
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    all_over(&pids);
    let last = said.lines().last().unwrap();
    let command = format!("'harness runs cleanup --state {}'", text(&state));
    assert!(last.starts_with("1 run is held") && last.contains(&command), "{said}");

    let done = cleanup();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(
        String::from_utf8(done.stdout).unwrap(),
        format!(
            "ended --purge --state-dir {} --engine-socket {}\n",
            text(&state.join("sandbox-svc/state")),
            text(&home.path().join("engine"))
        )
    );
}

#[test]
fn one_state_directory_serves_one_mesh() {
    let home = tempfile::tempdir().unwrap();
    let (mut child, _) = waiting(home.path());
    let second = up(&home.path().join("bin/harness"), home.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8(second.stderr).unwrap().contains("used by another 'harness up'"));
    child.kill().unwrap();
    child.wait().unwrap();
}
