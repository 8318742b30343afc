//! Ledgers that a demonstration must not pass with: something twice, something missing, something that leaks.
use event::{
    CallFinished, CallOutput, CallRefused, CallStarted, Digest, EffectClass, OutputStream,
    ReceiptSigned, SandboxNetwork, SandboxStarted, SandboxStatus, SandboxStopped, Scope, Stage,
    ToolError, ToolResult,
    id::{EventId, ReceiptId, RunId},
};
use time::OffsetDateTime;

use super::*;

fn session() -> SessionId {
    SessionId::parse("0198f000-0000-7000-8000-000000000001").unwrap()
}

fn call(number: u8) -> CallId {
    CallId::parse(&format!("0198f000-0000-7000-8000-0000000000c{number}")).unwrap()
}

fn permission(number: u8) -> PermissionId {
    PermissionId::parse(&format!("0198f000-0000-7000-8000-0000000000d{number}")).unwrap()
}

fn entry(writer: Writer, data: impl Into<Data>) -> Entry {
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::UNIX_EPOCH,
        actor: None,
        data: data.into(),
    };
    Entry {
        writer: writer.to_string(),
        session_id: session().to_string(),
        event: event::seal(&event).unwrap().bytes,
        ..Entry::default()
    }
}

fn started(number: u8, tool: &str) -> Entry {
    entry(
        Writer::SandboxSvc,
        CallStarted {
            call_id: call(number),
            run_id: RunId::nil(),
            attempt: 1,
            tool: tool.to_owned(),
            effect_class: EffectClass::Staged,
            plan_digest: Digest::of(b"plan"),
            permission_id: Some(permission(number)),
            rules: Vec::new(),
        },
    )
}

fn finished(number: u8, status: CallStatus) -> Entry {
    let call_id = call(number);
    entry(
        Writer::SandboxSvc,
        CallFinished { call_id, attempt: 1, status, result_digest: None, duration_ms: 1 },
    )
}

fn container(number: u8) -> [Entry; 2] {
    let (run_id, call_id, container_name) = (RunId::nil(), call(number), "sbx".to_owned());
    let image = "sha256:00".to_owned();
    let started = SandboxStarted {
        run_id,
        call_id,
        attempt: 1,
        container_name: container_name.clone(),
        image,
        network: SandboxNetwork::None,
        mounts: Vec::new(),
    };
    let status = SandboxStatus::Completed;
    let stopped = SandboxStopped {
        run_id,
        call_id,
        attempt: 1,
        container_name,
        status,
        exit_code: Some(0),
        duration_ms: None,
    };
    [entry(Writer::SandboxSvc, started), entry(Writer::SandboxSvc, stopped)]
}

fn receipt(number: u8) -> Entry {
    let digest = Digest::of(b"plan");
    entry(
        Writer::Gateway,
        ReceiptSigned {
            permission_id: permission(number),
            session_id: session(),
            run_id: RunId::nil(),
            call_id: call(number),
            scope: Scope::Once,
            plan_digest: digest,
            action_digest: digest,
            subject: "ada".to_owned(),
            expires_at: OffsetDateTime::UNIX_EPOCH,
            receipt_id: ReceiptId::nil(),
            receipt: serde_json::json!({}),
        },
    )
}

/// What the first run leaves when all is well.
fn good() -> Vec<Entry> {
    let [up, down] = container(1);
    vec![
        receipt(1),
        started(1, "process.exec"),
        up,
        down,
        finished(1, CallStatus::Completed),
        receipt(2),
        started(2, "import_patch"),
        finished(2, CallStatus::Completed),
    ]
}

fn once(entries: &[Entry]) -> bool {
    Evidence::new(entries).unwrap().exactly_once(session()).against.is_none()
}

#[test]
fn each_call_has_one_receipt_one_start_and_one_end() {
    let good = good();
    assert!(once(&good));
    for missing in 0..good.len() {
        let mut entries = good.clone();
        entries.remove(missing);
        assert!(!once(&entries), "without {missing}");
    }
    for twice in 0..good.len() {
        let mut entries = good.clone();
        entries.push(good[twice].clone());
        assert!(!once(&entries), "{twice} twice");
    }
    let mut failed = good.clone();
    failed[4] = finished(1, CallStatus::Failed);
    assert!(!once(&failed));
    let mut more = good;
    more.extend([receipt(3), started(3, "import_patch"), finished(3, CallStatus::Completed)]);
    assert!(!once(&more));
}

fn refused(reason: &str) -> Entry {
    entry(
        Writer::SandboxSvc,
        CallRefused {
            call_id: Some(call(2)),
            session_id: session().to_string(),
            tool: Some("import_patch".to_owned()),
            stage: Stage::Execute,
            reason: reason.to_owned(),
            plan_digest: None,
            differs: None,
        },
    )
}

fn told(code: &str) -> Entry {
    let error = Some(ToolError { code: code.to_owned(), message: "changed".to_owned() });
    let tool = "import_patch".to_owned();
    entry(
        Writer::AgentSvc,
        ToolResult { call_id: call(2), tool, ok: false, output: None, error, duration_ms: None },
    )
}

fn asked() -> Entry {
    entry(
        Writer::AgentSvc,
        event::PermissionRequested {
            permission_id: permission(2),
            session_id: session(),
            call_id: None,
            action: "patch.import".to_owned(),
            subject: None,
            scope: Scope::Once,
            reason: None,
            plan: serde_json::json!({}),
            plan_digest: Digest::of(b"plan"),
            expires_at: OffsetDateTime::UNIX_EPOCH,
            child_run_id: None,
            profile: None,
        },
    )
}

#[test]
fn a_stale_import_is_refused_told_and_without_effect() {
    let blocked = |entries: &[Entry], kept: Result<(), String>| {
        Evidence::new(entries).unwrap().stale_import_blocked(session(), kept).against.is_none()
    };
    let good = [asked(), refused("HOST_CHANGED"), told("HOST_CHANGED")];
    assert!(blocked(&good, Ok(())));
    assert!(!blocked(&good, Err("changed: app.txt".to_owned())));
    assert!(!blocked(&[asked(), told("HOST_CHANGED")], Ok(())));
    assert!(!blocked(&[asked(), refused("PLAN_STALE"), told("PLAN_STALE")], Ok(())));
    assert!(!blocked(&[asked(), refused("HOST_CHANGED")], Ok(())));
    assert!(!blocked(&[asked(), asked(), refused("HOST_CHANGED"), told("HOST_CHANGED")], Ok(())));
    let ran = [&good[..], &[finished(2, CallStatus::Completed)]].concat();
    assert!(!blocked(&ran, Ok(())));
}

#[test]
fn a_leak_in_any_form_and_a_missing_redaction_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene::set(dir.path(), "sha256:00", "127.0.0.1:9".parse().unwrap()).unwrap();
    let output = |text: String| {
        let bytes = text.len() as u64;
        entry(
            Writer::AgentSvc,
            CallOutput { call_id: call(1), stream: OutputStream::Stdout, offset: 0, bytes, text },
        )
    };
    let redacted = |entries: &[Entry]| {
        let evidence = Evidence::new(entries).unwrap();
        let shown = evidence.output(session());
        evidence.redacted(&scene, &shown).against.is_none()
    };
    assert!(redacted(&[output(format!("OPENAI_API_KEY={}\n", scene.printed()))]));
    assert!(!redacted(&[output("nothing\n".to_owned())]));
    let shown = output(format!("OPENAI_API_KEY={}\n", scene.printed()));
    for leak in
        [scene.secret().to_owned(), hex::encode(scene.secret()), hex::encode(scene.printed())]
    {
        assert!(!redacted(&[shown.clone(), output(leak.clone())]), "{leak}");
    }
}

#[test]
fn the_client_saw_the_ledgers_bytes_in_order() {
    let entries = [told("A"), told("B")];
    let evidence = Evidence::new(&entries).unwrap();
    let texts: Vec<String> =
        entries.iter().map(|entry| String::from_utf8(entry.event.clone()).unwrap()).collect();
    assert_eq!(evidence.same_bytes(session(), &texts), Ok(()));
    let turned: Vec<String> = texts.iter().rev().cloned().collect();
    assert!(evidence.same_bytes(session(), &turned).is_err());
    assert!(evidence.same_bytes(session(), &texts[..1]).is_err());
}
