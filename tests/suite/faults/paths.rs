//! What a patch may bring: what runs on its own later is asked for whatever the rules allow, and nothing of git arrives; a
//! task that declares too much is none.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use acp::Decision;
use anyhow::{Context as _, Result};
use e2e::{Engine, Person, Rig, Spec, Turn, manifest};
use serde_json::{Value, json};

use super::{EXEC, argv, ended, of_kind, result};

const PROTECTED: [&str; 7] = [
    ".gitattributes",
    ".github",
    ".github/workflows",
    ".github/workflows/x.yml",
    ".vscode",
    ".vscode/tasks.json",
    "AGENTS.md",
];

/// Each is made with its folder; look-alikes are what a host that folds names would take for `.git`.
const MADE: [&str; 15] = [
    ".github/workflows/x.yml",
    ".vscode/tasks.json",
    ".envrc",
    "AGENTS.md",
    ".gitattributes",
    ".git/hooks/pre-commit",
    ".git/config",
    ".GIT/config",
    ".git./x",
    ".git /x",
    "git~1/x",
    ".g\u{200c}it/config",
    "sub/.git/config",
    "app.txt",
    "docs/guide.md",
];

fn script() -> String {
    let make = |path: &str| format!("mkdir -p \"$(dirname '{path}')\"; echo planted > '{path}'");
    MADE.map(make).join("; ")
}

/// Every file below, with its bytes.
fn content(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root)?.to_str().context("a name of text")?.to_owned();
                found.insert(name, std::fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_later_is_asked_for_and_git_never_arrives() -> Result<()> {
    let import = || Turn::Call("import_patch", json!({}));
    let command = script();
    let turns = vec![
        Turn::Call(EXEC, argv(&["sh", "-c", &command])),
        import(),
        import(),
        Turn::Say("understood"),
    ];
    let rules = manifest("planting").rule("patch.import", json!("allow"));
    let mut spec = Spec::new(rules, turns);
    spec.files.push((".git/config", b"[core]\n"));
    let rig = Rig::start(spec).await?;
    let before = content(&rig.workspace)?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("planting", None).await?;
    person.prompt(session)?;
    let first = person.next_ask().await?;
    person.answer(&first, Decision::Allow).await?;
    assert_eq!(result(&mut person).await?, "ok");

    let ask = person.next_ask().await?;
    assert_eq!(ask.plan["action"], "patch.import");
    assert_eq!(ask.plan["scopes"], json!(["once"]), "no allow for the run covers it");
    assert_eq!(ask.plan["patch"]["protected"], json!(PROTECTED));
    let parts = ask.plan["parts"].as_array().context("parts")?;
    let asking: Vec<&Value> = parts.iter().filter(|part| part["effect"] == "ask").collect();
    let wanted = PROTECTED.map(|path| json!([path, "system", "protected_paths"]));
    let found = asking.iter().map(|part| json!([part["subject"], part["layer"], part["rule"]]));
    assert_eq!(found.collect::<Vec<_>>(), wanted, "and what else is in it is allowed");
    let stays: BTreeMap<&str, &str> = ask.plan["patch"]["not_carried"]["entries"]
        .as_array()
        .with_context(|| ask.plan["patch"].to_string())?
        .iter()
        .filter_map(|entry| Some((entry["path"].as_str()?, entry["reason"].as_str()?)))
        .collect();
    let git = [".git", ".GIT", ".git.", ".git ", "git~1", ".g\u{200c}it", "sub/.git"];
    let mut wanted: BTreeMap<&str, &str> = git.map(|path| (path, "git_metadata")).into();
    wanted.insert(".envrc", "secret_name");
    assert_eq!(stays, wanted);

    person.answer(&ask, Decision::Deny).await?;
    assert_eq!(result(&mut person).await?, "PERMISSION_DENIED");
    assert_eq!(content(&rig.workspace)?, before);
    let again = person.next_ask().await?;
    person.answer(&again, Decision::Allow).await?;
    assert_eq!(result(&mut person).await?, "ok");
    let mut after = before;
    for path in [
        ".gitattributes",
        ".github/workflows/x.yml",
        ".vscode/tasks.json",
        "AGENTS.md",
        "app.txt",
        "docs/guide.md",
    ] {
        after.insert(path.to_owned(), b"planted\n".to_vec());
    }
    assert_eq!(content(&rig.workspace)?, after, "this, and nothing of git");
    let effects = ended(&rig, session, "sandbox-svc").await?;
    assert_eq!(of_kind(&effects, "call.started").len(), 2);
    Ok(())
}

#[test]
fn a_task_that_declares_too_much_is_no_task() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("wide.yaml");
    let judged = |text: &str| -> Result<(Option<i32>, String)> {
        std::fs::write(&path, text)?;
        let mut command = Command::new(e2e::programs()?.join("harness"));
        let output = command.args(["manifest", "validate"]).arg(&path).output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let task = |entry: &str, mode: &str| -> Result<String> {
        let mut wide = manifest("wide");
        wide.allowed_paths = vec![entry.to_owned()];
        let text = wide.text(&Engine::image()?);
        Ok(text.replace("\"snapshot\"", &format!("\"{mode}\"")))
    };
    for (entry, mode) in [
        ("/", "snapshot"),
        ("/etc/**", "snapshot"),
        ("../x/**", "snapshot"),
        ("src/../../x/**", "snapshot"),
        ("**", "mount"),
        ("src/**,ro", "snapshot"),
        ("a\\nb", "snapshot"),
        ("a\nb", "snapshot"),
        ("", "snapshot"),
    ] {
        let (code, told) = judged(&task(entry, mode)?)?;
        assert_eq!(code, Some(2), "{entry:?} {mode}: {told}");
        assert!(told.contains("wide.yaml:1:") && told.contains("allowed_paths"), "{told}");
    }
    assert_eq!(judged(&task("src/**", "snapshot")?)?, (Some(0), String::new()));
    Ok(())
}
