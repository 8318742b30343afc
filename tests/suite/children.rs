//! A run lets another work for it: the child asks where its parent is watched, may do less, ends with it, and outlives any
//! one process.

use acp::{AttachParams, Cursor, Decision};
use anyhow::{Context as _, Result, ensure};
use e2e::{Ask, Books, Engine, Line, Person, Rig, Seen, Spec, Turn, manifest, within};
use event::id::SessionId;
use serde_json::{Value, json};
use tokio::process::Command;
use transport::Service;

const TASK: &str = "look after the count";

fn delegate(profile: &str) -> Turn {
    Turn::Call("delegate", json!({"profile": profile, "task": TASK}))
}

fn sh(script: &str) -> Turn {
    Turn::Call("process.exec", json!({"argv": ["sh", "-c", script]}))
}

/// Nobody is asked about children; commands are asked about.
fn rules() -> e2e::Manifest {
    manifest("family").rule("delegate", json!("allow"))
}

async fn rig(rules: e2e::Manifest, parent: Vec<Turn>, child: Vec<Turn>) -> Result<Rig> {
    let mut spec = Spec::new(rules, parent);
    spec.children.push((TASK, child));
    Rig::start(spec).await
}

/// The session's own run, and its only child.
fn runs(seen: &[Seen]) -> Result<(String, String)> {
    let started: Vec<&Value> =
        seen.iter().filter(|seen| seen.kind == "agent.started").map(|seen| &seen.data).collect();
    let id = |data: &Value| data["agentId"].as_str().map(str::to_owned).context("an id");
    let child = started.iter().find(|data| !data["parentRunId"].is_null()).context("a child")?;
    let parent = started.iter().find(|data| data["parentRunId"].is_null()).context("a run")?;
    ensure!(child["parentRunId"] == parent["agentId"], "{child}");
    Ok((id(parent)?, id(child)?))
}

/// What calls of one tool came to, in order.
async fn results(rig: &Rig, session: SessionId, tool: &str) -> Result<Vec<Value>> {
    let lines = Books::open(rig)?.stream("agent-svc", session).await?;
    let of = |line: &&Line| line.kind == "tool.result" && line.data["tool"] == tool;
    Ok(lines.iter().filter(of).map(|line| line.data.clone()).collect())
}

/// Reads on to the end of the session's run.
async fn until_the_end(person: &mut Person) -> Result<Value> {
    loop {
        let seen = person.next().await?;
        if seen.is_the_end() {
            return Ok(seen.data);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_childs_ask_reaches_the_person_of_its_parent_and_their_answer_works() -> Result<()> {
    let parent = vec![delegate("implementer"), Turn::Say("delegated")];
    let rig =
        rig(rules(), parent, vec![sh("echo made > made.txt"), Turn::Say("it is made")]).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("family", None).await?;
    let answer = person.prompt(session)?;
    let requested = person.next_of("permission.requested").await?;
    let (parent, child) = runs(&person.seen[&session])?;
    assert_eq!(requested.data["childRunId"], json!(child));
    assert_eq!(requested.data["profile"], "implementer");
    let ask = Ask::read(&requested)?;
    assert_eq!(ask.run()?.to_string(), child);
    person.answer(&ask, Decision::Allow).await?;
    let ended = until_the_end(&mut person).await?;
    assert_eq!(
        ended,
        json!({"agentId": parent, "status": "completed", "steps": 4, "toolCalls": 2})
    );
    assert_eq!(within("the prompt's answer", answer).await??.final_text.as_str(), "delegated");
    let told = results(&rig, session, "delegate").await?;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["output"]["untrustedText"], "it is made");
    assert_eq!(told[0]["output"]["childRunId"], json!(child));
    let lines = Books::open(&rig)?.stream("sandbox-svc", session).await?;
    let effects: Vec<(&Value, &Value)> = lines
        .iter()
        .filter(|line| line.kind == "call.started")
        .map(|line| (&line.data["tool"], &line.data["runId"]))
        .collect();
    assert_eq!(
        effects,
        [(&json!("delegate"), &json!(parent)), (&json!("process.exec"), &json!(child))]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_nobody_there_a_childs_ask_is_held_listed_and_answered_later() -> Result<()> {
    let parent = vec![delegate("implementer"), Turn::Say("delegated")];
    let rig = rig(rules(), parent, vec![sh("true"), Turn::Say("done")]).await?;
    let harness = e2e::programs()?.join("harness");
    let run = |words: Vec<String>| {
        let mut command = Command::new(&harness);
        command.args(words).kill_on_drop(true);
        async move { within("harness", command.output()).await }
    };
    let state = rig.mesh.layout().root().display().to_string();
    let words = ["run", "--state", &state, "--task", "family", "--json", "count"];
    let held = run(words.map(str::to_owned).to_vec()).await?;
    let said = String::from_utf8_lossy(&held.stderr).into_owned();
    ensure!(held.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&held.stdout).context(said)?;
    assert_eq!(document["status"], "waiting_approval");
    let ask = &document["pendingApprovals"][0];
    assert_eq!(ask["profile"], "implementer");
    assert_ne!(ask["childRunId"], document["runId"], "the run is the parent");

    let session = SessionId::parse(document["sessionId"].as_str().context("a session")?)?;
    let person = Person::arrive(&rig).await?;
    let open = person.attach(AttachParams::session(session)).await?.open;
    assert_eq!(open.len(), 1);
    let listed: Value = serde_json::from_str(open[0].event.get())?;
    assert_eq!(listed["data"]["childRunId"], ask["childRunId"]);
    drop(person);

    let resume = document["resume"][0].as_array().context("a command")?;
    let words: Vec<String> =
        resume.iter().skip(1).filter_map(Value::as_str).map(str::to_owned).collect();
    let resumed = run(words).await?;
    ensure!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let told = results(&rig, session, "delegate").await?;
    assert_eq!(told[0]["output"]["untrustedText"], "done");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_childs_deny_wins_over_what_was_allowed_for_its_parents_run() -> Result<()> {
    let same = || Turn::Call("process.exec", json!({"argv": ["true"]}));
    let parent = vec![same(), same(), delegate("explorer"), Turn::Say("delegated")];
    let rig = rig(rules(), parent, vec![same(), Turn::Say("I may not")]).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("family", None).await?;
    person.prompt(session)?;
    let ask = person.next_ask().await?;
    person.allow_for_the_run(&ask).await?;
    until_the_end(&mut person).await?;
    let asks = person.kinds(session).iter().filter(|kind| *kind == "permission.requested").count();
    assert_eq!(asks, 1, "nobody is asked about what the profile denies");
    let came_to: Vec<Value> = results(&rig, session, "process.exec")
        .await?
        .iter()
        .map(|result| json!([result["ok"], result["error"]["code"]]))
        .collect();
    assert_eq!(
        came_to,
        [json!([true, null]), json!([true, null]), json!([false, "TOOL_NOT_IN_PROFILE"])]
    );
    let lines = Books::open(&rig)?.stream("sandbox-svc", session).await?;
    let refused: Vec<&Value> = lines
        .iter()
        .filter(|line| line.kind == "call.refused")
        .map(|line| &line.data["reason"])
        .collect();
    assert_eq!(refused, ["TOOL_NOT_IN_PROFILE"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explorer_changes_nothing_and_has_no_child_even_where_the_manifest_allows_all()
-> Result<()> {
    let mut rules = rules();
    for action in ["process.exec", "patch.import", "fs.write"] {
        rules = rules.rule(action, json!("allow"));
    }
    let forbidden = [
        ("process.exec", json!({"argv": ["true"]})),
        ("import_patch", json!({})),
        ("delegate", json!({"profile": "implementer", "task": TASK})),
    ];
    let child = vec![
        Turn::Calls(forbidden.to_vec()),
        Turn::Call("read_file", json!({"path": "app.txt"})),
        Turn::Say("read"),
    ];
    let rig = rig(rules, vec![delegate("explorer"), Turn::Say("delegated")], child).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("family", None).await?;
    person.prompt(session)?;
    let ended = until_the_end(&mut person).await?;
    assert_eq!(ended["status"], "completed");
    for (tool, _) in &forbidden {
        let results = results(&rig, session, tool).await?;
        assert_eq!(results[0]["error"]["code"], "TOOL_NOT_IN_PROFILE", "{tool}");
    }
    assert_eq!(results(&rig, session, "read_file").await?[0]["ok"], true);
    let started = person.seen[&session].iter().filter(|seen| seen.kind == "agent.started").count();
    assert_eq!(started, 2, "the run and its child, and no child of that");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_svc_killed_while_a_child_asks_and_while_it_runs_repeats_nothing() -> Result<()> {
    let parent =
        vec![delegate("implementer"), Turn::Call("import_patch", json!({})), Turn::Say("counted")];
    let child = vec![sh("sleep 3; echo line >> count.txt"), Turn::Say("appended")];
    let mut rig = rig(rules(), parent, child).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("family", None).await?;
    person.prompt(session)?;
    person.next_ask().await?;
    rig.kill_and_restart(Service::AgentSvc).await?;

    let mut person = come_back(&rig, session).await?;
    loop {
        let seen = person.next().await?;
        match seen.kind.as_str() {
            "permission.requested" => approve(&person, &seen).await?,
            "sandbox.started" => break,
            _ => {}
        }
    }
    rig.kill_and_restart(Service::AgentSvc).await?;

    let mut person = come_back(&rig, session).await?;
    loop {
        let seen = person.next().await?;
        match seen.kind.as_str() {
            "permission.requested" => approve(&person, &seen).await?,
            _ if seen.is_the_end() => break assert_eq!(seen.data["status"], "completed"),
            _ => {}
        }
    }
    let lines = Books::open(&rig)?.stream("sandbox-svc", session).await?;
    let effects: Vec<&Value> = lines
        .iter()
        .filter(|line| line.kind == "call.started")
        .map(|line| &line.data["tool"])
        .collect();
    assert_eq!(effects, ["delegate", "process.exec", "import_patch"]);
    assert_eq!(std::fs::read_to_string(rig.workspace.join("count.txt"))?, "line\n");
    assert_eq!(Engine::containers(&format!("harness.session={session}"))?, Vec::<String>::new());
    Ok(())
}

async fn come_back(rig: &Rig, session: SessionId) -> Result<Person> {
    let person = within("a person comes back", Person::arrive(rig)).await?;
    person.attach(AttachParams::session(session).after(Cursor::NONE)).await?;
    Ok(person)
}

async fn approve(person: &Person, seen: &Seen) -> Result<()> {
    match person.answer(&Ask::read(seen)?, Decision::Allow).await {
        Ok(()) => Ok(()),
        // An answer from before the kill may have been recorded.
        Err(error) if error.symbol() == "ACP_PERMISSION_RESOLVED" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_a_child_in_its_ask_and_in_its_command_and_then_its_parent() -> Result<()> {
    for running in [false, true] {
        let parent = vec![delegate("implementer"), Turn::Say("never")];
        let rig = rig(rules(), parent, vec![sh("sleep 60"), Turn::Say("never")]).await?;
        let mut person = Person::arrive(&rig).await?;
        let session = person.open("family", None).await?;
        person.prompt(session)?;
        let ask = person.next_ask().await?;
        if running {
            person.answer(&ask, Decision::Allow).await?;
            person.next_of("sandbox.started").await?;
        }
        ensure!(person.cancel(session).await?, "there was something to cancel");
        until_the_end(&mut person).await?;
        let ends: Vec<Value> = person.seen[&session]
            .iter()
            .filter(|seen| seen.kind == "agent.stopped")
            .map(|seen| json!([seen.data["status"], seen.data["parentRunId"].is_null()]))
            .collect();
        assert_eq!(ends, [json!(["canceled", false]), json!(["canceled", true])]);
        let left = Engine::containers(&format!("harness.session={session}"))?;
        assert_eq!(left, Vec::<String>::new());
    }
    Ok(())
}
