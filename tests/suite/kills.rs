//! kill -9 at every record of a run, and of every other service in mid-run: the run completes or says why not, the
//! effect happened at most once, and no container is left.

use acp::{AttachParams, Cursor, Decision};
use anyhow::{Context as _, Result, ensure};
use e2e::{Ask, Books, Engine, Line, Person, Rig, Seen, Spec, Turn, manifest, within};
use event::id::SessionId;
use serde_json::json;
use transport::Service;

/// Appends a line, so that a second run of the same command would show.
fn turns(command: &str) -> Vec<Turn> {
    vec![
        Turn::Call("process.exec", json!({"argv": ["sh", "-c", command]})),
        Turn::Call("import_patch", json!({})),
        Turn::Say("counted"),
    ]
}

async fn rig(command: &str) -> Result<Rig> {
    Rig::start(Spec::new(manifest("counting"), turns(command))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_svc_killed_after_every_record_of_a_run_repeats_nothing() -> Result<()> {
    let mut rig = rig("echo line >> count.txt").await?;
    let mut kills = 0;
    for record in 1.. {
        std::fs::write(rig.workspace.join("count.txt"), "")?;
        fail_after(&rig, Some(record))?;
        rig.mesh.restart(Service::AgentSvc).await?;
        if !one_run(&mut rig, record)
            .await
            .with_context(|| format!("killed after record {record}"))?
        {
            break;
        }
        kills += 1;
        ensure!(record < 200, "a run has no more than 200 records");
    }
    ensure!(kills >= 10, "a run with two asks has more than {kills} records");
    Ok(())
}

/// Drives one run to its end; whether agent-svc died on the way.
async fn one_run(rig: &mut Rig, record: u32) -> Result<bool> {
    let mut died = false;
    let mut person = Person::arrive(rig).await?;
    let session = person.open("counting", None).await?;
    // The answer is not waited for: it may be lost with agent-svc, and the run's end is read from its events.
    person.prompt(session)?;
    loop {
        let ended = tokio::select! {
            ended = drive(&mut person, session) => Some(ended),
            _ = rig.mesh.wait(Service::AgentSvc) => None,
        };
        match ended {
            Some(Ok(())) => break,
            // The connection went with agent-svc; whether it died is told next.
            Some(Err(_)) => {}
            None => {
                died = true;
                fail_after(rig, None)?;
                rig.mesh.restart(Service::AgentSvc).await?;
            }
        }
        person = within("a person comes back", Person::arrive(rig)).await?;
        rejoin(&mut person, session).await?;
    }
    let lines = completed(rig, session).await?;
    let effects: Vec<&str> = lines
        .iter()
        .filter(|line| line.writer == "sandbox-svc" && line.kind == "call.started")
        .filter_map(|line| line.data["tool"].as_str())
        .collect();
    assert_eq!(effects, ["process.exec", "import_patch"], "record {record}");
    assert_eq!(
        std::fs::read_to_string(rig.workspace.join("count.txt"))?,
        "line\n",
        "record {record}"
    );
    Ok(died)
}

/// Answers every ask with yes until the run has ended.
async fn drive(person: &mut Person, session: SessionId) -> Result<()> {
    loop {
        let seen = person.next().await?;
        match seen.kind.as_str() {
            "permission.requested" => approve(person, &seen).await?,
            "agent.stopped" if seen.session == session => return Ok(()),
            _ => {}
        }
    }
}

async fn approve(person: &Person, seen: &Seen) -> Result<()> {
    match person.answer(&Ask::read(seen)?, Decision::Allow).await {
        Ok(()) => Ok(()),
        // An answer from before the kill may have been recorded.
        Err(error) if error.symbol() == "ACP_PERMISSION_RESOLVED" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Attaches from the start; what is still asked is answered again, since the first answer may be lost.
async fn rejoin(person: &mut Person, session: SessionId) -> Result<()> {
    person.attach(AttachParams::session(session).after(Cursor::NONE)).await?;
    Ok(())
}

fn fail_after(rig: &Rig, record: Option<u32>) -> Result<()> {
    let path = rig.mesh.layout().config(Service::AgentSvc);
    let mut table: toml::Table = std::fs::read_to_string(&path)?.parse()?;
    match record {
        Some(record) => {
            table.insert("failpoint".to_owned(), format!("after-record:{record}").into())
        }
        None => table.remove("failpoint"),
    };
    Ok(std::fs::write(&path, table.to_string())?)
}

/// The run's end as the ledger has it: completed, each call once, nothing left at the engine.
async fn completed(rig: &Rig, session: SessionId) -> Result<Vec<Line>> {
    let lines = Books::open(rig)?.session(session).await?;
    let stopped: Vec<&Line> = lines.iter().filter(|line| line.kind == "agent.stopped").collect();
    assert_eq!(stopped.len(), 1, "one end");
    assert_eq!(stopped[0].data["status"], "completed", "{}", stopped[0].data);
    for kind in ["call.started", "call.finished"] {
        let mut calls: Vec<String> = lines
            .iter()
            .filter(|line| line.writer == "sandbox-svc" && line.kind == kind)
            .map(|line| line.data["callId"].to_string())
            .collect();
        let all = calls.len();
        calls.sort();
        calls.dedup();
        assert_eq!(all, calls.len(), "{kind} twice for one call");
    }
    assert_eq!(Engine::containers(&format!("harness.session={session}"))?, Vec::<String>::new());
    Ok(lines)
}

/// Kills `service` while the ask is open, then approves, then kills it again while the command runs.
async fn killed_in_mid_run(service: Service) -> Result<()> {
    let mut rig = rig("sleep 3; echo line >> count.txt").await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("counting", None).await?;
    person.prompt(session)?;
    person.next_ask().await?;
    rig.kill_and_restart(service).await?;

    let mut person = within("a person comes back", Person::arrive(&rig)).await?;
    rejoin(&mut person, session).await?;
    loop {
        let seen = person.next().await?;
        match seen.kind.as_str() {
            "permission.requested" => approve(&person, &seen).await?,
            "sandbox.started" => break,
            _ => {}
        }
    }
    rig.kill_and_restart(service).await?;

    let mut person = within("a person comes back", Person::arrive(&rig)).await?;
    rejoin(&mut person, session).await?;
    drive(&mut person, session).await?;
    completed(&rig, session).await?;
    assert_eq!(std::fs::read_to_string(rig.workspace.join("count.txt"))?, "line\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_killed_in_mid_run_loses_no_answer() -> Result<()> {
    killed_in_mid_run(Service::Gateway).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_svc_killed_in_mid_run_adopts_its_container() -> Result<()> {
    killed_in_mid_run(Service::SandboxSvc).await
}

#[tokio::test(flavor = "multi_thread")]
async fn model_svc_killed_in_mid_run_asks_no_provider_twice() -> Result<()> {
    killed_in_mid_run(Service::ModelSvc).await
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_svc_killed_in_mid_run_loses_no_entry() -> Result<()> {
    killed_in_mid_run(Service::AuditSvc).await
}
