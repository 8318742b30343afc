//! One call id, one request, one answer, whoever asks again.
use event::{CallFinished, CallStarted, CallStatus, Data, Digest, EffectClass};
use proto::common::v1 as common;
use proto::model::v1 as model;
use proto::model::v1::get_completion_response::State;
use transport::deadline;

use super::audit::Mood;
use super::rig::{LIMIT, MANIFEST, Rig, call_id, owner, turn, user, within};

fn usage(prompt: u64, completion: u64) -> common::Usage {
    common::Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
    }
}

#[tokio::test]
async fn a_scripted_turn_is_answered_and_the_ledger_knew_of_it_first() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let request = turn(&by, "scripted", 0);
    let answer = rig.answer(request.clone()).await;
    let expected = model::Answer {
        model: "scripted".into(),
        finish: model::Finish::Stop.into(),
        text: "hello".into(),
        usage: Some(usage(30, 7)),
        ..model::Answer::default()
    };
    assert_eq!(answer, expected);

    assert_eq!(rig.audit.kinds(2).await, ["call.started", "call.finished"]);
    let entries = rig.audit.entries();
    for entry in &entries {
        assert_eq!(
            (&*entry.tenant, &*entry.session, &*entry.on_behalf_of, &*entry.policy_rev),
            ("local", &*by.session_id, "ada", &*Digest::of(MANIFEST.as_bytes()).to_string())
        );
    }
    let ids = request.call.clone().unwrap();
    let (Data::CallStarted(started), Data::CallFinished(finished)) =
        (&entries[0].event.data, &entries[1].event.data)
    else {
        panic!("other events")
    };
    let expected = CallStarted {
        call_id: ids.call_id.parse().unwrap(),
        run_id: ids.run_id.parse().unwrap(),
        attempt: 1,
        tool: "model".into(),
        effect_class: EffectClass::Irreversible,
        plan_digest: started.plan_digest,
        permission_id: None,
        rules: vec![],
    };
    assert_eq!(started, &expected);
    let expected = CallFinished {
        call_id: ids.call_id.parse().unwrap(),
        attempt: 1,
        status: CallStatus::Completed,
        result_digest: finished.result_digest,
        duration_ms: finished.duration_ms,
    };
    assert_eq!(finished, &expected);
    assert!(finished.result_digest.is_some());
}

#[tokio::test]
async fn a_script_without_usage_costs_by_the_number_of_things() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let answer = rig.answer(turn(&by, "scripted", 1)).await;
    let expected = model::Answer {
        model: "scripted".into(),
        finish: model::Finish::ToolCalls.into(),
        calls: vec![model::ToolCall {
            provider_id: "c1".into(),
            name: "read_file".into(),
            arguments: br#"{"path":"app.txt"}"#.to_vec(),
        }],
        usage: Some(usage(10, 20)),
        ..model::Answer::default()
    };
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn what_a_script_says_wrongly_is_judged_like_a_providers_answer() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let failed = rig.failure(turn(&by, "scripted", 3)).await;
    let expected = model::ModelError {
        kind: "MODEL_INVALID_RESPONSE".into(),
        billed: true,
        usage: Some(usage(10, 30)),
        ..model::ModelError::default()
    };
    assert_eq!(failed, expected);
    let beyond = rig.failure(turn(&by, "scripted", 4)).await;
    let expected =
        model::ModelError { kind: "MODEL_INVALID_REQUEST".into(), ..model::ModelError::default() };
    assert_eq!(beyond, expected);
}

#[tokio::test]
async fn the_same_call_id_returns_what_is_known_and_another_request_under_it_conflicts() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let request = turn(&by, "real", 0);
    rig.upstream.answers(r#"{"choices":[{"message":{"content":"once"},"finish_reason":"stop"}]}"#);
    let first = rig.answer(request.clone()).await;
    assert_eq!(rig.answer(request.clone()).await, first);
    assert_eq!(rig.standing(&by, &call_id(&request)).await, State::Answer(first.clone()));
    let other = model::CompleteRequest { messages: vec![user("other")], ..request.clone() };
    assert_eq!(rig.failure(other).await.kind, "CALL_CONFLICT");
    let elsewhere = rig.session().await;
    let other = model::CompleteRequest { owner: Some(elsewhere.clone()), ..request.clone() };
    assert_eq!(rig.failure(other).await.kind, "CALL_CONFLICT");
    let foreign = rig.standing(&elsewhere, &call_id(&request)).await;
    assert_eq!(foreign, State::NotFound(common::Empty {}));
    assert_eq!(rig.upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_new_owner_attaches_to_a_running_call_and_the_old_ones_leaving_does_not_end_it() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let request = turn(&by, "real", 0);
    let mut first = rig.client();
    let stream = within(first.complete(deadline::request(request.clone(), LIMIT))).await.unwrap();
    rig.upstream.once_seen(1).await;
    assert_eq!(rig.standing(&by, &call_id(&request)).await, State::Running(common::Empty {}));
    let session = by.session_id.parse().unwrap();
    let next = owner(session, "node-b", 2);
    rig.fence_with(next.clone(), &rig.grant(session), MANIFEST).await.unwrap();
    let again = model::CompleteRequest { owner: Some(next.clone()), ..request.clone() };
    let mut second = rig.client();
    let attached = within(second.complete(deadline::request(again, LIMIT))).await.unwrap();
    drop(stream);
    // Both share one connection, so the service has read of the first one's leaving before this.
    let running = State::Running(common::Empty {});
    assert_eq!(rig.standing(&next, &call_id(&request)).await, running);
    rig.upstream.answers(r#"{"choices":[{"message":{"content":"late"},"finish_reason":"stop"}]}"#);
    let message = within(attached.into_inner().message()).await.unwrap().unwrap().message;
    let Some(model::complete_response::Message::Answer(answer)) = message else {
        panic!("no answer")
    };
    assert_eq!(answer.text, "late");
    assert_eq!(rig.upstream.seen().len(), 1);
}

#[tokio::test]
async fn dropping_the_stream_cancels_the_provider_request_and_is_recorded() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let request = turn(&by, "real", 0);
    let mut client = rig.client();
    let stream = within(client.complete(deadline::request(request.clone(), LIMIT))).await.unwrap();
    rig.upstream.once_seen(1).await;
    drop(stream);
    rig.upstream.once_left(1).await;
    assert_eq!(rig.audit.kinds(2).await, ["call.started", "call.finished"]);
    let Data::CallFinished(finished) = &rig.audit.entries()[1].event.data else { panic!("other") };
    assert_eq!(finished.status, CallStatus::Canceled);
    let State::Failed(failed) = rig.settled(&by, &call_id(&request)).await else {
        panic!("not failed")
    };
    assert_eq!(
        (failed.kind.as_str(), failed.billed, failed.retryable),
        ("MODEL_ABORTED", true, true)
    );
    assert!(failed.usage.unwrap().total_tokens >= 500, "never settled at nothing");
}

#[tokio::test]
async fn a_scripted_delay_ends_with_the_stream() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let request = turn(&by, "scripted", 2);
    let mut client = rig.client();
    let stream = within(client.complete(deadline::request(request.clone(), LIMIT))).await.unwrap();
    rig.audit.kinds(1).await;
    drop(stream);
    let State::Failed(failed) = rig.settled(&by, &call_id(&request)).await else {
        panic!("not failed")
    };
    assert_eq!(failed.kind, "MODEL_ABORTED");
}

#[tokio::test]
async fn no_request_is_made_before_the_ledger_has_acknowledged() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    rig.upstream.answers(r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#);
    rig.audit.feels(Mood::Hangs);
    let request = turn(&by, "real", 0);
    let mut client = rig.client();
    let mut stream =
        within(client.complete(deadline::request(request, LIMIT))).await.unwrap().into_inner();
    rig.audit.once_appended(1).await;
    assert_eq!(rig.upstream.seen(), []);
    rig.audit.feels(Mood::TakesAndForgetsToSay);
    within(stream.message()).await.unwrap().unwrap();
    assert_eq!(rig.audit.kinds(2).await, ["call.started", "call.finished"]);
    assert_eq!(rig.audit.entries().len(), 2, "sent again under the same id");
    assert_eq!(rig.upstream.seen().len(), 1);
}

#[tokio::test]
async fn a_call_that_the_ledger_refuses_is_not_begun_and_holds_up_nothing_else() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    rig.audit.feels(Mood::Refuses("call.started"));
    let failed = rig.failure(turn(&by, "real", 0)).await;
    assert_eq!(
        (failed.kind.as_str(), failed.billed, failed.retryable),
        ("AUDIT_UNAVAILABLE", false, true)
    );
    assert_eq!(rig.upstream.seen(), []);
    assert_eq!(rig.audit.kinds(1).await, ["call.finished"]);
    rig.audit.feels(Mood::Takes);
    assert_eq!(rig.answer(turn(&by, "scripted", 0)).await.text, "hello");
}

#[tokio::test]
async fn a_call_that_may_not_begin_any_more_is_not_asked() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let mut request = turn(&by, "real", 0);
    request.call.as_mut().unwrap().start_before_ms = 1;
    assert_eq!(rig.failure(request).await.kind, "START_DEADLINE_PASSED");
    assert_eq!(rig.upstream.seen(), []);
}

#[tokio::test]
async fn a_model_outside_the_grant_and_a_broken_transcript_are_refused_before_anything_begins() {
    let rig = Rig::new().await;
    let by = rig.session().await;
    let unknown = rig.failure(turn(&by, "gpt", 0)).await;
    assert_eq!((unknown.kind.as_str(), unknown.billed), ("MODEL_UNKNOWN", false));
    let assistant = model::message::Message::Assistant(model::Assistant {
        text: String::new(),
        calls: vec![model::ToolCall {
            provider_id: "c1".into(),
            name: "read_file".into(),
            arguments: b"{}".to_vec(),
        }],
        opaque: vec![],
    });
    let mut request = turn(&by, "scripted", 0);
    request.messages.push(model::Message { message: Some(assistant) });
    assert_eq!(rig.failure(request.clone()).await.kind, "MODEL_INVALID_REQUEST");
    let session = by.session_id.clone();
    let expected = ["MODEL_UNKNOWN", "MODEL_INVALID_REQUEST"];
    let expected = expected.map(|reason| (session.clone(), reason.to_owned()));
    assert_eq!(rig.audit.refusals(2).await, expected);
    assert_eq!(rig.standing(&by, &call_id(&request)).await, State::NotFound(common::Empty {}));
}

#[tokio::test]
async fn what_was_answered_outlives_a_restart_and_what_was_not_is_in_doubt() {
    let mut rig = Rig::new().await;
    let by = rig.session().await;
    let (answered, asked) = (turn(&by, "scripted", 0), turn(&by, "real", 0));
    let answer = rig.answer(answered.clone()).await;
    let mut client = rig.client();
    let _stream = within(client.complete(deadline::request(asked.clone(), LIMIT))).await.unwrap();
    rig.upstream.once_seen(1).await;
    rig.crash().await;
    rig.start().await;
    assert_eq!(rig.standing(&by, &call_id(&answered)).await, State::Answer(answer.clone()));
    assert_eq!(rig.answer(answered).await, answer);
    assert_eq!(rig.standing(&by, &call_id(&asked)).await, State::InDoubt(common::Empty {}));
    assert_eq!(rig.failure(asked).await.kind, "MODEL_IN_DOUBT");
    assert_eq!(rig.upstream.seen().len(), 1, "never a second request");
    let lost = |entries: &[super::audit::Entry]| {
        entries.iter().any(|entry| {
            matches!(&entry.event.data, Data::CallFinished(it) if it.status == CallStatus::Lost)
        })
    };
    rig.audit.once(lost).await;
}

#[tokio::test]
async fn the_service_is_ready_once_the_ledger_is_reached_and_says_what_it_could_not_before() {
    let mut rig = Rig::new().await;
    rig.once_ready().await;
    let by = rig.session().await;
    rig.audit.feels(Mood::Unavailable);
    rig.failure(turn(&by, "gpt", 0)).await;
    rig.audit.once_appended(2).await;
    assert!(!rig.is_ready());
    rig.stop().await;
    assert_eq!(rig.audit.entries(), []);
    rig.audit.feels(Mood::Takes);
    rig.start().await;
    assert_eq!(rig.audit.refusals(1).await, [(by.session_id, "MODEL_UNKNOWN".to_owned())]);
}
