//! Tool calls in the catalogue, and what the model is told about each: exactly one answer.

use event::id::CallId;
use event::{ActorKind, Executor, SealError, ToolCall, ToolError, ToolOutcomeUnknown, ToolResult};
use kernel::{CallEnd, DenySource};
use receipt::{Effect, Part};
use serde_json::{Value, json};

use super::{Draft, actor, service};
use crate::session::content::{Content, Outcome};
use crate::store::{Change, State};
use crate::{bound, transcript};

/// Of a rule's name and of its author's words.
const MAX_RULE: usize = 400;

impl Draft<'_> {
    pub(super) fn call_started(&mut self, id: CallId) -> Result<(), SealError> {
        let Some(call) = self.call(id) else { return Ok(()) };
        let input = match bound::json(&call.arguments) {
            input @ Value::Object(_) => input,
            other => json!({ "arguments": other }),
        };
        let data = ToolCall { call_id: id, tool: call.tool.clone(), input };
        // Who it was, the start of the run says.
        let who = match self.after.is_given() {
            true => actor(ActorKind::Operator),
            false => self.agent(),
        };
        self.event(who, data)?;
        Ok(())
    }

    pub(super) fn outcome_unknown(
        &mut self,
        id: CallId,
        attempt: u32,
        reason: &kernel::Reason,
    ) -> Result<(), SealError> {
        let data = ToolOutcomeUnknown {
            call_id: id,
            attempt,
            executor: self.call(id).and_then(|call| call.executor).unwrap_or(Executor::SandboxSvc),
            may_have_run: match self.scene.content {
                Content::Result(result) => result.may_have_run,
                _ => true,
            },
            reason: reason.as_str().to_owned(),
        };
        self.event(actor(ActorKind::Kernel), data)?;
        self.change(Change::Entered(State::NeedsOperator));
        Ok(())
    }

    pub(super) fn call_ended(&mut self, id: CallId, end: &CallEnd) -> Result<(), SealError> {
        if let CallEnd::Skipped { .. } = end {
            self.call_started(id)?;
        }
        let Some(call) = self.call(id) else { return Ok(()) };
        let (tool, provider_id) = (call.tool.clone(), call.provider_id.clone());
        let who = call.executor.map_or_else(|| actor(ActorKind::Kernel), service);
        let Told { output, error, duration_ms } = told(end, self.scene.content);
        let content = spoken(output.as_ref(), error.as_ref());
        let ok = error.is_none();
        let data = ToolResult { call_id: id, tool, ok, output, error, duration_ms };
        self.event(who, data)?;
        self.change(Change::Said(transcript::tool(provider_id, ok, content)));
        Ok(())
    }
}

struct Told {
    output: Option<Value>,
    error: Option<ToolError>,
    duration_ms: Option<u64>,
}

fn told(end: &CallEnd, content: &Content) -> Told {
    let failed = |code: &str, message: &str| Told {
        output: None,
        error: Some(ToolError { code: code.to_owned(), message: message.to_owned() }),
        duration_ms: None,
    };
    let detail = match content {
        Content::Detail(detail) => detail.as_str(),
        _ => "",
    };
    match (end, content) {
        (
            CallEnd::Succeeded | CallEnd::Failed | CallEnd::Stopped | CallEnd::Refused { .. },
            Content::Withheld,
        ) => failed("EVENT_REDACTION_FAILED", "the result cannot be recorded, so it is withheld"),
        (CallEnd::Succeeded, Content::Plan(planned)) => {
            Told { output: planned.result.clone(), error: None, duration_ms: None }
        }
        (CallEnd::Succeeded, Content::Result(result) | Content::Child { result, .. }) => {
            Told { output: result.output.clone(), error: None, duration_ms: result.duration_ms }
        }
        (
            CallEnd::Failed | CallEnd::Stopped | CallEnd::Lost { .. },
            Content::Result(result) | Content::Child { result, .. },
        ) => {
            let Outcome { output, error, duration_ms, .. } = result.as_ref();
            let fallback =
                || ToolError { code: "FAILED".into(), message: "the call failed".into() };
            let error = Some(error.clone().unwrap_or_else(fallback));
            Told { output: output.clone(), error, duration_ms: *duration_ms }
        }
        (CallEnd::Succeeded, _) => Told { output: None, error: None, duration_ms: None },
        (CallEnd::Failed, _) => failed("FAILED", "the call failed"),
        (CallEnd::Stopped, _) => failed("CANCELED", "the call was stopped"),
        (CallEnd::Denied { source }, _) => failed("PERMISSION_DENIED", &denied(*source, content)),
        (CallEnd::Refused { reason }, _) => failed(reason.as_str(), detail),
        (CallEnd::Lost { reason }, _) => failed(reason.as_str(), "the call was lost"),
        (CallEnd::Unknown, _) => failed("OUTCOME_UNKNOWN", "nobody knows whether the call ran"),
        (CallEnd::MarkedDone { .. }, _) => Told {
            output: Some(json!({ "note": "an operator confirmed that the call ran" })),
            error: None,
            duration_ms: None,
        },
        (CallEnd::MarkedFailed { .. }, _) => {
            failed("MARKED_FAILED", "an operator said that the call did not run")
        }
        (CallEnd::Abandoned { .. } | CallEnd::Skipped { .. }, _) => {
            failed("RUN_ENDED", "the run ended before the call could run")
        }
    }
}

/// An expiry or an absence must not read like a person's no.
fn denied(source: DenySource, content: &Content) -> String {
    let why = match source {
        DenySource::Operator => "a person said no",
        DenySource::MalformedAnswer => "the answer could not be understood",
        DenySource::Timeout => "nobody answered in time",
        DenySource::Cancel => "the run was canceled",
        DenySource::Disconnect => "everyone who could answer has left",
        DenySource::MissingResolver => "nobody is there who could answer",
        DenySource::SessionEnd => "the session ended",
        DenySource::Policy => "a rule denies it",
        DenySource::System => "the run could not go on",
    };
    match content {
        Content::Standing { note: Some(note) } => format!("{why}: {note}"),
        Content::Plan(planned) if source == DenySource::Policy => {
            let rule = planned.plan.parts.iter().find(|part| part.effect == Effect::Deny).map(rule);
            rule.map_or_else(|| why.to_owned(), |rule| format!("{why}: {rule}"))
        }
        _ => why.to_owned(),
    }
}

/// Whose it is and in whose words.
fn rule(Part { layer, rule, justification, .. }: &Part) -> String {
    let short = |text: &str| bound::ends(text, MAX_RULE);
    let why = justification.as_deref().map(|why| format!(" ({})", short(why)));
    format!("the {}'s {}{}", layer.as_str(), short(rule), why.unwrap_or_default())
}

/// The words for the model.
fn spoken(output: Option<&Value>, error: Option<&ToolError>) -> String {
    match (output, error) {
        (Some(output), None) => output.to_string(),
        (None, None) => json!({}).to_string(),
        (output, Some(ToolError { code, message })) => {
            let mut words = json!({ "error": { "code": code, "message": message } });
            if let (Value::Object(words), Some(output)) = (&mut words, output) {
                words.insert("output".to_owned(), output.clone());
            }
            words.to_string()
        }
    }
}
