//! Every way an ask can end as a no, each with its own source in `permission.resolved`, and what happens to an answer
//! that comes second.

use acp::client::CallError;
use acp::{AttachParams, ClientCapabilities, Decision, Method, OnDisconnect};
use anyhow::Result;
use e2e::{Ask, Books, Person, Rig, Spec, Turn, manifest, until, within};
use event::id::SessionId;
use serde_json::{Value, json};
use transport::Service;

fn turns() -> Vec<Turn> {
    vec![Turn::Call("process.exec", json!({"argv": ["true"]})), Turn::Say("understood")]
}

/// Asks once, with the rule for what happens when nobody is there.
async fn asking(on_disconnect: &str, timeout: Option<&str>) -> Result<Rig> {
    let mut interaction = json!({"on_disconnect": on_disconnect});
    if let Some(timeout) = timeout {
        interaction["permission_timeout"] = json!(timeout);
    }
    let rules = manifest("asking").interaction(interaction);
    Rig::start(Spec::new(rules, turns()).setting(Service::AgentSvc, "disconnect-grace", "1s")).await
}

async fn asked(rig: &Rig) -> Result<(Person, SessionId, Ask)> {
    let mut person = Person::arrive(rig).await?;
    let session = person.open("asking", None).await?;
    // The answer is not waited for: the run's end is read from its events.
    person.prompt(session)?;
    let ask = person.next_ask().await?;
    Ok((person, session, ask))
}

/// Decision and source of the one resolution, from the ledger.
async fn resolution(rig: &Rig, session: SessionId) -> Result<(Value, Value)> {
    let books = Books::open(rig)?;
    let line = until("the resolution", || async {
        let lines = books.stream("agent-svc", session).await.ok()?;
        lines.into_iter().find(|line| line.kind == "permission.resolved")
    })
    .await;
    Ok((line.data["decision"].clone(), line.data["source"].clone()))
}

fn denied(source: &str) -> (Value, Value) {
    (json!("deny"), json!(source))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_no_goes_back_to_the_model_and_the_run_goes_on() -> Result<()> {
    let rig = asking("hold", None).await?;
    let (mut person, session, ask) = asked(&rig).await?;
    person.answer(&ask, Decision::Deny).await?;
    let result = person.next_of("tool.result").await?;
    assert_eq!(
        (&result.data["ok"], &result.data["error"]["code"]),
        (&json!(false), &json!("PERMISSION_DENIED"))
    );
    assert_eq!(person.next_of("agent.stopped").await?.data["status"], "completed");
    assert_eq!(resolution(&rig, session).await?, denied("operator"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_nobody_answers_in_time_is_denied_by_timeout() -> Result<()> {
    let rig = asking("hold", Some("2s")).await?;
    let (_person, session, _) = asked(&rig).await?;
    assert_eq!(resolution(&rig, session).await?, denied("timeout"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_run_denies_its_open_ask_as_canceled() -> Result<()> {
    let rig = asking("hold", None).await?;
    let (person, session, _) = asked(&rig).await?;
    assert!(person.cancel(session).await?);
    assert_eq!(resolution(&rig, session).await?, denied("cancel"));
    assert!(!person.cancel(session).await?, "a second cancel changes nothing");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_last_person_leaves_the_ask_is_denied_as_disconnect() -> Result<()> {
    let rig = asking("deny", None).await?;
    let (person, session, _) = asked(&rig).await?;
    person.vanish();
    assert_eq!(resolution(&rig, session).await?, denied("disconnect"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_nobody_could_answer_is_denied_at_once() -> Result<()> {
    let rig = asking("deny", None).await?;
    let watching = ClientCapabilities { streaming: true, permissioning: false, sessions: true };
    let mut person = Person::arrive_with(&rig, rig.ready.token.reveal(), watching).await?;
    let session = person.open("asking", None).await?;
    person.prompt(session)?;
    assert_eq!(resolution(&rig, session).await?, denied("missing_resolver"));
    Ok(())
}

/// `permission/respond` with whatever a test puts in.
enum AnyAnswer {}

impl Method for AnyAnswer {
    const NAME: &'static str = "permission/respond";
    type Params = Value;
    type Answer = Value;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_none_denies_as_malformed() -> Result<()> {
    let rig = asking("hold", None).await?;
    let (person, session, ask) = asked(&rig).await?;
    let params =
        json!({"sessionId": session, "permissionId": ask.permission, "decision": "perhaps"});
    let refused = person.call::<AnyAnswer>(params).await.expect_err("no decision");
    assert_eq!(refused.symbol(), "ACP_INVALID_PARAMS");
    assert_eq!(resolution(&rig, session).await?, denied("malformed_answer"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_another_plan_is_refused_and_the_ask_stays_open() -> Result<()> {
    let rig = asking("hold", None).await?;
    let (mut person, session, ask) = asked(&rig).await?;
    let foreign = Ask { digest: event::Digest::of(b"another plan"), ..ask.clone() };
    person.answer(&foreign, Decision::Allow).await.expect_err("another plan");
    person.answer(&ask, Decision::Allow).await?;
    person.next_of("tool.result").await?;
    assert_eq!(resolution(&rig, session).await?, (json!("allow"), json!("operator")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_answer_learns_what_won_and_by_whom() -> Result<()> {
    let rig = asking("hold", None).await?;
    let (person, session, ask) = asked(&rig).await?;
    let second = Person::arrive(&rig).await?;
    let open = second.attach(AttachParams::session(session)).await?.open;
    assert_eq!(open.len(), 1, "whoever attaches is shown what is still asked");

    person.answer(&ask, Decision::Deny).await?;
    let late = second.answer(&ask, Decision::Allow).await.expect_err("it is settled");
    let CallError::Refused(failure) = late else { panic!("not a refusal: {late:?}") };
    assert_eq!(failure.code.symbol(), "ACP_PERMISSION_RESOLVED");
    let told = failure.message();
    assert!(told.contains("denied") || told.contains("deny"), "{told}");
    assert!(told.contains("operator"), "{told}");
    assert_eq!(resolution(&rig, session).await?, denied("operator"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_ask_survives_its_person_and_is_answered_by_the_next() -> Result<()> {
    let rig = asking("deny", None).await?;
    let first = Person::arrive(&rig).await?;
    // The manifest says deny, so that a client may not choose otherwise.
    let refused = first.open("asking", Some(OnDisconnect::Hold)).await;
    assert!(refused.is_err(), "hold against the manifest");
    drop(first);

    let rig = asking("hold", None).await?;
    let (person, session, ask) = asked(&rig).await?;
    person.vanish();
    let mut next = within("the next person", Person::arrive(&rig)).await?;
    let open = next.attach(AttachParams::session(session)).await?.open;
    assert_eq!(open.len(), 1);
    next.answer(&ask, Decision::Allow).await?;
    let result = next.next_of("tool.result").await?;
    assert_eq!(result.data["ok"], json!(true));
    Ok(())
}
