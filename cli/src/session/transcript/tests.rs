//! Streams of events that break a rule of the dialect.
use std::collections::BTreeSet;

use acp::RawValue;
use event::{
    Actor, ActorKind, AgentStopped, MessageDelta, Scope, SessionCreated, Source,
    id::{CallId, RunId},
};
use receipt::{Effect, EffectClass, Executor, Network, Version};
use time::OffsetDateTime;

use super::*;

fn session() -> SessionId {
    SessionId::parse("0198f000-0000-7000-8000-000000000001").unwrap()
}

fn permission() -> PermissionId {
    PermissionId::parse("0198f000-0000-7000-8000-000000000009").unwrap()
}

fn event(data: impl Into<Data>) -> Event {
    let actor = Some(Actor { kind: ActorKind::Kernel, id: None });
    Event { id: EventId::new(), at: OffsetDateTime::UNIX_EPOCH, actor, data: data.into() }
}

fn raw(event: &Event) -> Box<RawValue> {
    RawValue::from_string(String::from_utf8(event::seal(event).unwrap().bytes).unwrap()).unwrap()
}

fn sent(seq: u64, event: &Event) -> SessionEvent {
    SessionEvent { session_id: session(), seq: seq.try_into().unwrap(), event: raw(event) }
}

fn created() -> Event {
    event(SessionCreated { session_id: session(), workspace: None })
}

fn plan() -> Plan {
    Plan {
        v: Version::V1,
        session: session(),
        run: RunId::nil(),
        call: CallId::nil(),
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: None,
        effect: Effect::Allow,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once],
        task: None,
        manifest: event::Digest::of(b"manifest"),
        parts: Vec::new(),
        policies: Vec::new(),
        approval: Vec::new(),
        network: Network::None,
        program: None,
        argv: Some(vec!["true".to_owned()]),
        cwd: None,
        env: Some(BTreeSet::new()),
        image: None,
        limits: None,
        mounts: Vec::new(),
        snapshot: None,
        workspace: None,
        patch: None,
        stdin: None,
        check: None,
        steps: Vec::new(),
        mcp: None,
        edit: None,
    }
}

fn asked(plan: &Plan) -> PermissionRequested {
    let bytes = plan.to_bytes().unwrap();
    PermissionRequested {
        permission_id: permission(),
        session_id: session(),
        call_id: Some(plan.call),
        action: plan.action.clone(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        plan: serde_json::from_slice(&bytes).unwrap(),
        plan_digest: receipt::plan_digest(&bytes),
        expires_at: OffsetDateTime::UNIX_EPOCH,
        child_run_id: None,
        profile: None,
    }
}

fn resolved(decision: Decision) -> PermissionResolved {
    PermissionResolved {
        permission_id: permission(),
        session_id: session(),
        call_id: None,
        action: "process.exec".to_owned(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        decision,
        source: Source::Operator,
        by: Some("ada".to_owned()),
        note: None,
    }
}

fn stopped(status: AgentStatus) -> AgentStopped {
    AgentStopped {
        agent_id: "agent".to_owned(),
        parent_run_id: None,
        status,
        steps: 1,
        tool_calls: 0,
        note: None,
    }
}

/// Feeds events in order from 0; the first violation ends it.
fn feed(events: &[Event]) -> Result<Transcript, Violation> {
    let mut transcript = Transcript::new(session(), None);
    for (seq, event) in (0..).zip(events) {
        transcript.admit(&sent(seq, event))?;
    }
    Ok(transcript)
}

#[test]
fn a_whole_run_with_an_ask_is_admitted() {
    let ask = event(asked(&plan()));
    let mut transcript = feed(&[created(), ask]).unwrap();
    assert!(transcript.is_open(permission()));
    transcript.answered(permission(), Decision::Allow);
    assert!(!transcript.is_open(permission()));
    transcript.admit(&sent(2, &event(resolved(Decision::Allow)))).unwrap();
    transcript.admit(&sent(3, &event(stopped(AgentStatus::Completed)))).unwrap();
    assert_eq!(transcript.finish(PromptStatus::Completed), Ok(()));
}

#[test]
fn a_childs_end_is_not_the_runs_and_the_run_has_one_end() {
    let parent_run_id = Some(RunId::nil());
    let child = || event(AgentStopped { parent_run_id, ..stopped(AgentStatus::Failed) });
    let end = || event(stopped(AgentStatus::Completed));
    let transcript = feed(&[created(), child(), child(), end()]).unwrap();
    assert_eq!(transcript.finish(PromptStatus::Completed), Ok(()));
    assert_eq!(feed(&[created(), end(), end()]).unwrap_err(), Violation::TwoEnds);
}

#[test]
fn gaps_repeats_and_foreign_sessions_are_violations() {
    let mut transcript = feed(&[created()]).unwrap();
    let gap = transcript.admit(&sent(2, &created())).unwrap_err();
    assert_eq!(gap, Violation::Gap { expected: 1, found: 2 });
    let again = created();
    assert_eq!(feed(&[again.clone(), again.clone()]).unwrap_err(), Violation::Repeated(again.id));
    let other = SessionId::new();
    let foreign = SessionEvent { session_id: other, ..sent(1, &created()) };
    assert_eq!(transcript.admit(&foreign).unwrap_err(), Violation::ForeignSession(other));
    let about = event(SessionCreated { session_id: other, workspace: None });
    assert_eq!(transcript.admit(&sent(1, &about)).unwrap_err(), Violation::ForeignSession(other));
}

#[test]
fn what_is_not_of_the_catalogue_is_a_violation() {
    let mut transcript = feed(&[created()]).unwrap();
    let odd = RawValue::from_string(r#"{"v":1,"type":"no.such"}"#.to_owned()).unwrap();
    let refused =
        transcript.admit(&SessionEvent { event: odd, ..sent(1, &created()) }).unwrap_err();
    assert!(matches!(refused, Violation::NotAnEvent { seq: 1, .. }));
}

#[test]
fn an_ask_shows_the_plan_that_its_digest_names_and_no_other() {
    let good = asked(&plan());
    let swapped = PermissionRequested {
        plan: serde_json::from_slice(
            &Plan { argv: Some(vec!["rm".to_owned()]), ..plan() }.to_bytes().unwrap(),
        )
        .unwrap(),
        ..good.clone()
    };
    assert_eq!(feed(&[event(swapped)]).unwrap_err(), Violation::PlanDigest(permission()));
    let foreign = asked(&Plan { session: SessionId::new(), ..plan() });
    assert_eq!(feed(&[event(foreign)]).unwrap_err(), Violation::ForeignPlan(permission()));
    let relabelled = PermissionRequested { action: "fs.read".to_owned(), ..good.clone() };
    assert_eq!(feed(&[event(relabelled)]).unwrap_err(), Violation::ForeignPlan(permission()));
    let other_call = PermissionRequested { call_id: Some(CallId::new()), ..good.clone() };
    assert_eq!(feed(&[event(other_call)]).unwrap_err(), Violation::ForeignPlan(permission()));
    let other_run = PermissionRequested { child_run_id: Some(RunId::new()), ..good.clone() };
    assert_eq!(feed(&[event(other_run)]).unwrap_err(), Violation::ForeignPlan(permission()));
    let (once, twice) = (event(good.clone()), event(good));
    assert_eq!(feed(&[once, twice]).unwrap_err(), Violation::RepeatedPermission(permission()));
}

#[test]
fn a_resolution_agrees_with_what_was_answered() {
    let never = feed(&[event(resolved(Decision::Allow))]).unwrap_err();
    assert_eq!(never, Violation::NeverAsked(permission()));
    let mut transcript = feed(&[event(asked(&plan()))]).unwrap();
    transcript.answered(permission(), Decision::Deny);
    let turned = transcript.admit(&sent(1, &event(resolved(Decision::Allow)))).unwrap_err();
    assert_eq!(
        turned,
        Violation::Disagrees { permission: permission(), sent: "deny", found: "allow" }
    );
    let twice = feed(&[
        event(asked(&plan())),
        event(resolved(Decision::Deny)),
        event(resolved(Decision::Deny)),
    ]);
    assert_eq!(twice.unwrap_err(), Violation::RepeatedPermission(permission()));
}

#[test]
fn a_run_ends_once_and_as_its_prompt_was_answered() {
    let twice = feed(&[event(stopped(AgentStatus::Failed)), event(stopped(AgentStatus::Failed))]);
    assert_eq!(twice.unwrap_err(), Violation::TwoEnds);
    for (stop, answer, fits) in [
        (AgentStatus::Completed, PromptStatus::Completed, true),
        (AgentStatus::Failed, PromptStatus::Failed, true),
        (AgentStatus::Canceled, PromptStatus::Failed, true),
        (AgentStatus::BudgetExceeded, PromptStatus::Failed, true),
        (AgentStatus::Completed, PromptStatus::Failed, false),
        (AgentStatus::Canceled, PromptStatus::Completed, false),
    ] {
        assert_eq!(
            feed(&[event(stopped(stop))]).unwrap().finish(answer).is_ok(),
            fits,
            "{stop:?} {answer:?}"
        );
    }
}

#[test]
fn an_open_ask_that_an_attach_tells_may_come_again_in_the_stream() {
    let ask = event(asked(&plan()));
    let mut transcript = Transcript::new(session(), Some(1));
    let open = OpenAsk { seq: 1.try_into().unwrap(), event: raw(&ask) };
    transcript.reopen(&open).unwrap();
    transcript.admit(&sent(0, &created())).unwrap();
    transcript.admit(&sent(1, &ask)).unwrap();
    assert!(transcript.is_open(permission()));
}

#[test]
fn a_flood_is_not_a_conversation() {
    let mut transcript = Transcript::new(session(), None);
    let delta = |index| MessageDelta { request_id: "r".to_owned(), index, text: "x".to_owned() };
    let mut flood = None;
    for seq in 0..=MAX_EVENTS + 1 {
        if let Err(violation) = transcript.admit(&sent(seq, &event(delta(0)))) {
            flood = Some((seq, violation));
            break;
        }
    }
    assert_eq!(flood, Some((MAX_EVENTS + 1, Violation::Flood)));
}
