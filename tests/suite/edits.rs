//! A run that needs no program: it searches, proposes, edits its private copy, and imports, through five processes.
//! What a person is shown is what is written.

use acp::Decision;
use anyhow::{Context as _, Result};
use e2e::{Books, Person, Rig, Spec, Turn, manifest, within};
use event::Digest;
use serde_json::{Value, json};

fn turns() -> Vec<Turn> {
    let changes = json!([
        {
            "path": "app.txt",
            "expectedDigest": Digest::of(b"broken\n").to_string(),
            "edits": [{ "find": "broken", "replace": "repaired" }],
        },
        { "path": "docs/why.md", "expectedDigest": null, "content": "It was broken.\n" },
    ]);
    vec![
        Turn::Call("search_files", json!({ "query": "BROKEN" })),
        Turn::Call("propose_edits", json!({ "changes": changes })),
        Turn::Call("apply_edits", json!({ "changes": changes })),
        Turn::Call("inspect_patch", json!({})),
        Turn::Call("import_patch", json!({})),
        Turn::Say("Repaired, and written down."),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_edits_without_a_command_and_each_write_was_shown() -> Result<()> {
    let manifest = manifest("edits").rule("fs.write", json!("ask"));
    let rig = Rig::start(Spec::new(manifest, turns())).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("edits", None).await?;
    let prompt = person.prompt(session)?;

    let edit = person.next_ask().await?;
    assert_eq!(
        (&edit.plan["tool"], &edit.plan["scopes"]),
        (&json!("apply_edits"), &json!(["once"]))
    );
    let diff = edit.plan["edit"]["diff"]["text"].as_str().context("a diff")?;
    assert!(
        diff.contains("\n-broken\n+repaired\n") && diff.contains("\n+It was broken.\n"),
        "{diff}"
    );
    let entry = &edit.plan["edit"]["entries"][0];
    assert_eq!(entry["after"]["sha256"], json!(Digest::of(b"repaired\n").to_string()));
    person.answer(&edit, Decision::Allow).await?;

    let import = person.next_ask().await?;
    assert_eq!(import.plan["action"], "patch.import");
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"broken\n");
    person.answer(&import, Decision::Allow).await?;
    person.next_of("agent.stopped").await?;
    let answer = within("the prompt's answer", prompt).await??;
    assert_eq!(answer.status, acp::PromptStatus::Completed);
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"repaired\n");
    assert_eq!(std::fs::read(rig.workspace.join("docs/why.md"))?, b"It was broken.\n");

    let seen = &person.seen[&session];
    let results: Vec<&Value> =
        seen.iter().filter(|event| event.kind == "tool.result").map(|event| &event.data).collect();
    let told: Vec<(&Value, &Value)> =
        results.iter().map(|result| (&result["tool"], &result["output"]["kind"])).collect();
    assert_eq!(
        told[..3],
        [
            (&json!("search_files"), &json!("search-result")),
            (&json!("propose_edits"), &json!("edit-proposal")),
            (&json!("apply_edits"), &json!("patch-result")),
        ]
    );
    let (proposed, applied) = (&results[1]["output"], &results[2]["output"]);
    assert_eq!(results[0]["output"]["matches"][0]["path"], json!("app.txt"));
    assert_eq!(proposed["proposalId"], applied["proposalId"]);
    assert_eq!(edit.plan["edit"]["digest"], proposed["proposalId"]);

    // An edit is an effect: it is in the executor's own stream before it happens.
    let effects = Books::open(&rig)?.stream("sandbox-svc", session).await?;
    let effects: Vec<(&str, Value)> =
        effects.iter().map(|line| (line.kind.as_str(), line.data["effectClass"].clone())).collect();
    assert_eq!(
        effects,
        [
            ("call.started", json!("staged")),
            ("call.finished", Value::Null),
            ("call.started", json!("idempotent")),
            ("call.finished", Value::Null),
        ]
    );
    Ok(())
}
