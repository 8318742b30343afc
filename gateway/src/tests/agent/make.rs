//! Events, asks and plans that are as they should be.
use event::id::{CallId, EventId, PermissionId, RunId, SessionId};
use event::{Actor, ActorKind, Data, Digest, Event, PermissionRequested};
use receipt::{
    Effect, EffectClass, Executor, Network, Part, Patch, Plan, Scope, Version, plan_digest,
};
use serde_json::json;
use time::OffsetDateTime;

pub(crate) fn sealed(data: impl Into<Data>) -> Vec<u8> {
    let actor = Actor { kind: ActorKind::Agent, id: None };
    let event = Event {
        id: EventId::new(),
        at: OffsetDateTime::now_utc(),
        actor: Some(actor),
        data: data.into(),
    };
    event::seal(&event).expect("an event").bytes
}

pub(crate) fn requested(permission_id: PermissionId, plan: &Plan) -> PermissionRequested {
    let bytes = plan.to_bytes().expect("fits");
    PermissionRequested {
        permission_id,
        session_id: plan.session,
        call_id: Some(plan.call),
        action: plan.action.clone(),
        subject: None,
        scope: Scope::Once,
        reason: None,
        plan: serde_json::from_slice(&bytes).expect("JSON"),
        plan_digest: plan_digest(&bytes),
        expires_at: OffsetDateTime::now_utc(),
        child_run_id: None,
        profile: None,
    }
}

pub(crate) fn plan(session: SessionId, run: RunId) -> Plan {
    let part = Part {
        action: "process.exec".to_owned(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        layer: receipt::Layer::Manifest,
        rule: "default".to_owned(),
        justification: None,
        matching: Vec::new(),
    };
    Plan {
        v: Version::V1,
        session,
        run,
        call: CallId::new(),
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: Some("cargo test".into()),
        effect: Effect::Ask,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once, Scope::Run],
        task: None,
        manifest: Digest::of(b"manifest"),
        parts: vec![part],
        policies: Vec::new(),
        approval: Vec::new(),
        network: Network::None,
        program: None,
        argv: Some(vec!["cargo".to_owned(), "test".to_owned()]),
        cwd: None,
        env: None,
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

/// Of a patch whose digest is that of its text.
pub(crate) fn import(session: SessionId, run: RunId, text: &str) -> Plan {
    let patch = json!({
        "digest": Digest::of(text.as_bytes()), "totals": { "entries": 1, "bytes": 1 },
        "protected": [], "deletions": [], "entries": [],
    });
    let patch: Patch = serde_json::from_value(patch).expect("a patch");
    let scopes = vec![Scope::Once];
    Plan { tool: "import_patch".to_owned(), scopes, patch: Some(patch), ..plan(session, run) }
}
