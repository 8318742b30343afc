//! Executions of remote tools at model-svc, which knows a call by its id and returns or attaches.

use kernel::{Reason, Report};
use proto::common::v1::{Empty, Lost, Refused, ToolResult};
use proto::model::v1 as wire;
use proto::model::v1::execute_response::Message;
use proto::model::v1::finished::Outcome as Ended;
use receipt::Signed;
use transport::{Code, Fault};

use super::super::{Errand, Pause, Then, parsed};
use super::{INTERNAL_FAILURES, Order, lost, refused};
use crate::bound;
use crate::session::content::{Content, Outcome};

/// Nothing, when the errand was dropped.
pub(super) async fn attend(
    errand: &Errand,
    order: &Order,
    receipt: Option<&Signed>,
) -> Option<(Report, Content)> {
    let mut pause = Pause::new();
    let mut internal = 0;
    loop {
        match listen(errand, order, receipt).await {
            Ok(Some(finished)) => return Some(report(finished, order)),
            Ok(None) => pause.wait().await,
            Err(fault) if fault.code == Code::Internal => {
                internal += 1;
                if internal > INTERNAL_FAILURES {
                    return Some(lost(true, Reason::of("EXECUTOR_FAILED")));
                }
                pause.wait().await;
            }
            Err(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, detail) => {
                    return Some((Report::Refused { reason }, Content::Detail(detail)));
                }
                Then::Dropped => return None,
            },
        }
    }
}

async fn listen(
    errand: &Errand,
    order: &Order,
    receipt: Option<&Signed>,
) -> Result<Option<wire::Finished>, Fault> {
    let target = errand.target(order.call, order.attempt);
    let tool = (order.entry.tool.as_str(), order.entry.arguments.as_slice());
    let model = &errand.runtime.peers.model;
    let mut stream = model.execute(errand.owner, target, tool, order.plan, receipt).await?;
    while let Some(wire::ExecuteResponse { message }) = stream.message().await? {
        if let Some(Message::Finished(finished)) = message {
            return Ok(Some(finished));
        }
    }
    Ok(None)
}

fn report(finished: wire::Finished, order: &Order) -> (Report, Content) {
    let wire::Finished { outcome, duration_ms } = finished;
    let told = |output, error| {
        let outcome = Outcome {
            output,
            error,
            may_have_run: true,
            duration_ms: Some(duration_ms),
            stopped: None,
        };
        Content::Result(Box::new(outcome))
    };
    match outcome {
        Some(Ended::Result(ToolResult { json })) => {
            (Report::Succeeded, told(Some(bound::json(&json)), None))
        }
        Some(Ended::Failed(wire::ModelError { kind, .. })) => {
            let message = "the remote tool failed".to_owned();
            let code = parsed(&kind).as_str().to_owned();
            (Report::Failed, told(None, Some(event::ToolError { code, message })))
        }
        Some(Ended::Canceled(Empty {})) => (Report::Stopped, told(None, None)),
        Some(Ended::Lost(Lost { may_have_run })) => {
            lost(may_have_run, Reason::of("EXECUTION_LOST"))
        }
        Some(Ended::Refused(Refused { reason, detail })) => {
            (refused(&reason, order.basis), Content::Detail(detail))
        }
        None => lost(true, Reason::of("EXECUTION_LOST")),
    }
}
