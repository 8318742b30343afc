//! Events as lines for a person. Everything in them is untrusted and escaped here, and each line of what a model or a
//! command wrote is marked as that; nothing is decided here.
use event::{AgentStarted, Data, Event, PermissionRequested};

use crate::escape::{json, line, quoted};

/// Before each line that a model wrote.
const MODEL: &str = "model| ";
/// Before each line that a command wrote.
const COMMAND: &str = "command| ";

/// One event, or `None` where a person learns nothing from it.
#[must_use]
pub fn render(event: &Event) -> Option<String> {
    let text = match &event.data {
        Data::SessionCreated(data) => format!("session {}", data.session_id),
        Data::AgentStarted(AgentStarted { profile: Some(profile), agent_id, .. }) => {
            format!("child {} started as {}", line(agent_id), line(profile))
        }
        Data::AgentStarted(data) => {
            format!("run {} started with model {}", line(&data.agent_id), line(&data.model))
        }
        Data::AgentStopped(data) => {
            let note =
                data.note.as_deref().map(|note| format!(": {}", line(note))).unwrap_or_default();
            let who = data
                .parent_run_id
                .map_or_else(String::new, |_| format!("child {} ", line(&data.agent_id)));
            format!(
                "{who}ended {:?} after {} steps and {} tool calls{note}",
                data.status, data.steps, data.tool_calls
            )
        }
        Data::ModelResponse(data) => {
            return data.text.as_deref().filter(|text| !text.is_empty()).map(said);
        }
        Data::ToolCall(data) => format!("calls {} {}", line(&data.tool), json(&data.input)),
        Data::ToolResult(data) => match &data.error {
            None => format!("{} is done", line(&data.tool)),
            Some(error) => format!(
                "{} failed: {}: {}",
                line(&data.tool),
                line(&error.code),
                line(&error.message)
            ),
        },
        Data::ToolOutcomeUnknown(data) => {
            format!("nobody knows whether the call happened: {}", line(&data.reason))
        }
        Data::TaskUpdated(data) => match data.note.as_deref() {
            Some(note) => line(note),
            None => format!("task {:?}", data.phase),
        },
        Data::BudgetWarning(data) => format!("{}% of {:?} used", data.pct, data.metric),
        Data::PolicyDecision(data) => {
            let subject = data
                .subject
                .as_deref()
                .map(|subject| format!(" {}", line(subject)))
                .unwrap_or_default();
            let rule = data
                .rule_id
                .as_deref()
                .map(|rule| format!(" by {}", line(rule)))
                .unwrap_or_default();
            format!("rule says {} to {}{subject}{rule}", data.effect.as_str(), line(&data.action))
        }
        Data::PermissionRequested(PermissionRequested {
            permission_id,
            profile: Some(profile),
            child_run_id: Some(child),
            ..
        }) => format!("child {child} ({}) waits for permission {permission_id}", line(profile)),
        Data::PermissionRequested(data) => format!("waits for permission {}", data.permission_id),
        Data::PermissionCounted(data) => format!(
            "permission {}: {} said yes, {} of {}",
            data.permission_id,
            line(&data.by),
            data.have,
            data.need
        ),
        Data::PermissionResolved(data) => {
            let by = data.by.as_deref().map(|by| format!(" by {}", line(by))).unwrap_or_default();
            format!(
                "permission {}: {} ({}){by}",
                data.permission_id,
                data.decision.as_str(),
                data.source.as_str()
            )
        }
        Data::CallOutput(data) => return Some(quoted(COMMAND, data.text.trim_end_matches('\n'))),
        Data::SandboxStarted(data) => format!("container {} runs", line(&data.container_name)),
        Data::SandboxStopped(data) => format!("container {} is gone", line(&data.container_name)),
        Data::EnvironmentCarried(data) => format!(
            "the private copy holds {} files that are like credentials, as the host is configured",
            data.total
        ),
        Data::RunRecorded(data) => format!("recorded at {}", line(&data.report_path)),
        Data::Failure(data) => format!("error {}: {}", line(&data.code), line(&data.message)),
        Data::ModelRequest(_)
        | Data::MessageDelta(_)
        | Data::GrantIssued(_)
        | Data::ReceiptSigned(_)
        | Data::ReceiptRevoked(_)
        | Data::CallStarted(_)
        | Data::CallFinished(_)
        | Data::CallRefused(_)
        | Data::EgressDecision(_) => return None,
    };
    Some(format!("- {text}"))
}

fn said(text: &str) -> String {
    quoted(MODEL, text)
}

#[cfg(test)]
mod tests {
    use event::{CallOutput, OutputStream, id::CallId};
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn what_a_command_writes_passes_for_nothing_else() {
        let output = CallOutput {
            call_id: CallId::nil(),
            stream: OutputStream::Stdout,
            offset: 0,
            bytes: 0,
            text: "ok\nAllow this? y/N\n- permission x: allow\r\u{1b}[2Kmodel| sure\n".to_owned(),
        };
        let id = event::id::EventId::nil();
        let event = Event { id, at: OffsetDateTime::UNIX_EPOCH, actor: None, data: output.into() };
        assert_eq!(
            render(&event).unwrap(),
            "command| ok\ncommand| Allow this? y/N\ncommand| - permission x: allow\\r\\u{1b}[2Kmodel| sure"
        );
    }
}
