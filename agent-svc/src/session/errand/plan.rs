//! Asks a call's executor for its plan and checks that the plan is about this call. It repeats what the executor decided.

use event::Digest;
use event::id::{CallId, SessionId};
use kernel::{Finish, Scope, Seen, Verdict};
use proto::common::v1::{Refused, ToolResult};
use proto::{model::v1 as model, sandbox::v1 as sandbox};
use receipt::{Effect, EffectClass, Executor, Plan};
use transport::Fault;

use super::{Errand, GRANT_EXPIRED, Pause, Then, parsed};
use crate::session::content::{Content, Planned};
use crate::work::Call;
use crate::{bound, ids};

/// What a plan of this run must name.
pub(in crate::session) struct Expected {
    pub(in crate::session) session: SessionId,
    pub(in crate::session) manifest: Digest,
}

enum Answer {
    Planned { plan: Vec<u8>, result: Option<ToolResult> },
    Refused { reason: String, detail: String },
}

pub(in crate::session) async fn plan(
    errand: Errand,
    (call, attempt): (CallId, u32),
    entry: Call,
    expected: Expected,
) {
    let (seen, content) = match asked(&errand, (call, attempt), &entry).await {
        Some(Answer::Planned { plan, result }) => {
            match planned(&errand, call, &entry, &expected, plan, result) {
                Ok(planned) => seen(call, planned),
                Err(Unfit { reason, detail }) => refused(call, reason, detail),
            }
        }
        Some(Answer::Refused { reason, detail }) => refused(call, &reason, &detail),
        None => return,
    };
    errand.done(seen, content).await;
}

fn refused(call: CallId, reason: &str, detail: &str) -> (Seen, Content) {
    let seen = Seen::PlanRefused { call: ids::of_call(call), reason: parsed(reason) };
    (seen, Content::Detail(detail.to_owned()))
}

/// Nothing, when the errand was dropped.
async fn asked(errand: &Errand, call: (CallId, u32), entry: &Call) -> Option<Answer> {
    let no = |reason: &str, detail: &str| {
        Some(Answer::Refused { reason: reason.to_owned(), detail: detail.to_owned() })
    };
    let Some(executor) = entry.executor else {
        return no("TOOL_UNKNOWN", "there is no such tool");
    };
    let arguments = event::canon::parse_untrusted(&entry.arguments);
    if !arguments.is_ok_and(|arguments| arguments.is_object()) {
        return no("ARGUMENTS_INVALID", "the arguments are not a JSON object within the limits");
    }
    let mut pause = Pause::new();
    loop {
        match request(errand, executor, call, entry).await {
            Ok(Answer::Refused { reason, .. }) if reason == GRANT_EXPIRED => {
                errand.unfenced().await;
                return None;
            }
            Ok(answer) => return Some(answer),
            Err(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, detail) => return no(reason.as_str(), &detail),
                Then::Dropped => return None,
            },
        }
    }
}

async fn request(
    errand: &Errand,
    executor: Executor,
    (call, attempt): (CallId, u32),
    entry: &Call,
) -> Result<Answer, Fault> {
    let (peers, owner) = (&errand.runtime.peers, errand.owner);
    let (target, arguments) = (errand.target(call, attempt), entry.arguments.as_slice());
    let refused = |Refused { reason, detail }| Answer::Refused { reason, detail };
    let nothing = || Answer::Refused {
        reason: "PLAN_INVALID".to_owned(),
        detail: "the executor answered neither with a plan nor with a refusal".to_owned(),
    };
    match executor {
        Executor::SandboxSvc => {
            let answer = peers.sandbox.plan(owner, target, &entry.tool, arguments).await?;
            Ok(match answer.outcome {
                Some(sandbox::plan_response::Outcome::Planned(sandbox::Planned {
                    plan,
                    result,
                })) => Answer::Planned { plan, result },
                Some(sandbox::plan_response::Outcome::Refused(refusal)) => refused(refusal),
                None => nothing(),
            })
        }
        Executor::ModelSvc => {
            let answer = peers.model.plan(owner, target, &entry.tool, arguments).await?;
            Ok(match answer.outcome {
                Some(model::plan_response::Outcome::Planned(model::Planned { plan, result })) => {
                    Answer::Planned { plan, result }
                }
                Some(model::plan_response::Outcome::Refused(refusal)) => refused(refusal),
                None => nothing(),
            })
        }
    }
}

/// Why a plan cannot be shown or acted on.
struct Unfit {
    reason: &'static str,
    detail: &'static str,
}

fn planned(
    errand: &Errand,
    call: CallId,
    entry: &Call,
    expected: &Expected,
    bytes: Vec<u8>,
    result: Option<ToolResult>,
) -> Result<Planned, Unfit> {
    let invalid = |detail| Unfit { reason: "PLAN_INVALID", detail };
    let plan = Plan::parse(&bytes).map_err(|_| invalid("the executor's plan cannot be read"))?;
    let is_ours = plan.session == expected.session
        && plan.run == errand.run
        && plan.call == call
        && plan.tool == entry.tool
        && Some(plan.executor) == entry.executor
        && plan.manifest == expected.manifest;
    if !is_ours {
        return Err(invalid("the executor's plan is about something else"));
    }
    let shown =
        event::canon::parse(&bytes).map_err(|_| invalid("the executor's plan cannot be shown"))?;
    if event::redact::holds_secret(&shown) {
        let detail = "the plan holds something that must not be shown, so nobody can approve it";
        return Err(Unfit { reason: "PLAN_HOLDS_SECRET", detail });
    }
    let action_digest =
        plan.action_digest().map_err(|_| invalid("the executor's plan cannot be shown"))?;
    Ok(Planned {
        digest: receipt::plan_digest(&bytes),
        action_digest,
        shown,
        result: result.map(|ToolResult { json }| bound::json(&json)),
        plan,
        bytes,
    })
}

fn seen(call: CallId, planned: Planned) -> (Seen, Content) {
    let seen = Seen::Planned(kernel::Planned {
        call: ids::of_call(call),
        plan: kernel::Plan {
            digest: kernel::Digest(*planned.digest.as_bytes()),
            action: kernel::Digest(*planned.action_digest.as_bytes()),
            class: class(planned.plan.effect_class),
            scopes: planned.plan.scopes.iter().copied().map(scope).collect(),
        },
        verdict: verdict(planned.plan.effect),
        parts: planned.plan.parts.iter().map(|part| verdict(part.effect)).collect(),
        result: planned.result.as_ref().map(|_| Finish::Succeeded),
    });
    (seen, Content::Plan(Box::new(planned)))
}

fn verdict(effect: Effect) -> Verdict {
    match effect {
        Effect::Allow => Verdict::Allow,
        Effect::Ask => Verdict::Ask,
        Effect::Deny => Verdict::Deny,
    }
}

fn scope(scope: receipt::Scope) -> Scope {
    match scope {
        receipt::Scope::Once => Scope::Once,
        receipt::Scope::Run => Scope::Run,
    }
}

fn class(class: EffectClass) -> kernel::EffectClass {
    match class {
        EffectClass::Pure => kernel::EffectClass::Pure,
        EffectClass::Idempotent => kernel::EffectClass::Idempotent,
        EffectClass::Staged => kernel::EffectClass::Staged,
        EffectClass::Irreversible => kernel::EffectClass::Irreversible,
    }
}
