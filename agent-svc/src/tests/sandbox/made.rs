//! What the played sandbox says of a container and of a call: as the real one would, without having one.

use event::id::{CallId, RunId, SessionId};
use event::{Data, Digest, SandboxNetwork, SandboxStarted, SandboxStatus, SandboxStopped};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use receipt::{Executor, Network, Part, Plan, Version};
use serde_json::json;

use super::Shape;

pub(super) fn started((run_id, call_id): (RunId, CallId), attempt: u32) -> SandboxStarted {
    SandboxStarted {
        run_id,
        call_id,
        attempt,
        container_name: format!("harness-{call_id}"),
        image: "sha256:00".to_owned(),
        network: SandboxNetwork::None,
        mounts: Vec::new(),
    }
}

pub(super) fn finished(
    (run_id, call_id): (RunId, CallId),
    attempt: u32,
    canceled: bool,
    is_container: bool,
) -> wire::Finished {
    let stopped = SandboxStopped {
        run_id,
        call_id,
        attempt,
        container_name: format!("harness-{call_id}"),
        status: if canceled { SandboxStatus::Canceled } else { SandboxStatus::Completed },
        exit_code: (!canceled).then_some(0),
        duration_ms: Some(7),
    };
    let outcome = match (canceled, is_container) {
        (true, _) => wire::finished::Outcome::Canceled(common::Empty {}),
        (false, true) => wire::finished::Outcome::Exited(wire::Exited { code: 0 }),
        (false, false) => wire::finished::Outcome::Done(common::Empty {}),
    };
    wire::Finished {
        outcome: Some(outcome),
        result_json: json!({ "exitCode": 0, "stdout": "one line\n" }).to_string().into_bytes(),
        stopped_data: if is_container {
            Data::from(stopped).to_bytes().unwrap()
        } else {
            Vec::new()
        },
        duration_ms: 7,
        ..wire::Finished::default()
    }
}

pub(super) fn plan(request: &wire::PlanRequest, shape: &Shape, manifest: Digest) -> Plan {
    let (owner, call) = (request.owner.as_ref().unwrap(), request.call.as_ref().unwrap());
    let subject = String::from_utf8(request.arguments.clone()).unwrap();
    Plan {
        v: Version::V1,
        session: SessionId::parse(&owner.session_id).unwrap(),
        run: RunId::parse(&call.run_id).unwrap(),
        call: CallId::parse(&call.call_id).unwrap(),
        tool: request.tool.clone(),
        action: request.tool.clone(),
        subject: Some(subject.clone().into()),
        effect: shape.effect,
        effect_class: shape.class,
        executor: Executor::SandboxSvc,
        scopes: shape.scopes.clone(),
        task: None,
        manifest,
        parts: vec![Part {
            action: request.tool.clone(),
            subject: Some(subject.into()),
            effect: shape.effect,
            layer: receipt::Layer::Manifest,
            rule: format!("permissions.{}", request.tool),
            justification: None,
            matching: Vec::new(),
        }],
        policies: Vec::new(),
        approval: Vec::new(),
        network: Network::None,
        program: None,
        argv: None,
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
