//! An ask waits as long as it says, for whoever comes, and what is allowed is no more than what was asked.

use acp::client::CallError;
use acp::{AttachParams, Cursor, Decision};
use anyhow::{Result, bail};
use e2e::{Ask, Cable, Person, Rig, Spec, Turn, manifest};
use serde_json::{Value, json};

use super::{EXEC, argv, ended, of_kind, result};

fn turns() -> Vec<Turn> {
    vec![Turn::Call(EXEC, argv(&["true"])), Turn::Say("understood")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_may_run_a_second_waits_longer_for_its_person() -> Result<()> {
    let mut rules = manifest("waiting");
    rules.limits = json!({"time": "1s"});
    let rig = Rig::start(Spec::new(rules, turns())).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("waiting", None).await?;
    person.prompt(session)?;
    let requested = person.next_of("permission.requested").await?;
    let ask = Ask::read(&requested)?;
    assert_eq!(ask.plan["limits"]["time_ms"], json!(1_000), "{}", ask.plan["limits"]);
    assert!(requested.data["expiresAt"].is_string(), "the only end of the wait is told");
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    person.answer(&ask, Decision::Allow).await?;
    assert_eq!(result(&mut person).await?, "ok");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_loses_no_ask_and_settles_none() -> Result<()> {
    let rig = Rig::start(Spec::new(manifest("cut"), turns())).await?;
    let cable = Cable::lay(&rig).await?;
    let mut first = Person::arrive_by(&rig, &cable).await?;
    let session = first.open("cut", None).await?;
    first.prompt(session)?;
    let requested = first.next_of("permission.requested").await?;
    let ask = Ask::read(&requested)?;
    cable.cut();
    assert!(first.next().await.is_err(), "nothing comes by a cut cable");

    // Having seen the ask itself does not hide that it is open.
    let mut second = Person::arrive(&rig).await?;
    let after = Cursor::try_from(i64::try_from(requested.seq)?)?;
    let attached = second.attach(AttachParams::session(session).after(after)).await?;
    let [open] = &attached.open[..] else { bail!("{} asks are open", attached.open.len()) };
    assert_eq!(open.event.get().as_bytes(), requested.bytes, "the very same ask");
    second.answer(&ask, Decision::Allow).await?;
    assert_eq!(result(&mut second).await?, "ok");
    let seen = second.seen[&session].iter().map(|event| event.seq);
    assert!(seen.min() > Some(requested.seq), "what was seen is not sent again");

    let lines = ended(&rig, session, "agent-svc").await?;
    let [resolved] = &of_kind(&lines, "permission.resolved")[..] else { bail!("settled once") };
    let decided = (&resolved["decision"], &resolved["source"]);
    assert_eq!(decided, (&json!("allow"), &json!("operator")));
    assert_eq!(of_kind(&ended(&rig, session, "sandbox-svc").await?, "call.started").len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_too_late_is_told_that_it_is_late() -> Result<()> {
    let interaction = json!({"on_disconnect": "hold", "permission_timeout": "2s"});
    let rig = Rig::start(Spec::new(manifest("late").interaction(interaction), turns())).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("late", None).await?;
    person.prompt(session)?;
    let ask = person.next_ask().await?;
    person.next_of("permission.resolved").await?;
    for _ in 0..2 {
        let late = person.answer(&ask, Decision::Allow).await.expect_err("it is settled");
        let CallError::Refused(failure) = late else { panic!("not a refusal: {late:?}") };
        assert_eq!(failure.code.symbol(), "ACP_PERMISSION_RESOLVED");
        assert_eq!(failure.message(), "already resolved: denied (timeout)");
    }
    let lines = ended(&rig, session, "agent-svc").await?;
    assert_eq!(of_kind(&lines, "permission.resolved").len(), 1);
    assert_eq!(of_kind(&ended(&rig, session, "sandbox-svc").await?, "call.started").len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_for_the_run_reads_no_pattern_into_what_it_allows() -> Result<()> {
    let commands: [&[&str]; 9] = [
        &["sh", "-c", "true && rm -rf ./build"],
        &["sh", "-c", "true && rm -rf ./build"],
        &["sh", "-c", "true && rm -rf ./build", "more"],
        &["sh", "-c", "true && rm -rf ./*"],
        &["rm", "-rf", "src"],
        &["true", "*"],
        &["true", "*"],
        &["true", "x"],
        &["true", "", "*"],
    ];
    let calls = commands.iter().map(|items| (EXEC, argv(items))).collect();
    let turns = vec![Turn::Calls(calls), Turn::Say("understood")];
    let mut rules = manifest("exact");
    rules.allow_commands.push("rm".to_owned());
    let rig = Rig::start(Spec::new(rules, turns)).await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("exact", None).await?;
    person.prompt(session)?;
    let mut asked = Vec::new();
    for standing in [true, false, false, false, true, false, false] {
        let ask = person.next_ask().await?;
        asked.push(ask.plan["argv"].clone());
        match standing {
            true => person.allow_for_the_run(&ask).await?,
            false => person.answer(&ask, Decision::Deny).await?,
        }
    }
    let wanted: Vec<Value> = [0, 2, 3, 4, 5, 7, 8].map(|at: usize| json!(commands[at])).to_vec();
    assert_eq!(asked, wanted, "the second of each pair is not asked for, everything else is");
    assert_eq!(of_kind(&ended(&rig, session, "sandbox-svc").await?, "call.started").len(), 4);
    assert!(rig.workspace.join("src/lib.txt").exists());
    Ok(())
}
