//! The world changes while a person thinks: their answer was to the world as it was, changes nothing and is used up.

use acp::Decision;
use acp::client::CallError;
use anyhow::{Result, bail};
use e2e::{Admin, Ask, Person, Rig, Spec, Turn, manifest};
use event::Digest;
use event::id::SessionId;
use serde_json::{Value, json};

use super::{EXEC, argv, ended, of_kind, result};

/// Asked about, with the command before it allowed.
async fn asked(rig: &Rig, task: &str) -> Result<(Person, SessionId, Ask)> {
    let mut person = Person::arrive(rig).await?;
    let session = person.open(task, None).await?;
    person.prompt(session)?;
    let ask = person.next_ask().await?;
    Ok((person, session, ask))
}

/// The refusal that sandbox-svc recorded.
async fn refusal(rig: &Rig, session: SessionId) -> Result<Value> {
    let effects = ended(rig, session, "sandbox-svc").await?;
    let [refused] = &of_kind(&effects, "call.refused")[..] else { bail!("{effects:?}") };
    Ok((*refused).clone())
}

async fn is_settled(person: &Person, ask: &Ask) -> Result<()> {
    let again = person.answer(ask, Decision::Allow).await;
    let Err(CallError::Refused(failure)) = again else { bail!("not a refusal: {again:?}") };
    assert_eq!(failure.code.symbol(), "ACP_PERMISSION_RESOLVED");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_on_the_host_is_not_written_over() -> Result<()> {
    let turns = vec![
        Turn::Call(EXEC, argv(&["sh", "-c", "echo mine > app.txt; echo new > new.txt"])),
        Turn::Call("import_patch", json!({})),
        Turn::Say("understood"),
    ];
    let rules = manifest("changing")
        .rule(EXEC, json!({"sh -c 'echo mine > app.txt; echo new > new.txt'": "allow"}));
    let rig = Rig::start(Spec::new(rules, turns)).await?;
    let (mut person, session, ask) = asked(&rig, "changing").await?;
    std::fs::write(rig.workspace.join("app.txt"), "theirs\n")?;
    person.answer(&ask, Decision::Allow).await?;
    assert_eq!(result(&mut person).await?, "HOST_CHANGED");
    is_settled(&person, &ask).await?;
    let refused = refusal(&rig, session).await?;
    assert_eq!(refused["reason"], "HOST_CHANGED");
    assert_eq!(
        refused["differs"],
        json!({
            "path": "app.txt",
            "expected": Digest::of(b"broken\n"),
            "actual": Digest::of(b"theirs\n"),
        })
    );
    assert_eq!(std::fs::read(rig.workspace.join("app.txt"))?, b"theirs\n");
    assert!(!rig.workspace.join("new.txt").exists(), "all of it or nothing");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changed_meanwhile_is_the_one_that_counts() -> Result<()> {
    for (rules, reason) in [
        ("permissions: {process.exec: ask}", "PLAN_STALE"),
        ("permissions: {process.exec: {'true': deny, '**': ask}}", "POLICY_DENIED"),
        ("hard_deny: {process.exec: ['tru*']}", "POLICY_DENIED"),
        ("permissions: {process.exec: ask}\napprovers: {roles: [admin], count: 2}", "PLAN_STALE"),
    ] {
        let admin = Admin::new()?;
        let turns = vec![Turn::Call(EXEC, argv(&["true"])), Turn::Say("understood")];
        let rig = Rig::start(admin.over(Spec::new(manifest("governed"), turns))).await?;
        let (mut person, session, ask) = asked(&rig, "governed").await?;
        admin.ceiling(rules)?;
        person.answer(&ask, Decision::Allow).await?;
        assert_eq!(result(&mut person).await?, reason, "{rules}");
        is_settled(&person, &ask).await?;
        assert_eq!(refusal(&rig, session).await?["reason"], reason, "{rules}");
        let effects = ended(&rig, session, "sandbox-svc").await?;
        assert_eq!(of_kind(&effects, "call.started").len(), 0, "nothing ran");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_file_that_changed_meanwhile_counts_for_the_next_session() -> Result<()> {
    let turns = vec![Turn::Call(EXEC, argv(&["true"])), Turn::Say("understood")];
    let rig = Rig::start(Spec::new(manifest("edited"), turns)).await?;
    let (mut person, _, ask) = asked(&rig, "edited").await?;
    let wider = manifest("edited").rule(EXEC, json!("allow")).text(&rig.image);
    let path = rig.mesh.layout().manifests().join("edited.yaml");
    std::fs::write(&path, wider)?;
    // The session is the reviewed file's that it was opened under: somebody is still asked.
    person.answer(&ask, Decision::Deny).await?;
    assert_eq!(result(&mut person).await?, "PERMISSION_DENIED");
    let narrower = manifest("edited").rule(EXEC, json!({"true": "deny", "*": "ask"}));
    std::fs::write(&path, narrower.text(&rig.image))?;
    let session = person.open("edited", None).await?;
    person.prompt(session)?;
    let lines = ended(&rig, session, "agent-svc").await?;
    assert_eq!(of_kind(&lines, "permission.requested").len(), 0, "nobody is asked what is denied");
    let decided = of_kind(&lines, "policy.decision");
    assert_eq!(decided.iter().map(|data| &data["effect"]).collect::<Vec<_>>(), [&json!("deny")]);
    Ok(())
}
