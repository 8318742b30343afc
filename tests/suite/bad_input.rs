//! What a person gets who asks wrongly: one clear line that says what to do, an exit code that is not zero, and
//! nothing half done.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::Result;
use e2e::{Rig, Spec, Turn, manifest};
use transport::Service;

fn harness(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(e2e::programs()?.join("harness")).args(arguments).output()?)
}

/// One line, the right code, and the words that help.
fn refuses(output: &Output, code: i32, words: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    for word in words {
        assert!(told.contains(word), "no {word:?} in {told:?}");
    }
    assert!(!told.contains("panicked"), "{told}");
    assert_eq!(output.stdout, b"", "nothing on stdout");
}

fn one_line(output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.trim_end().lines().count(), 1, "{told}");
}

#[test]
fn an_unknown_flag_is_a_usage_error() -> Result<()> {
    let output = harness(&["run", "--flagg", "x"])?;
    refuses(&output, 2, &["--flagg"]);
    for service in Service::ALL {
        let output =
            Command::new(e2e::programs()?.join(service.as_str())).arg("--flagg").output()?;
        refuses(&output, 2, &["--flagg"]);
    }
    Ok(())
}

#[test]
fn a_missing_file_is_named() -> Result<()> {
    let output = harness(&["manifest", "validate", "/nowhere/task.yaml"])?;
    refuses(&output, 2, &["/nowhere/task.yaml"]);
    one_line(&output);
    for service in Service::ALL {
        let config = ["--config", "/nowhere/config.toml", "--check-config"];
        let output = Command::new(e2e::programs()?.join(service.as_str())).args(config).output()?;
        refuses(&output, 2, &["/nowhere/config.toml"]);
    }
    Ok(())
}

#[test]
fn an_invalid_manifest_is_told_with_its_place_and_nothing_is_started() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("task.yaml");
    std::fs::write(&path, "id: task\ntitle: T\nunknown: 1\n")?;
    let file = path.display().to_string();
    let output = harness(&["manifest", "validate", &file])?;
    refuses(&output, 2, &["task.yaml:3", "unknown"]);

    let state = dir.path().join("state");
    let output = harness(&["up", "--state", &state.display().to_string(), "--manifest", &file])?;
    refuses(&output, 2, &["task.yaml"]);
    assert!(!state.join("gateway").exists(), "nothing half done");
    Ok(())
}

#[test]
fn an_absent_engine_is_told_before_anything_starts() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state").display().to_string();
    let output = harness(&["doctor", "--engine-socket", "/nowhere/engine.sock"])?;
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let script = dir.path().join("turns.yaml");
    std::fs::write(&script, e2e::script(&[Turn::Say("nothing")]))?;
    let repository = dir.path().join("repository");
    std::fs::create_dir(&repository)?;
    let workspace = format!("demo={}", repository.display());
    let script = script.display().to_string();
    let around = format!("demo={}", dir.path().display());
    let output = harness(&["up", "--state", &state, "--script", &script, "--workspace", &around])?;
    refuses(&output, 2, &["demo", "one within the other"]);
    one_line(&output);
    let output = harness(&[
        "up",
        "--state",
        &state,
        "--script",
        &script,
        "--workspace",
        &workspace,
        "--engine-socket",
        "/nowhere/engine.sock",
    ])?;
    assert_ne!(output.status.code(), Some(0));
    refuses(&output, output.status.code().unwrap_or_default(), &["/nowhere/engine.sock"]);
    assert!(!Path::new(&state).join("gateway").exists(), "nothing half done");
    Ok(())
}

#[test]
fn an_unreachable_gateway_is_told() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(path.display().to_string())
    };
    let pki = dir.path().join("pki").display().to_string();
    assert!(
        harness(&["pki", "init", "--dir", &pki, "--trust-domain", "elsewhere.test"])?
            .status
            .success()
    );
    let ca = format!("{pki}/services/ca.crt");
    let bearer = file("bearer", &format!("{}\n", acp::token::Token::mint(&[7; 38]).reveal()))?;
    let ask = [
        "run",
        "--gateway",
        "wss://127.0.0.1:9",
        "--ca",
        &ca,
        "--token-file",
        &bearer,
        "--workspace",
        "demo",
        "hello",
    ];
    let output = harness(&ask)?;
    refuses(&output, 1, &["gateway"]);
    one_line(&output);
    let plain = [
        "run",
        "--gateway",
        "ws://192.0.2.1:80",
        "--ca",
        &ca,
        "--token-file",
        &bearer,
        "--workspace",
        "demo",
        "hello",
    ];
    refuses(&harness(&plain)?, 2, &["wss://"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_under_another_authority_is_not_trusted_and_a_wrong_token_is_told() -> Result<()>
{
    let rig = Rig::start(Spec::new(manifest("strangers"), vec![Turn::Say("nothing")])).await?;
    let dir = tempfile::tempdir()?;
    let pki = dir.path().join("pki").display().to_string();
    assert!(
        harness(&["pki", "init", "--dir", &pki, "--trust-domain", "elsewhere.test"])?
            .status
            .success()
    );
    let bearer = dir.path().join("bearer");
    std::fs::write(&bearer, acp::token::Token::mint(&[7; 38]).reveal())?;
    std::fs::set_permissions(&bearer, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let bearer = bearer.display().to_string();
    let right = rig.ready.ca.display().to_string();
    let wrong = format!("{pki}/services/ca.crt");
    let ask = |ca: &str| {
        harness(&[
            "run",
            "--gateway",
            &rig.ready.gateway,
            "--ca",
            ca,
            "--token-file",
            &bearer,
            "--workspace",
            "demo",
            "hello",
        ])
    };
    let output = ask(&wrong)?;
    refuses(&output, 1, &["trusted"]);
    one_line(&output);
    let output = ask(&right)?;
    refuses(&output, 1, &["token"]);
    one_line(&output);
    Ok(())
}
