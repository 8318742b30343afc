//! How a call ended, for everyone who is told: the caller, the model, the ledger. It only phrases.

use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::finished::Outcome as End;
use receipt::Plan;
use serde_json::{Value, json};

use crate::answer::text;
use crate::broker::{Connections, Denial};
use crate::calls::refused;
use crate::error::Error;
use crate::exec::Run;
use crate::lifecycle::{CommandEnd, Ended, How, Outcome, Way};
use crate::refusal::Refusal;
use crate::retake::Retaken;
use crate::store::Edited;
use crate::store::StoreError;
use crate::tree::Inventory;
use crate::tree::stamp::Changes;

/// How many paths of each kind a result names.
const SHOWN_CHANGES: usize = 200;

pub(crate) struct Report {
    pub(crate) finished: wire::Finished,
    pub(crate) status: event::CallStatus,
    /// What the ledger is told of a container.
    pub(crate) stopped: Option<event::Data>,
    /// The base after an import.
    pub(crate) base: Option<Inventory>,
    /// An import was applied.
    pub(crate) applied: bool,
    /// What an edit changed in the copy.
    pub(crate) edited: Option<Edited>,
}

/// What a command did to the workspace itself.
pub(crate) struct Direct<'a> {
    pub(crate) mounts: &'a [receipt::Mount],
    /// Missing where another process saw it begin.
    pub(crate) changes: Option<&'a Changes>,
    pub(crate) copy: &'a Retaken,
}

/// `started` is what the ledger was told of a container, if it was.
pub(crate) fn command_report(
    run: &Run<'_>,
    ended: &Ended,
    started: Option<&[u8]>,
    direct: Option<&Direct<'_>>,
) -> Result<Report, Error> {
    let outcome = ended.outcome();
    let row = run.row;
    let exit_code = match outcome {
        Outcome::Exited(code) => Some(code),
        Outcome::TimedOut
        | Outcome::OutputLimit
        | Outcome::OomKilled
        | Outcome::Canceled
        | Outcome::StartFailed(_)
        | Outcome::Refused { .. }
        | Outcome::Lost { .. } => None,
    };
    let stopped = started.map(container_name).transpose()?.map(|container_name| {
        event::Data::from(event::SandboxStopped {
            run_id: row.plan.run,
            call_id: row.plan.call,
            attempt: row.attempt,
            container_name,
            status: outcome.sandbox_status(),
            exit_code,
            duration_ms: Some(ended.duration_ms),
        })
    });
    let result_json = match outcome {
        Outcome::StartFailed(_) | Outcome::Refused { .. } | Outcome::Lost { .. } => Vec::new(),
        Outcome::Exited(_)
        | Outcome::TimedOut
        | Outcome::OutputLimit
        | Outcome::OomKilled
        | Outcome::Canceled => command_result(run.plan, ended, exit_code, direct)?,
    };
    let status = outcome.call_status();
    let finished = wire::Finished {
        outcome: Some(match outcome {
            Outcome::Exited(code) => End::Exited(wire::Exited { code }),
            Outcome::TimedOut => End::TimedOut(common::Empty {}),
            Outcome::OutputLimit => End::OutputLimit(common::Empty {}),
            Outcome::OomKilled => End::OomKilled(common::Empty {}),
            Outcome::Canceled => End::Canceled(common::Empty {}),
            Outcome::StartFailed(cause) => End::StartFailed(wire::StartFailed { cause }),
            Outcome::Refused { reason, detail } => End::Refused(common::Refused { reason, detail }),
            Outcome::Lost { may_have_run } => End::Lost(common::Lost { may_have_run }),
        }),
        result_json,
        oom_seen: ended.oom_seen,
        output_incomplete: ended.output_incomplete,
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        stopped_data: Vec::new(),
        duration_ms: ended.duration_ms,
    };
    Ok(Report { finished, status, stopped, base: None, applied: false, edited: None })
}

/// Of the container that was started, as the ledger knows it.
fn container_name(started: &[u8]) -> Result<String, Error> {
    let malformed = || Error::Store(StoreError::Malformed("start of a container"));
    let data: Value = serde_json::from_slice(started).map_err(|_| malformed())?;
    data["containerName"].as_str().map(str::to_owned).ok_or_else(malformed)
}

/// What the model is told of a command.
fn command_result(
    plan: &Plan,
    ended: &Ended,
    code: Option<i32>,
    direct: Option<&Direct<'_>>,
) -> Result<Vec<u8>, Error> {
    let mut result = json!({
        "status": ended.outcome().as_str(),
        "stdout": ended.stdout.text,
        "stderr": ended.stderr.text,
        "stdoutBytes": ended.stdout.bytes,
        "stderrBytes": ended.stderr.bytes,
        "durationMs": ended.duration_ms,
    });
    if let Some(code) = code {
        result["exitCode"] = code.into();
    }
    if let Some(direct) = direct {
        result["workspace"] = direct.value();
    }
    for (name, text) in
        [("stdoutOmittedBytes", &ended.stdout), ("stderrOmittedBytes", &ended.stderr)]
    {
        if text.left_out > 0 {
            result[name] = text.left_out.into();
        }
    }
    if !plan.steps.is_empty() {
        let begun = begun(ended);
        result["commands"] = begun.iter().map(step).collect();
        result["commandsNotRun"] = plan.steps.len().saturating_sub(begun.len()).into();
    }
    if ended.oom_seen {
        result["oomSeen"] = true.into();
    }
    if ended.output_incomplete {
        result["outputIncomplete"] = true.into();
    }
    if let Some(connections) = &ended.connections {
        result["network"] = network(connections);
    }
    event::canon::to_bytes(&result).map_err(|error| Error::Seal(event::SealError::Canonical(error)))
}

/// One of several.
fn step(end: &CommandEnd) -> Value {
    let status = match end.how {
        How::Exited(_) => "exited",
        How::Signaled(_) => "signaled",
        How::ExecFailed(_) => "start_failed",
    };
    json!({ "status": status, "exitCode": end.how.code(), "durationMs": end.duration_ms })
}

/// The first process's word on each command that was begun; none where it had no more to say.
fn begun(ended: &Ended) -> &[CommandEnd] {
    match &ended.way {
        Way::Told(told) => &told.ends,
        Way::Ran { .. } | Way::NotStarted { .. } | Way::Refused { .. } | Way::Gone { .. } => &[],
    }
}

impl Direct<'_> {
    /// A report and no patch: it can be neither reviewed nor taken back.
    fn value(&self) -> Value {
        let Self { mounts, changes, copy } = self;
        let writable = mounts.iter().filter(|mount| mount.mode == receipt::MountMode::Rw);
        let paths: Vec<_> = writable.map(|mount| mount.source.as_str()).collect();
        let mut value = json!({
            "writtenDirectly": paths,
            "note": "changes in these paths are in the workspace already; no patch holds them",
        });
        match changes {
            Some(Changes { created, changed, removed }) => {
                for (name, all) in
                    [("created", created), ("changed", changed), ("removed", removed)]
                {
                    let shown: Vec<_> = all.iter().take(SHOWN_CHANGES).map(text).collect();
                    value[name] = json!({ "total": all.len(), "paths": shown });
                }
            }
            None => value["changesUnknown"] = true.into(),
        }
        if let Retaken::Lost(why) = copy {
            value["copyLost"] = why.as_str().into();
        }
        value
    }
}

/// What it connected to, and what it could not, so that nobody tries in vain.
fn network(connections: &Connections) -> Value {
    let Connections { allowed, denied, denials, broker_lost } = connections;
    let denial = |denial: &Denial| {
        let Denial { host, port, reason } = denial;
        match port {
            Some(port) => json!({ "host": host, "port": port, "reason": reason }),
            None => json!({ "host": host, "reason": reason }),
        }
    };
    let denials: Vec<_> = denials.iter().map(denial).collect();
    let mut network = json!({ "allowed": allowed, "denied": denied, "denials": denials });
    if *broker_lost {
        network["brokerLost"] = true.into();
    }
    network
}

pub(crate) fn done(result_json: Vec<u8>) -> Report {
    let end = End::Done(common::Empty {});
    let finished = wire::Finished { result_json, ..finished(end) };
    Report {
        finished,
        status: event::CallStatus::Completed,
        stopped: None,
        base: None,
        applied: false,
        edited: None,
    }
}

pub(crate) fn not_done(refusal: Refusal) -> Report {
    let finished = refused(refusal);
    Report {
        finished,
        status: event::CallStatus::Failed,
        stopped: None,
        base: None,
        applied: false,
        edited: None,
    }
}

pub(crate) fn canceled() -> Report {
    // Canonical as it stands.
    let result_json = br#"{"status":"canceled"}"#.to_vec();
    let finished = wire::Finished { result_json, ..finished(End::Canceled(common::Empty {})) };
    Report {
        finished,
        status: event::CallStatus::Canceled,
        stopped: None,
        base: None,
        applied: false,
        edited: None,
    }
}

pub(crate) fn lost(may_have_run: bool) -> Report {
    let finished = finished(End::Lost(common::Lost { may_have_run }));
    Report {
        finished,
        status: event::CallStatus::Lost,
        stopped: None,
        base: None,
        applied: false,
        edited: None,
    }
}

fn finished(end: End) -> wire::Finished {
    wire::Finished { outcome: Some(end), ..wire::Finished::default() }
}
