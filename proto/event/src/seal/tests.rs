//! What passes the gates, what does not, and that passing is a round trip for every type.

mod gates;

use proptest::prelude::*;
use serde_json::json;
use time::OffsetDateTime;
use time::macros::datetime;

use super::*;
use crate::id::{CallId, EventId, PermissionId, ReceiptId, RunId, SessionId};
use crate::*;

const AT: OffsetDateTime = datetime!(2026-11-29 15:22:00.123456 UTC);

fn event(data: impl Into<Data>) -> Event {
    Event { id: EventId::nil(), at: AT, actor: None, data: data.into() }
}

fn call(input: Value) -> Event {
    event(ToolCall { call_id: CallId::nil(), tool: "process.exec".to_owned(), input })
}

/// One event of every type, with every optional member.
fn catalogue() -> Vec<Data> {
    let (session_id, run_id, call_id) = (SessionId::nil(), RunId::nil(), CallId::nil());
    let (permission_id, digest) = (PermissionId::nil(), Digest::of(b"x"));
    let text = || "text".to_owned();
    vec![
        SessionCreated { session_id, workspace: Some(text()) }.into(),
        AgentStarted {
            agent_id: text(),
            session_id,
            parent_run_id: Some(run_id),
            profile: Some(text()),
            task_id: Some(text()),
            model: text(),
        }
        .into(),
        AgentStopped {
            agent_id: text(),
            parent_run_id: Some(run_id),
            status: AgentStatus::BudgetExceeded,
            steps: 1,
            tool_calls: 2,
            note: Some(text()),
        }
        .into(),
        ModelRequest { request_id: text(), model: text(), message_count: 1 }.into(),
        ModelResponse {
            request_id: text(),
            model: text(),
            finish_reason: FinishReason::ToolCalls,
            usage: Usage { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
            text: Some(text()),
        }
        .into(),
        MessageDelta { request_id: text(), index: 0, text: text() }.into(),
        ToolCall { call_id, tool: text(), input: json!({"argv": ["ls"]}) }.into(),
        ToolResult {
            call_id,
            tool: text(),
            ok: false,
            output: Some(json!({"n": 1})),
            error: Some(ToolError { code: text(), message: text() }),
            duration_ms: Some(5),
        }
        .into(),
        ToolOutcomeUnknown {
            call_id,
            attempt: 1,
            executor: Executor::SandboxSvc,
            may_have_run: true,
            reason: text(),
        }
        .into(),
        TaskUpdated { task_id: text(), phase: TaskPhase::Running, note: Some(text()) }.into(),
        BudgetWarning {
            task_id: Some(text()),
            metric: BudgetMetric::ToolCalls,
            used: 1,
            limit: 2,
            pct: 50,
        }
        .into(),
        PolicyDecision {
            call_id,
            plan_digest: digest,
            action: text(),
            subject: Some(text()),
            effect: Effect::Ask,
            reason: Some(text()),
            rule_id: Some(text()),
            layer: Some(Layer::Organisation),
            justification: Some(text()),
            matching: vec![Matched { layer: Layer::System, rule: text(), effect: Effect::Deny }],
            manifest_digest: Some(digest),
            receipt_id: Some(ReceiptId::nil()),
        }
        .into(),
        PermissionRequested {
            permission_id,
            session_id,
            call_id: Some(call_id),
            action: text(),
            subject: Some(text()),
            scope: Scope::Once,
            reason: Some(text()),
            plan: json!({"v": 1}),
            plan_digest: digest,
            expires_at: AT,
            child_run_id: Some(run_id),
            profile: Some(text()),
        }
        .into(),
        PermissionCounted { permission_id, session_id, by: text(), have: 1, need: 2 }.into(),
        PermissionResolved {
            permission_id,
            session_id,
            call_id: Some(call_id),
            action: text(),
            subject: Some(text()),
            scope: Scope::Run,
            reason: Some(text()),
            decision: Decision::Deny,
            source: Source::MissingResolver,
            by: Some(text()),
            note: Some(text()),
        }
        .into(),
        GrantIssued {
            session_id,
            subject: text(),
            manifest_digest: digest,
            workspace: text(),
            models: vec![text()],
            issued_at: AT,
            expires_at: AT,
            grant_digest: digest,
            renewal_of: Some(digest),
        }
        .into(),
        ReceiptSigned {
            permission_id,
            session_id,
            run_id,
            call_id,
            scope: Scope::Once,
            plan_digest: digest,
            action_digest: digest,
            subject: text(),
            expires_at: AT,
            receipt_id: ReceiptId::nil(),
            receipt: json!({"signature": "00ff"}),
        }
        .into(),
        ReceiptRevoked { receipt_id: ReceiptId::nil(), session_id, run_id, by: text() }.into(),
        CallStarted {
            call_id,
            run_id,
            attempt: 1,
            tool: text(),
            effect_class: EffectClass::Staged,
            plan_digest: digest,
            permission_id: Some(permission_id),
            rules: vec![text()],
        }
        .into(),
        CallFinished {
            call_id,
            attempt: 1,
            status: CallStatus::TimedOut,
            result_digest: Some(digest),
            duration_ms: 5,
        }
        .into(),
        CallRefused {
            call_id: Some(call_id),
            session_id: text(),
            tool: Some(text()),
            stage: Stage::Execute,
            reason: text(),
            plan_digest: Some(digest),
            differs: Some(Differs {
                path: Some(text()),
                expected: Some(digest),
                actual: Some(digest),
            }),
        }
        .into(),
        CallOutput { call_id, stream: OutputStream::Stderr, offset: 0, bytes: 4, text: text() }
            .into(),
        SandboxStarted {
            run_id,
            call_id,
            attempt: 1,
            container_name: text(),
            image: text(),
            network: SandboxNetwork::None,
            mounts: vec![Mount { source: Some(text()), target: text(), mode: MountMode::Ro }],
        }
        .into(),
        SandboxStopped {
            run_id,
            call_id,
            attempt: 1,
            container_name: text(),
            status: SandboxStatus::Completed,
            exit_code: Some(-1),
            duration_ms: Some(5),
        }
        .into(),
        EgressDecision {
            run_id,
            call_id,
            attempt: 1,
            host: text(),
            port: Some(443),
            decision: EgressVerdict::Allow,
            rule: Some(text()),
            reason: text(),
            bytes_up: Some(7),
            bytes_down: Some(9),
        }
        .into(),
        EnvironmentCarried {
            run_id,
            workspace: text(),
            total: 2,
            files: vec![CarriedFile { path: text(), reason: text() }],
        }
        .into(),
        RunRecorded { run_id, task_id: text(), status: ReportStatus::Blocked, report_path: text() }
            .into(),
        Failure {
            task_id: Some(text()),
            session_id: Some(session_id),
            run_id: Some(run_id),
            stage: Some(text()),
            code: text(),
            message: text(),
            retryable: Some(false),
        }
        .into(),
    ]
}

#[test]
fn every_type_reads_back_as_it_was_sealed() {
    let all = catalogue();
    assert_eq!(all.iter().map(Data::kind).collect::<Vec<_>>(), Data::KINDS);
    for data in all {
        let kind = data.kind();
        assert_eq!(Data::parse(kind, &data.to_bytes().unwrap()), Ok(data.clone()));
        let event = Event {
            actor: Some(Actor { kind: ActorKind::Agent, id: Some("a".to_owned()) }),
            ..event(data)
        };
        let sealed = seal(&event).unwrap();
        assert_eq!((sealed.kind, &sealed.findings), (kind, &vec![]));
        assert!(canon::is_canonical(&sealed.bytes));
        assert_eq!(open(&sealed.bytes), Ok(event.clone()));
        for writer in Writer::ALL {
            let expected = if writer.may_write(kind) {
                Ok(event.clone())
            } else {
                Err(Refusal::WriterNotAllowed { writer, kind })
            };
            assert_eq!(admit(&sealed.bytes, writer), expected);
        }
    }
}

/// The wire's names, written down once more by hand.
#[test]
fn the_bytes_are_as_documented() {
    let event = Event {
        actor: Some(Actor { kind: ActorKind::Kernel, id: None }),
        ..call(json!({"argv": ["ls"], "n": 1}))
    };
    let expected = concat!(
        r#"{"actor":{"kind":"kernel"},"at":"2026-11-29T15:22:00.123456Z","#,
        r#""data":{"callId":"00000000-0000-0000-0000-000000000000","input":{"argv":["ls"],"n":1},"tool":"process.exec"},"#,
        r#""eventId":"00000000-0000-0000-0000-000000000000","type":"tool.call","v":1}"#
    );
    assert_eq!(String::from_utf8(seal(&event).unwrap().bytes).unwrap(), expected);
}

/// What two people's answers and their grants are told with, likewise.
#[test]
fn counts_revocations_and_explanations_are_as_documented() {
    let nil = "00000000-0000-0000-0000-000000000000";
    let digest = Digest::of(b"x");
    let bytes = |data: Data| String::from_utf8(data.to_bytes().unwrap()).unwrap();
    let (permission_id, session_id) = (PermissionId::nil(), SessionId::nil());
    let counted =
        PermissionCounted { permission_id, session_id, by: "bob".into(), have: 1, need: 2 };
    assert_eq!(
        bytes(counted.into()),
        format!(r#"{{"by":"bob","have":1,"need":2,"permissionId":"{nil}","sessionId":"{nil}"}}"#)
    );
    let (receipt_id, run_id) = (ReceiptId::nil(), RunId::nil());
    let revoked = ReceiptRevoked { receipt_id, session_id, run_id, by: "bob".into() };
    assert_eq!(
        bytes(revoked.into()),
        format!(r#"{{"by":"bob","receiptId":"{nil}","runId":"{nil}","sessionId":"{nil}"}}"#)
    );
    let plain = PolicyDecision {
        call_id: CallId::nil(),
        plan_digest: digest,
        action: "fs.write".into(),
        subject: None,
        effect: Effect::Ask,
        reason: None,
        rule_id: None,
        layer: None,
        justification: None,
        matching: vec![],
        manifest_digest: None,
        receipt_id: None,
    };
    assert_eq!(
        bytes(plain.clone().into()),
        format!(
            r#"{{"action":"fs.write","callId":"{nil}","effect":"ask","planDigest":"{digest}"}}"#
        )
    );
    let matched = |layer, effect| Matched { layer, rule: "infra".into(), effect };
    let explained = PolicyDecision {
        layer: Some(Layer::Tenant),
        justification: Some("why".into()),
        matching: vec![
            matched(Layer::Tenant, Effect::Ask),
            matched(Layer::Manifest, Effect::Allow),
        ],
        manifest_digest: Some(digest),
        receipt_id: Some(receipt_id),
        ..plain
    };
    assert_eq!(
        bytes(explained.into()),
        format!(
            concat!(
                r#"{{"action":"fs.write","callId":"{nil}","effect":"ask","justification":"why","#,
                r#""layer":"tenant","manifestDigest":"{digest}","matching":["#,
                r#"{{"effect":"ask","layer":"tenant","rule":"infra"}},"#,
                r#"{{"effect":"allow","layer":"manifest","rule":"infra"}}],"#,
                r#""planDigest":"{digest}","receiptId":"{nil}"}}"#,
            ),
            nil = nil,
            digest = digest,
        )
    );
}

/// A receipt is verified from the ledger's copy, so redaction must not touch one, a person's own signature in it included.
#[test]
fn redaction_leaves_receipts_and_their_signatures_alone() {
    let hex = "0123456789abcdef".repeat(8);
    let receipt = json!({
        "approval": {
            "key_id": Digest::of(b"key").to_string(),
            "payload": "eyJhY3Rpb24iOiJzaGEyNTY6ZTNiMGM0NDI5OGZjMWMxNDlhZmJmNGM4OTk2ZmI5In0+/w==",
            "signature": hex,
        },
        "chain": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "id": "0198f000-0000-7000-8000-00000000000b",
        "roles": ["operator", "admin"],
        "signature": hex,
        "subject": "alice",
    });
    let signed = catalogue().into_iter().find_map(|data| match data {
        Data::ReceiptSigned(signed) => Some(ReceiptSigned { receipt: receipt.clone(), ..signed }),
        _ => None,
    });
    let event = event(signed.unwrap());
    let sealed = seal(&event).unwrap();
    assert_eq!((open(&sealed.bytes), sealed.findings), (Ok(event), vec![]));
}

#[test]
fn sealing_redacts_a_copy_and_says_where() {
    let event = call(json!({"password": "hunter2", "argv": ["echo", "token=abc"]}));
    let before = event.clone();
    let sealed = seal(&event).unwrap();
    assert_eq!(event, before);
    let text = String::from_utf8(sealed.bytes.clone()).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("token=abc"), "{text}");
    assert_eq!(
        sealed.findings,
        [
            Finding { path: "/data/input/argv/1".to_owned(), rule: "assignment", count: 1 },
            Finding { path: "/data/input/password".to_owned(), rule: "key", count: 1 },
        ]
    );
    assert!(admit(&sealed.bytes, Writer::AgentSvc).is_ok());
}

#[test]
fn the_ledger_refuses_what_redaction_would_still_change() {
    let raw = canon::to_bytes(&call(json!({"password": "hunter2"})).to_value().unwrap()).unwrap();
    assert_eq!(admit(&raw, Writer::AgentSvc), Err(Refusal::Unredacted { rule: "key" }));
}
