//! A tool server of a task, through five processes: what it says of its tool is shown to the person who is asked, and
//! decides nothing; what it writes is in the patch like anybody's.

use acp::Decision;
use anyhow::{Context as _, Result, ensure};
use e2e::{Books, Engine, Manifest, Person, Rig, Spec, Turn, manifest, until, within};
use event::id::SessionId;
use serde_json::{Value, json};
use transport::Service;

const SERVER: &[u8] = include_bytes!("servers.py");

fn read_notes() -> Turn {
    Turn::Call("mcp_call", json!({"server": "notes", "tool": "read_notes"}))
}

fn task(rules: Value) -> Result<Manifest> {
    let server = json!({"command": ["python3", "notes.py"], "tools": ["read_notes"]});
    Ok(Manifest {
        image: Some(Engine::python_image()?),
        allow_commands: vec!["python3".to_owned()],
        servers: json!({ "notes": server }),
        ..manifest("servers").rule("mcp.call", rules)
    })
}

async fn rig(rules: Value, turns: Vec<Turn>) -> Result<Rig> {
    let mut spec = Spec::new(task(rules)?, turns);
    spec.files.push(("notes.py", SERVER));
    Rig::start(spec).await
}

/// What the model was told of each call of `mcp_call`.
async fn told(rig: &Rig, session: SessionId) -> Result<Vec<Value>> {
    let lines = Books::open(rig)?.stream("agent-svc", session).await?;
    let of = lines.iter().filter(|line| line.kind == "tool.result");
    Ok(of.filter(|line| line.data["tool"] == "mcp_call").map(|line| line.data.clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_word_for_its_tool_is_shown_and_decides_nothing() -> Result<()> {
    let start = Turn::Call("mcp_tools", json!({"server": "notes"}));
    let vouched = json!({"server": "notes", "tool": "read_notes", "risk": "low"});
    let turns = vec![
        start,
        Turn::Call("mcp_call", vouched),
        read_notes(),
        read_notes(),
        read_notes(),
        Turn::Call("import_patch", json!({})),
        Turn::Say("I have read them."),
    ];
    let mut rig = rig(json!("ask"), turns).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("servers", None).await?;
    let prompt = person.prompt(session)?;

    let start = person.next_ask().await?;
    assert_eq!(
        (&start.plan["action"], &start.plan["argv"]),
        (&json!("process.exec"), &json!(["python3", "notes.py"]))
    );
    person.answer(&start, Decision::Allow).await?;

    // What a model adds for itself is no argument; the first that is asked about has none of it.
    let first = person.next_ask().await?;
    assert_eq!(
        (&first.plan["action"], &first.plan["subject"]),
        (&json!("mcp.call"), &json!("notes/read_notes"))
    );
    let shown = &first.plan["mcp"]["call"];
    assert_eq!(shown["hints"], json!({"readOnlyHint": true}));
    assert_eq!(shown["description"], "Reads notes.");
    person.allow_for_the_run(&first).await?;

    // The second is granted as what it was, and by then it is something else; the third is asked about anew.
    let third = person.next_ask().await?;
    let changed = &third.plan["mcp"]["call"];
    assert_eq!(changed["description"], "Reads notes and sends them away.");
    assert_ne!(changed["definition"], shown["definition"]);
    person.answer(&third, Decision::Deny).await?;

    let import = person.next_ask().await?;
    assert_eq!(import.plan["action"], "patch.import");
    let patch = import.plan["patch"]["entries"].as_array().context("entries")?;
    let paths: Vec<_> = patch.iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["notes.log"]);
    person.answer(&import, Decision::Allow).await?;
    person.next_of("agent.stopped").await?;
    within("the prompt's answer", prompt).await??;
    let written = std::fs::read_to_string(rig.workspace.join("notes.log"))?;
    assert_eq!(written, "written while reading\n");

    let told = told(&rig, session).await?;
    let reasons: Vec<_> = told.iter().map(|result| result["error"]["code"].as_str()).collect();
    assert_eq!(
        reasons,
        [Some("ARGUMENTS_INVALID"), None, Some("MCP_TOOL_CHANGED"), Some("PERMISSION_DENIED")],
        "{told:?}"
    );
    assert_eq!(told[1]["output"]["content"][0]["text"], "nothing but notes");
    rig.mesh.stop().await?;
    let label = "harness.session=".to_owned() + &session.to_string();
    ensure!(Engine::containers(&label)?.is_empty(), "a container is left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_denies_a_tool_whatever_its_server_says() -> Result<()> {
    let turns = vec![
        Turn::Call("mcp_tools", json!({"server": "notes"})),
        read_notes(),
        Turn::Say("It is denied."),
    ];
    let rig = rig(json!({"notes/read*": "deny", "*": "allow"}), turns).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("servers", None).await?;
    let prompt = person.prompt(session)?;
    let start = person.next_ask().await?;
    person.answer(&start, Decision::Allow).await?;
    person.next_of("agent.stopped").await?;
    within("the prompt's answer", prompt).await??;
    let told = told(&rig, session).await?;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["error"]["code"], "PERMISSION_DENIED", "{told:?}");
    let lines = Books::open(&rig)?.stream("sandbox-svc", session).await?;
    let begun: Vec<_> = lines.iter().filter(|line| line.kind == "call.started").collect();
    assert_eq!(begun.len(), 1, "only the start");
    Ok(())
}

/// Whether a file of that name is in a private copy.
fn written(rig: &Rig, name: &str) -> Option<()> {
    let runs = std::fs::read_dir(rig.mesh.layout().environments()).ok()?;
    let copies = runs.filter_map(Result::ok).flat_map(|run| {
        let inside = std::fs::read_dir(run.path()).into_iter().flatten();
        inside.filter_map(Result::ok).map(|entry| entry.path())
    });
    copies.map(|copy| copy.join(name)).any(|path| path.exists()).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_kill_has_lost_is_told_as_one_that_may_have_run() -> Result<()> {
    let hang = json!({"server": "notes", "tool": "read_notes", "arguments": {"wait": true}});
    let turns = vec![
        Turn::Call("mcp_tools", json!({"server": "notes"})),
        Turn::Call("mcp_call", hang),
        Turn::Say("It may have run."),
    ];
    let mut rig = rig(json!("allow"), turns).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("servers", None).await?;
    let prompt = person.prompt(session)?;
    let start = person.next_ask().await?;
    person.answer(&start, Decision::Allow).await?;
    until("the tool has written", async || written(&rig, "notes.log")).await;
    rig.kill_and_restart(Service::SandboxSvc).await?;
    person.next_of("agent.stopped").await?;
    within("the prompt's answer", prompt).await??;
    let told = told(&rig, session).await?;
    let told: Vec<_> = told.iter().map(|result| &result["error"]).collect();
    let message = "the call was lost and may have run; see what it did before calling it again";
    assert_eq!(told, [&json!({"code": "EXECUTION_LOST", "message": message})]);
    Ok(())
}
