//! What is taken, what is refused, and that a refusal stores nothing.

use std::time::Duration;

use event::id::{PermissionId, SessionId};
use event::{Actor, ActorKind, Event, Writer};
use ledger::Envelope;
use proto::audit::v1::{NewEntry, Redaction};
use tokio::task::JoinSet;
use transport::{Code, Service};

use crate::fixture::{
    Ledger, TENANT, append, at_hand, entry, execute, finished, note, refused, sequence, verified,
};

#[tokio::test]
async fn an_entry_is_kept_byte_for_byte_with_its_envelope() {
    let ledger = Ledger::start().await;
    let session = SessionId::new();
    let resolved = Event {
        actor: Some(Actor { kind: ActorKind::Operator, id: Some("ann".to_owned()) }),
        ..at_hand(event::PermissionResolved {
            permission_id: PermissionId::new(),
            session_id: session,
            call_id: None,
            action: "process.exec".to_owned(),
            subject: Some("curl -H 'Authorization: Bearer abcdef1234567890'".to_owned()),
            scope: event::Scope::Once,
            reason: None,
            decision: event::Decision::Deny,
            source: event::Source::Operator,
            by: Some("ann".to_owned()),
            note: None,
        })
    };
    let sent = NewEntry {
        on_behalf_of: "pseud:1".to_owned(),
        policy_rev: "sha256:00".to_owned(),
        ..entry(session, 0, &resolved)
    };
    assert_eq!(
        sent.redactions,
        [Redaction { path: "/data/subject".to_owned(), rule: "bearer".to_owned(), n: 1 }]
    );
    let acks = append(&ledger.client(Service::AgentSvc), vec![sent.clone()]).await.unwrap();

    let [stored] = <[_; 1]>::try_from(ledger.all().await).unwrap();
    assert_eq!(stored.event, sent.event);
    assert_eq!(acks.len(), 1);
    assert_eq!(
        (acks[0].log_index, acks[0].seq, &acks[0].session_id, &acks[0].leaf_hash),
        (0, 0, &session.to_string(), &stored.leaf_hash)
    );
    let envelope = Envelope::parse(&stored.envelope).unwrap();
    let expected = Envelope {
        log: "ledger.test/1".to_owned(),
        tenant: TENANT.to_owned(),
        event_id: resolved.id.to_string(),
        writer: "agent-svc".to_owned(),
        session: session.to_string(),
        seq: 0,
        prev: ledger::Hash::ZERO,
        kind: "permission.resolved".to_owned(),
        actor: Some(ledger::Actor { kind: "operator".to_owned(), id: Some("ann".to_owned()) }),
        on_behalf_of: Some("pseud:1".to_owned()),
        tool: None,
        decision: Some("deny".to_owned()),
        policy_rev: Some("sha256:00".to_owned()),
        occurred_us: i64::try_from(resolved.at.unix_timestamp_nanos() / 1000).unwrap(),
        recorded_us: envelope.recorded_us,
        payload_commit: ledger::payload_commit(
            &stored.salt.clone().try_into().unwrap(),
            &stored.event,
        ),
        payload_len: sent.event.len() as u64,
        payload_key: None,
        redactor: event::redact::REVISION.to_owned(),
        redactions: vec![ledger::Redaction {
            path: "/data/subject".to_owned(),
            rule: "bearer".to_owned(),
            n: 1,
        }],
        redactions_omitted: 0,
    };
    assert_eq!(envelope, expected);
    verified(&[stored], &ledger.head().await).unwrap();
}

#[tokio::test]
async fn the_same_entry_again_gets_the_same_answer_and_is_stored_once() {
    let ledger = Ledger::start().await;
    let session = SessionId::new();
    for (service, seq, event) in
        [(Service::AgentSvc, Some(0), note("a")), (Service::ModelSvc, None, finished())]
    {
        let client = ledger.client(service);
        let sent = entry(session, seq, &event);
        let first = append(&client, vec![sent.clone()]).await.unwrap();
        assert_eq!(append(&client, vec![sent.clone()]).await.unwrap(), first);
        assert_eq!(
            append(&client, vec![sent.clone(), sent]).await.unwrap(),
            [first.clone(), first].concat()
        );
    }
    assert_eq!(ledger.head().await.size, 2);
    let ledger = ledger.restart().await;
    assert_eq!(ledger.all().await.len(), 2);
}

#[tokio::test]
async fn another_history_is_a_conflict() {
    let ledger = Ledger::start().await;
    let (agent, session) = (ledger.client(Service::AgentSvc), SessionId::new());
    let first = note("a");
    append(&agent, vec![entry(session, 0, &first)]).await.unwrap();

    let other = Event { id: first.id, ..note("b") };
    let fault = append(&agent, vec![entry(session, 0, &other)]).await.unwrap_err();
    assert_eq!((fault.code, fault.reason.as_str()), (Code::AlreadyExists, "AUDIT_EVENT_CONFLICT"));
    assert_eq!(
        refused(&agent, vec![entry(SessionId::new(), 0, &first)]).await,
        "AUDIT_EVENT_CONFLICT"
    );
    assert_eq!(refused(&agent, vec![entry(session, 1, &first)]).await, "AUDIT_EVENT_CONFLICT");

    let fault = append(&agent, vec![entry(session, 2, &note("gap"))]).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.reason.as_str()),
        (Code::FailedPrecondition, "AUDIT_SEQUENCE_CONFLICT")
    );
    assert_eq!(fault.message, "entry 0 is not the next of its stream; that is 1");
    assert_eq!(
        refused(&agent, vec![entry(session, 0, &note("again"))]).await,
        "AUDIT_SEQUENCE_CONFLICT"
    );
    assert_eq!(ledger.head().await.size, 1);
}

#[tokio::test]
async fn a_request_is_stored_whole_or_not_at_all() {
    let ledger = Ledger::start().await;
    let (agent, session) = (ledger.client(Service::AgentSvc), SessionId::new());
    let with = |last| vec![entry(session, 0, &note("a")), entry(session, 1, &note("b")), last];
    assert_eq!(
        refused(&agent, with(entry(session, 3, &note("gap")))).await,
        "AUDIT_SEQUENCE_CONFLICT"
    );
    let spoiled = NewEntry { event: b"{}".to_vec(), ..entry(session, 2, &note("c")) };
    assert_eq!(refused(&agent, with(spoiled)).await, "EVENT_SCHEMA");
    let many = (0..257).map(|seq| entry(session, seq, &note("a"))).collect();
    assert_eq!(refused(&agent, many).await, "APPEND_TOO_LARGE");
    assert_eq!(ledger.head().await.size, 0);

    append(&agent, with(entry(session, 2, &note("c")))).await.unwrap();
    assert_eq!(sequence(&ledger.all().await, Writer::AgentSvc, session), [0, 1, 2]);
    assert_eq!(append(&agent, Vec::new()).await.unwrap(), []);
}

#[tokio::test]
async fn a_writer_says_only_what_is_its_to_say() {
    let ledger = Ledger::start().await;
    let session = SessionId::new();
    let agent = ledger.client(Service::AgentSvc);
    let fault = append(&agent, vec![entry(session, 0, &finished())]).await.unwrap_err();
    assert_eq!((fault.code, fault.reason.as_str()), (Code::PermissionDenied, "WRITER_NOT_ALLOWED"));
    assert_eq!(
        refused(&ledger.client(Service::Gateway), vec![entry(session, None, &note("a"))]).await,
        "WRITER_NOT_ALLOWED"
    );
    assert_eq!(
        refused(&ledger.client(Service::SandboxSvc), vec![entry(session, 0, &note("a"))]).await,
        "WRITER_NOT_ALLOWED"
    );
    let fault = append(&ledger.client(Service::AuditSvc), vec![]).await.unwrap_err();
    assert_eq!(fault.code, Code::PermissionDenied);
    assert_eq!(ledger.head().await.size, 0);
}

#[tokio::test]
async fn what_redaction_would_still_change_is_not_stored() {
    let ledger = Ledger::start().await;
    let agent = ledger.client(Service::AgentSvc);
    let secret = "password=hunter2";
    let raw = event::canon::to_bytes(&note(secret).to_value().unwrap()).unwrap();
    let unredacted = NewEntry { event: raw, ..entry(SessionId::new(), 0, &note("a")) };
    let fault = append(&agent, vec![unredacted]).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.reason.as_str()),
        (Code::InvalidArgument, "EVENT_REDACTION_FAILED")
    );
    assert!(!fault.message.contains("hunter2"), "{}", fault.message);
    let older = NewEntry { redactor: "r0".to_owned(), ..entry(SessionId::new(), 0, &note("a")) };
    assert_eq!(refused(&agent, vec![older]).await, "EVENT_REDACTION_FAILED");
    assert_eq!(ledger.head().await.size, 0);
}

#[tokio::test]
async fn entries_in_a_wrong_form_are_refused_by_name() {
    let ledger = Ledger::start().await;
    let (agent, model) = (ledger.client(Service::AgentSvc), ledger.client(Service::ModelSvc));
    let session = SessionId::new();
    let good = entry(session, 0, &note("a"));
    let spaced =
        String::from_utf8(good.event.clone()).unwrap().replace("\"v\":1", "\"v\": 1").into_bytes();
    for (spoiled, reason) in [
        (NewEntry { tenant: String::new(), ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { tenant: "a\nb".to_owned(), ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { session_id: "x".to_owned(), ..good.clone() }, "ENTRY_MALFORMED"),
        (
            NewEntry { session_id: session.to_string().to_uppercase(), ..good.clone() },
            "ENTRY_MALFORMED",
        ),
        (NewEntry { seq: None, ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { seq: Some(u64::MAX), ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { redactor: String::new(), ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { on_behalf_of: "x".repeat(257), ..good.clone() }, "ENTRY_MALFORMED"),
        (NewEntry { event: spaced, ..good.clone() }, "EVENT_NOT_CANONICAL"),
        (NewEntry { event: Vec::new(), ..good.clone() }, "EVENT_NOT_CANONICAL"),
        (
            entry(
                session,
                0,
                &at_hand(event::SessionCreated { session_id: SessionId::new(), workspace: None }),
            ),
            "ENTRY_SESSION_MISMATCH",
        ),
    ] {
        assert_eq!(refused(&agent, vec![spoiled]).await, reason);
    }
    assert_eq!(refused(&model, vec![entry(session, 0, &finished())]).await, "ENTRY_MALFORMED");
    assert_eq!(ledger.head().await.size, 0);

    append(&agent, vec![good]).await.unwrap();
    let elsewhere = NewEntry { tenant: "t-2".to_owned(), ..entry(session, 1, &note("a")) };
    assert_eq!(refused(&agent, vec![elsewhere]).await, "ENTRY_TENANT_MISMATCH");
    let elsewhere = NewEntry { tenant: "t-2".to_owned(), ..entry(session, None, &finished()) };
    assert_eq!(refused(&model, vec![elsewhere]).await, "ENTRY_TENANT_MISMATCH");
}

/// Nobody has shown yet whose the sessions are: entries of all tenants stand in one stream.
#[tokio::test]
async fn the_nil_session_takes_entries_of_any_tenant() {
    let ledger = Ledger::start().await;
    let sandbox = ledger.client(Service::SandboxSvc);
    let refusal = || {
        at_hand(event::CallRefused {
            call_id: None,
            session_id: "claimed, perhaps not even a UUID".to_owned(),
            tool: None,
            stage: event::Stage::Fence,
            reason: "GRANT_SIGNATURE_INVALID".to_owned(),
            plan_digest: None,
            differs: None,
        })
    };
    for (seq, tenant) in (0..).zip(["t-1", "t-2", ""]) {
        let sent =
            NewEntry { tenant: tenant.to_owned(), ..entry(SessionId::nil(), seq, &refusal()) };
        append(&sandbox, vec![sent]).await.unwrap();
    }
    verified(&ledger.all().await, &ledger.head().await).unwrap();
}

#[tokio::test]
async fn redactions_beyond_the_envelope_are_counted() {
    let ledger = Ledger::start().await;
    let path = |number: u32| Redaction {
        path: format!("/data/{}/{number}", "x".repeat(600)),
        rule: "key".to_owned(),
        n: 1,
    };
    let sent = NewEntry {
        redactions: (0..40).map(path).collect(),
        ..entry(SessionId::new(), 0, &note("a"))
    };
    append(&ledger.client(Service::AgentSvc), vec![sent]).await.unwrap();
    let stored = ledger.all().await;
    let envelope = Envelope::parse(&stored[0].envelope).unwrap();
    assert_eq!((envelope.redactions.len(), envelope.redactions_omitted), (4, 36));
}

#[tokio::test]
async fn concurrent_appenders_leave_no_gap() {
    const EACH: u64 = 12;
    let ledger = Ledger::start().await;
    let session = SessionId::new();
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        for (service, event) in
            [(Service::ModelSvc, finished as fn() -> Event), (Service::Gateway, grant)]
        {
            let client = ledger.client(service);
            writers.spawn(async move {
                for _ in 0..EACH {
                    let sent = match service {
                        Service::Gateway => entry(SessionId::nil(), None, &event()),
                        _ => entry(session, None, &event()),
                    };
                    append(&client, vec![sent]).await.unwrap();
                }
            });
        }
    }
    let agent = ledger.client(Service::AgentSvc);
    writers.spawn(async move {
        for seq in 0..EACH {
            append(&agent, vec![entry(session, seq, &note("a"))]).await.unwrap();
        }
    });
    writers.join_all().await;

    let stored = ledger.all().await;
    let gapless = |count: u64| (0..count).collect::<Vec<_>>();
    assert_eq!(sequence(&stored, Writer::ModelSvc, session), gapless(4 * EACH));
    assert_eq!(sequence(&stored, Writer::Gateway, SessionId::nil()), gapless(4 * EACH));
    assert_eq!(sequence(&stored, Writer::AgentSvc, session), gapless(EACH));
    verified(&stored, &ledger.head().await).unwrap();
}

/// In the stream of the nil session, so that it is not about another session than its stream.
fn grant() -> Event {
    let digest = event::Digest::of(b"x");
    at_hand(event::GrantIssued {
        session_id: SessionId::nil(),
        subject: "ann".to_owned(),
        manifest_digest: digest,
        workspace: "w".to_owned(),
        models: vec![],
        issued_at: time::OffsetDateTime::now_utc(),
        expires_at: time::OffsetDateTime::now_utc(),
        grant_digest: digest,
        renewal_of: None,
    })
}

#[tokio::test]
async fn a_failed_commit_is_told_and_the_writer_goes_on_after_it() {
    let ledger = Ledger::start().await;
    let (agent, session) = (ledger.client(Service::AgentSvc), SessionId::new());
    let (first, second) = (entry(session, 0, &note("a")), entry(session, 1, &note("b")));
    append(&agent, vec![first.clone()]).await.unwrap();
    let before = ledger.head().await;

    let mut database = ledger.database().await;
    let failing =
        "CREATE TRIGGER broken BEFORE INSERT ON payloads BEGIN SELECT RAISE(ABORT, 'no room'); END";
    execute(&mut database, failing).await.unwrap();
    let fault = append(&agent, vec![second.clone()]).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.reason.as_str()),
        (Code::Unavailable, "AUDIT_PERSISTENCE_FAILED")
    );
    assert_eq!(fault.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(ledger.head().await, before);

    execute(&mut database, "DROP TRIGGER broken").await.unwrap();
    let acks = append(&agent, vec![first, second]).await.unwrap();
    assert_eq!(acks.iter().map(|ack| ack.log_index).collect::<Vec<_>>(), [0, 1]);
    verified(&ledger.all().await, &ledger.head().await).unwrap();
}

#[tokio::test]
async fn a_store_that_somebody_else_moved_halts_the_ledger() {
    let ledger = Ledger::start().await;
    let (agent, session) = (ledger.client(Service::AgentSvc), SessionId::new());
    append(&agent, vec![entry(session, 0, &note("a"))]).await.unwrap();
    assert!(ledger.context.ready.is_ready());

    let mut database = ledger.database().await;
    execute(&mut database, "UPDATE log_head SET size = 3, frontier = randomblob(64)")
        .await
        .unwrap();
    for _ in 0..2 {
        let fault = append(&agent, vec![entry(session, 1, &note("b"))]).await.unwrap_err();
        assert_eq!(
            (fault.code, fault.reason.as_str()),
            (Code::FailedPrecondition, "AUDIT_INTEGRITY_HALT")
        );
    }
    assert_eq!(ledger.context.ready.missing(), ["ledger"]);
    assert_eq!(ledger.all().await.len(), 1);
}
