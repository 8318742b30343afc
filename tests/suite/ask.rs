//! One governed run from a person's prompt to an imported patch: what the person sees, what runs, and that the ledger
//! holds the same bytes.

use acp::Decision;
use anyhow::{Context as _, Result};
use e2e::{Books, Engine, Line, Person, Rig, Spec, Turn, manifest, within};
use serde_json::{Value, json};

const SCRIPT: &str = "ls -A; cat .env; nc -w 1 10.0.0.1 80; echo repaired > app.txt; echo done";

fn turns() -> Vec<Turn> {
    vec![
        Turn::Call("process.exec", json!({"argv": ["sh", "-c", SCRIPT]})),
        Turn::Call("import_patch", json!({})),
        Turn::Say("The file is repaired."),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_asks_twice_changes_one_file_and_the_ledger_holds_every_byte() -> Result<()> {
    let rig = Rig::start(Spec::new(manifest("repair"), turns())).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("repair", None).await?;
    let prompt = person.prompt(session)?;

    let command = person.next_ask().await?;
    assert_eq!(command.plan["argv"], json!(["sh", "-c", SCRIPT]));
    assert_eq!(command.plan["network"], json!({"mode": "none"}));
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"broken\n");
    person.answer(&command, Decision::Allow).await?;

    let patch = person.next_ask().await?;
    assert_eq!(patch.plan["action"], "patch.import");
    assert_eq!(patch.plan["scopes"], json!(["once"]));
    assert_eq!(
        std::fs::read(rig.workspace.join("app.txt"))?,
        b"broken\n",
        "nothing changes before the import"
    );
    let shown = person.patch(&patch).await?;
    assert_eq!(json!(shown.digest), patch.plan["patch"]["digest"]);
    assert!(shown.complete && shown.text.contains("\n-broken\n+repaired\n"), "{shown:?}");
    let (list, _) = shown.text.split_once("\n\n").unwrap_or_default();
    let line: Value = serde_json::from_str(list)?;
    assert_eq!((&line["op"], &line["path"]), (&json!("update"), &json!("app.txt")));
    person.answer(&patch, Decision::Allow).await?;

    person.next_of("agent.stopped").await?;
    let answer = within("the prompt's answer", prompt).await??;
    assert_eq!(answer.status, acp::PromptStatus::Completed);
    assert_eq!(answer.final_text.as_str(), "The file is repaired.");
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"repaired\n");
    assert_eq!(std::fs::read(rig.workspace.join("src/lib.txt"))?, b"one\n");

    let seen = &person.seen[&session];
    let order: Vec<&str> = seen
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|kind| !["call.output", "message.delta"].contains(kind))
        .collect();
    assert_eq!(order, EXPECTED);
    let sequence: Vec<u64> = seen.iter().map(|event| event.seq).collect();
    assert_eq!(sequence, (0..sequence.len() as u64).collect::<Vec<_>>(), "no gap, from zero");

    let printed: String = outputs(seen.iter().map(|event| (event.kind.as_str(), &event.data)));
    assert!(printed.contains("done") && !printed.contains("planted-value"), "{printed}");
    assert!(!printed.contains(".env\n"), "the copy has no .env: {printed}");
    let lacks = seen.iter().find(|event| event.kind == "task.updated").map(|event| &event.data);
    let lacks = lacks.and_then(|data| data["note"].as_str()).unwrap_or_default();
    assert!(lacks.contains(r#""path":".env""#), "and that is said: {lacks}");

    let books = Books::open(&rig)?;
    let recorded = books.stream("agent-svc", session).await?;
    let recorded: Vec<&[u8]> = recorded.iter().map(|line| line.bytes.as_slice()).collect();
    let shown: Vec<&[u8]> = seen.iter().map(|event| event.bytes.as_slice()).collect();
    assert_eq!(recorded, shown, "the ledger holds what the client saw, byte for byte");

    every_effect_has_its_receipt(&books, session).await?;
    assert_eq!(Engine::containers(&format!("harness.session={session}"))?, Vec::<String>::new());
    Ok(())
}

const EXPECTED: [&str; 23] = [
    "session.created",
    "agent.started",
    "task.updated",
    "model.request",
    "model.response",
    "tool.call",
    "policy.decision",
    "permission.requested",
    "permission.resolved",
    "sandbox.started",
    "sandbox.stopped",
    "tool.result",
    "model.request",
    "model.response",
    "tool.call",
    "policy.decision",
    "policy.decision",
    "permission.requested",
    "permission.resolved",
    "tool.result",
    "model.request",
    "model.response",
    "agent.stopped",
];

async fn every_effect_has_its_receipt(books: &Books, session: event::id::SessionId) -> Result<()> {
    let receipts: Vec<Line> = only(books.stream("gateway", session).await?, "receipt.signed");
    let effects = books.stream("sandbox-svc", session).await?;
    let kinds: Vec<&str> = effects.iter().map(|line| line.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "call.started",
            "sandbox.started",
            "sandbox.stopped",
            "call.finished",
            "call.started",
            "call.finished"
        ]
    );
    let bound = |lines: &[Line]| -> Vec<Value> {
        lines
            .iter()
            .map(|line| {
                json!([line.data["callId"], line.data["planDigest"], line.data["permissionId"]])
            })
            .collect()
    };
    assert_eq!(bound(&receipts), bound(&only(effects.clone(), "call.started")));

    let repeated = books.stream("agent-svc", session).await?;
    for kind in ["sandbox.started", "sandbox.stopped"] {
        let own: Vec<Value> =
            only(effects.clone(), kind).into_iter().map(|line| line.data).collect();
        let told: Vec<Value> =
            only(repeated.clone(), kind).into_iter().map(|line| line.data).collect();
        assert_eq!(own, told, "{kind}");
    }
    Ok(())
}

fn only(lines: Vec<Line>, kind: &str) -> Vec<Line> {
    lines.into_iter().filter(|line| line.kind == kind).collect()
}

fn outputs<'a>(events: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    events
        .filter(|(kind, _)| *kind == "call.output")
        .filter_map(|(_, data)| data["text"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_verifies_with_the_auditors_command() -> Result<()> {
    let rig = Rig::start(Spec::new(manifest("quiet"), vec![Turn::Say("nothing to do")])).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("quiet", None).await?;
    within("the prompt's answer", person.prompt(session)?).await??;
    let verified = std::process::Command::new(e2e::programs()?.join("harness"))
        .args(["audit", "verify", "--json", "--state"])
        .arg(rig.mesh.layout().root())
        .output()?;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let document: Value = serde_json::from_slice(&verified.stdout).context("a JSON document")?;
    assert_eq!(document["schemaVersion"], 1);
    Ok(())
}
