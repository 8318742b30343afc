//! Plans and asks for tests.

use event::{
    Digest, Effect, EffectClass, Event, Executor, Layer, PermissionRequested, Scope,
    id::{CallId, EventId, PermissionId, RunId, SessionId},
};
use receipt::{Network, Part, Plan, Version};
use time::OffsetDateTime;

use super::Ask;

pub(crate) const RUN: &str = "0198f000-0000-7000-8000-000000000002";

/// A command that a rule asks about, for once.
pub(crate) fn plan(argv: &[&str]) -> Plan {
    Plan {
        v: Version::V1,
        session: SessionId::nil(),
        run: RunId::parse(RUN).unwrap(),
        call: CallId::nil(),
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: None,
        effect: Effect::Ask,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once],
        task: None,
        manifest: Digest::of(b"manifest"),
        policies: Vec::new(),
        parts: vec![part("process.exec", None, Layer::Manifest, "default")],
        approval: Vec::new(),
        network: Network::None,
        argv: Some(argv.iter().map(|word| (*word).to_owned()).collect()),
        program: None,
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

pub(crate) fn part(action: &str, subject: Option<&str>, layer: Layer, rule: &str) -> Part {
    Part {
        action: action.to_owned(),
        subject: subject.map(Into::into),
        effect: Effect::Ask,
        layer,
        rule: rule.to_owned(),
        justification: None,
        matching: Vec::new(),
    }
}

pub(crate) fn ask(plan: &Plan) -> Ask {
    Ask::of(&asked(plan, PermissionId::nil())).unwrap()
}

/// The event that asks about it.
pub(crate) fn asked(plan: &Plan, permission_id: PermissionId) -> Event {
    let bytes = plan.to_bytes().unwrap();
    let requested = PermissionRequested {
        permission_id,
        session_id: plan.session,
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
    };
    let (id, at) = (EventId::nil(), OffsetDateTime::UNIX_EPOCH);
    Event { id, at, actor: None, data: requested.into() }
}
