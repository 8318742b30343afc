//! Executions at sandbox-svc: attached to until their end is heard, told while they go on, stopped when they must be. A
//! dropped stream never cancels one.

use std::time::Duration;

use event::id::CallId;
use event::{Data, OutputStream, SandboxStopped, ToolError};
use kernel::{Basis, Reason, Report};
use proto::common::v1::{Empty, Lost, Refused};
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::finished::Outcome as Ended;
use proto::sandbox::v1::get_execution_response::State;
use tonic::Streaming;
use tracing::error;
use transport::{Code, Fault};

use super::super::{Errand, GRANT_EXPIRED, Pause, Then};
use super::{INTERNAL_FAILURES, Order, lost, refused, seen};
use crate::session::content::{Content, Outcome};
use crate::session::progress::{Piece, Pieces, Progress};
use crate::{bound, ids};

/// Output is told this often.
const OUTPUT_EVERY: Duration = Duration::from_millis(100);
/// A request to stop is repeated until the end is heard.
const STOP_EVERY: Duration = Duration::from_secs(1);

/// What came of one attachment.
enum Heard {
    Finished(Box<wire::Finished>),
    Interrupted,
    Fault(Fault),
}

/// Nothing, when the errand was dropped.
pub(super) async fn attend(
    errand: &Errand,
    order: &Order,
    receipts: &[Vec<u8>],
    mut known: bool,
) -> Option<(Report, Content)> {
    let mut pause = Pause::new();
    let mut offset = order.entry.output.offset;
    let mut internal = 0;
    loop {
        let heard = match if known { remembered(errand, order).await } else { None } {
            Some(heard) => heard,
            None if order.stop.is_cancelled() => Heard::Interrupted,
            None => attach(errand, order, receipts, &mut offset).await,
        };
        known = true;
        if let Heard::Finished(finished) = &heard
            && is_ungranted(finished)
        {
            errand.unfenced().await;
            return None;
        }
        if order.stop.is_cancelled() && !matches!(heard, Heard::Finished(_)) {
            errand.tell(super::super::Report::LostSight).await;
            return None;
        }
        match heard {
            Heard::Finished(finished) => {
                return Some(report((order.call, order.attempt), order.basis, *finished));
            }
            Heard::Interrupted => pause.wait().await,
            Heard::Fault(fault) if fault.code == Code::Internal => {
                internal += 1;
                if internal > INTERNAL_FAILURES {
                    return Some(lost(true, Reason::of("EXECUTOR_FAILED")));
                }
                pause.wait().await;
            }
            Heard::Fault(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, detail) => {
                    return Some((Report::Refused { reason }, Content::Detail(detail)));
                }
                Then::Dropped => return None,
            },
        }
    }
}

/// What sandbox-svc knows about the call, if that is the whole story. Otherwise it is attached to: that begins what is
/// not known, goes along with what runs, and tells again how a container began. Nor is a loss the whole story: no attempt
/// is named with it, and while this one has not been begun it is that of the one before.
async fn remembered(errand: &Errand, order: &Order) -> Option<Heard> {
    match errand.runtime.peers.sandbox.execution(errand.owner, order.call).await {
        Ok(wire::GetExecutionResponse { state: Some(State::Finished(finished)) })
            if !is_lost(&finished)
                && (finished.stopped_data.is_empty() || order.entry.announced >= order.attempt) =>
        {
            Some(Heard::Finished(Box::new(finished)))
        }
        Ok(_) => None,
        Err(fault) => Some(Heard::Fault(fault)),
    }
}

fn is_lost(finished: &wire::Finished) -> bool {
    matches!(finished.outcome, Some(Ended::Lost(_)))
}

/// Says nothing about the call, which may even run.
fn is_ungranted(finished: &wire::Finished) -> bool {
    matches!(&finished.outcome, Some(Ended::Refused(refused)) if refused.reason == GRANT_EXPIRED)
}

async fn attach(errand: &Errand, order: &Order, receipts: &[Vec<u8>], offset: &mut u64) -> Heard {
    let target = errand.target(order.call, order.attempt);
    let tool = (order.entry.tool.as_str(), order.entry.arguments.as_slice());
    let sandbox = &errand.runtime.peers.sandbox;
    let stream = sandbox.execute(errand.owner, target, tool, order.plan, receipts, *offset).await;
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(fault) => return Heard::Fault(fault),
    };
    let mut pieces = Pieces::default();
    let heard = listen(errand, order, &mut stream, &mut pieces, offset).await;
    tell(errand, order.call, pieces.flush()).await;
    heard
}

async fn listen(
    errand: &Errand,
    order: &Order,
    stream: &mut Streaming<wire::ExecuteResponse>,
    pieces: &mut Pieces,
    offset: &mut u64,
) -> Heard {
    loop {
        let next = tokio::select! {
            next = stream.message() => next,
            () = tokio::time::sleep(OUTPUT_EVERY), if !pieces.is_settled() => {
                tell(errand, order.call, pieces.settle()).await;
                continue;
            }
        };
        match next.map_err(Fault::from) {
            Ok(Some(wire::ExecuteResponse { message })) => match message {
                Some(Message::Started(wire::Started { data })) => {
                    started(errand, order, &data).await;
                }
                Some(Message::Output(output)) => {
                    let Some((of, at, bytes)) = parse(output) else { continue };
                    *offset = at + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    tell(errand, order.call, pieces.add(of, at, &bytes)).await;
                }
                Some(Message::Finished(finished)) => return Heard::Finished(Box::new(finished)),
                None => (),
            },
            Ok(None) => return Heard::Interrupted,
            Err(fault) => return Heard::Fault(fault),
        }
    }
}

fn parse(output: wire::Output) -> Option<Piece> {
    let stream = match output.stream() {
        wire::Stream::Stdout => OutputStream::Stdout,
        wire::Stream::Stderr => OutputStream::Stderr,
        wire::Stream::Unspecified => return None,
    };
    let wire::Output { offset, bytes, stream: _ } = output;
    Some((stream, offset, bytes))
}

async fn tell(errand: &Errand, call: CallId, pieces: impl IntoIterator<Item = Piece>) {
    for (stream, offset, bytes) in pieces {
        errand.progress(Progress::Printed { call, stream, offset, bytes }).await;
    }
}

async fn started(errand: &Errand, order: &Order, data: &[u8]) {
    match Data::parse("sandbox.started", data) {
        Ok(Data::SandboxStarted(started))
            if (started.run_id, started.call_id, started.attempt)
                == (errand.run, order.call, order.attempt) =>
        {
            errand.progress(Progress::Started(started)).await;
        }
        Ok(_) | Err(_) => error!(call = %order.call, "executor tells the start of something else"),
    }
}

/// What a finished execution means to the run, and what is told of it.
fn report(
    (call, attempt): (CallId, u32),
    basis: Basis,
    finished: wire::Finished,
) -> (Report, Content) {
    let wire::Finished { outcome, result_json, stopped_data, duration_ms, .. } = finished;
    let failed = |code: &str, message: String| {
        (Report::Failed, Some(ToolError { code: code.to_owned(), message }))
    };
    let (report, error) = match outcome {
        Some(Ended::Exited(wire::Exited { code: 0 }) | Ended::Done(Empty {})) => {
            (Report::Succeeded, None)
        }
        Some(Ended::Exited(wire::Exited { code })) => {
            failed("EXIT_STATUS", format!("the command ended with exit status {code}"))
        }
        Some(Ended::TimedOut(_)) => {
            failed("TIMED_OUT", "the call took longer than it may".to_owned())
        }
        Some(Ended::OutputLimit(_)) => {
            failed("OUTPUT_LIMIT", "the call wrote more than it may".to_owned())
        }
        Some(Ended::OomKilled(_)) => {
            failed("OOM_KILLED", "the call needed more memory than it may".to_owned())
        }
        Some(Ended::StartFailed(wire::StartFailed { cause })) => failed("START_FAILED", cause),
        Some(Ended::Canceled(_)) => (
            Report::Stopped,
            Some(ToolError { code: "CANCELED".into(), message: "the call was stopped".into() }),
        ),
        Some(Ended::Refused(Refused { reason, detail })) => {
            return (refused(&reason, basis), Content::Detail(detail));
        }
        Some(Ended::Lost(Lost { may_have_run })) => {
            return lost(may_have_run, Reason::of("EXECUTION_LOST"));
        }
        None => return lost(true, Reason::of("EXECUTION_LOST")),
    };
    let outcome = Outcome {
        output: (!result_json.is_empty()).then(|| bound::json(&result_json)),
        error,
        may_have_run: true,
        duration_ms: Some(duration_ms),
        stopped: stopped(call, attempt, &stopped_data),
    };
    (report, Content::Result(Box::new(outcome)))
}

fn stopped(call: CallId, attempt: u32, data: &[u8]) -> Option<SandboxStopped> {
    if data.is_empty() {
        return None;
    }
    match Data::parse("sandbox.stopped", data) {
        Ok(Data::SandboxStopped(stopped))
            if (stopped.call_id, stopped.attempt) == (call, attempt) =>
        {
            Some(stopped)
        }
        Ok(_) | Err(_) => {
            error!(%call, "executor tells the end of something else");
            None
        }
    }
}

/// Asks again and again that a call be stopped whose end another errand will hear.
pub(in crate::session) async fn nudge(errand: Errand, call: CallId) {
    loop {
        stop(&errand, call).await;
        tokio::time::sleep(STOP_EVERY).await;
    }
}

async fn stop(errand: &Errand, call: CallId) {
    if let Err(fault) = errand.runtime.peers.sandbox.cancel(errand.owner, call).await {
        tracing::warn!(%call, reason = fault.reason, "call cannot be stopped yet");
    }
}

/// Brings a call to its end that nobody listens to, without ever beginning it.
pub(in crate::session) async fn wind_up(
    errand: Errand,
    call: CallId,
    attempt: u32,
    delegates: bool,
) {
    let mut pause = Pause::new();
    let (report, content) = loop {
        stop(&errand, call).await;
        match errand.runtime.peers.sandbox.execution(errand.owner, call).await {
            // Also when it is the end of the attempt before: then this one was never begun, and nothing else came of the
            // call.
            Ok(wire::GetExecutionResponse { state: Some(State::Finished(finished)) }) => {
                // Nobody is asked about what is being wound up.
                break report((call, attempt), Basis::Policy, finished);
            }
            Ok(wire::GetExecutionResponse { state: Some(State::NotFound(_)) }) => {
                break (Report::Stopped, Content::Bare);
            }
            Ok(_) => pause.wait().await,
            Err(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, _) => break lost(true, reason),
                Then::Dropped => return,
            },
        }
    };
    let (seen, content) = seen((ids::of_call(call), attempt), report, content, delegates);
    errand.done(seen, content).await;
}
