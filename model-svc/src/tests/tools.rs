//! Remote tools: none is configured, so each is refused and recorded.
use event::id::{CallId, RunId};
use event::{Data, Digest, Stage};
use proto::common::v1 as common;
use proto::model::v1 as model;
use transport::{Fault, deadline};

use super::rig::{LIMIT, Rig, within};

fn call() -> common::Call {
    common::Call {
        run_id: RunId::new().to_string(),
        call_id: CallId::new().to_string(),
        attempt: 1,
        start_before_ms: i64::MAX,
    }
}

#[tokio::test]
async fn no_tool_is_known_and_each_attempt_is_recorded() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let plan = model::PlanRequest {
        owner: Some(by.clone()),
        call: Some(call()),
        tool: "search".into(),
        arguments: b"{}".to_vec(),
    };
    let answer = within(rig.client().plan(deadline::request(plan, LIMIT))).await.unwrap();
    let Some(model::plan_response::Outcome::Refused(refused)) = answer.into_inner().outcome else {
        panic!("not refused")
    };
    assert_eq!(refused.reason, "TOOL_UNKNOWN");

    let digest = Digest::of(b"plan");
    let execute = model::ExecuteRequest {
        owner: Some(by.clone()),
        call: Some(call()),
        tool: "search".into(),
        arguments: b"{}".to_vec(),
        plan_digest: digest.as_bytes().to_vec(),
        receipt: None,
    };
    let mut client = rig.client();
    let stream = within(client.execute(deadline::request(execute.clone(), LIMIT))).await.unwrap();
    let finished = within(stream.into_inner().message()).await.unwrap().unwrap().message.unwrap();
    let expected = model::execute_response::Message::Finished(model::Finished {
        outcome: Some(model::finished::Outcome::Refused(refused)),
        duration_ms: 0,
    });
    assert_eq!(finished, expected);

    rig.audit.refusals(2).await;
    let recorded: Vec<_> = rig
        .audit
        .entries()
        .into_iter()
        .map(|entry| match entry.event.data {
            Data::CallRefused(it) => (entry.session, it.tool, it.stage, it.plan_digest),
            other => panic!("{}", other.kind()),
        })
        .collect();
    let search = Some("search".to_owned());
    assert_eq!(
        recorded,
        [
            (by.session_id.clone(), search.clone(), Stage::Plan, None),
            (by.session_id, search, Stage::Execute, Some(digest)),
        ]
    );

    let malformed = model::ExecuteRequest { plan_digest: vec![0; 31], ..execute };
    let refused = within(client.execute(deadline::request(malformed, LIMIT))).await.unwrap_err();
    assert_eq!(Fault::from(refused).reason, "REQUEST_INVALID");
}
