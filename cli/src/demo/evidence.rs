//! What the ledger says about the two runs. Only what is in it counts.
use std::collections::BTreeMap;

use event::{
    CallStatus, Data, Event, Writer,
    id::{CallId, PermissionId, SessionId},
};

use super::{Observed, needles::Needles, scene::Scene};
use crate::{
    audit::Entry,
    error::{Exit, Explain},
    mesh::{Layout, Service},
};

/// An entry whose event the catalogue knows.
struct Known<'a> {
    writer: Writer,
    session: &'a str,
    entry: &'a Entry,
    event: Event,
}

pub(crate) struct Evidence<'a>(Vec<Known<'a>>);

#[derive(Debug, thiserror::Error)]
#[error("entry {0} of the ledger is not an event of a service")]
pub(crate) struct Unknown(u64);

impl Explain for Unknown {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "run 'harness audit verify'".to_owned()
    }
}

/// What happened to one call where it was executed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls {
    tool: String,
    permission: Option<PermissionId>,
    started: usize,
    completed: usize,
    finished: usize,
    containers: usize,
    cleaned: usize,
}

impl<'a> Evidence<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Result<Self, Unknown> {
        let known = entries.iter().map(|entry| {
            let unknown = || Unknown(entry.log_index);
            let writer = entry.writer.parse().map_err(|_| unknown())?;
            let event = event::open(&entry.event).map_err(|_| unknown())?;
            Ok(Known { writer, session: &entry.session_id, entry, event })
        });
        known.collect::<Result<_, _>>().map(Self)
    }

    /// What the session's commands wrote, as the ledger has it.
    pub(crate) fn output(&self, session: SessionId) -> String {
        let texts = self.of(Writer::AgentSvc, session).filter_map(|event| match &event.data {
            Data::CallOutput(output) => Some(output.text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Every container that was ever started.
    pub(crate) fn containers(&self) -> Vec<String> {
        let names = self.0.iter().filter(|known| known.writer == Writer::SandboxSvc);
        let names = names.filter_map(|known| match &known.event.data {
            Data::SandboxStarted(started) => Some(started.container_name.clone()),
            _ => None,
        });
        names.collect()
    }

    /// The client received these bytes and no others.
    pub(crate) fn same_bytes(
        &self,
        session: SessionId,
        transcript: &[String],
    ) -> Result<(), String> {
        let name = session.to_string();
        let stored =
            self.0.iter().filter(|known| known.writer == Writer::AgentSvc && known.session == name);
        match stored
            .map(|known| known.entry.event.as_slice())
            .eq(transcript.iter().map(String::as_bytes))
        {
            true => Ok(()),
            false => Err(format!("session {session} reads otherwise")),
        }
    }

    /// The command and the import: each began once, under its own receipt, and ended once.
    pub(crate) fn exactly_once(&self, session: SessionId) -> Observed {
        let calls = self.calls(session);
        let receipts: Vec<PermissionId> = self
            .of(Writer::Gateway, session)
            .filter_map(|event| match &event.data {
                Data::ReceiptSigned(signed) => Some(signed.permission_id),
                _ => None,
            })
            .collect();
        let seen = calls.values().try_for_each(|call| {
            let containers = usize::from(call.tool == "process.exec");
            let counts =
                (call.started, call.finished, call.completed, call.containers, call.cleaned);
            match call.permission {
                _ if counts != (1, 1, 1, containers, containers) => {
                    Err(format!("{} is not there just once: {call:?}", call.tool))
                }
                Some(permission)
                    if receipts.iter().filter(|of| **of == permission).count() == 1 =>
                {
                    Ok(())
                }
                Some(_) | None => Err(format!("{} has not one receipt", call.tool)),
            }
        });
        let mut tools: Vec<&str> = calls.values().map(|call| call.tool.as_str()).collect();
        tools.sort_unstable();
        let complete = match tools.as_slice() {
            ["import_patch", "process.exec"] => Ok(()),
            other => Err(format!("other calls than expected: {other:?}")),
        };
        Observed::that("exactly one execution of each call", seen.and(complete))
    }

    /// The refusal is in the executor's stream, the model was told, and the host's file stayed.
    pub(crate) fn stale_import_blocked(
        &self,
        session: SessionId,
        kept: Result<(), String>,
    ) -> Observed {
        const REASON: &str = "HOST_CHANGED";
        let refused: Vec<CallId> = self
            .of(Writer::SandboxSvc, session)
            .filter_map(|event| match &event.data {
                Data::CallRefused(refused) if refused.reason == REASON => refused.call_id,
                _ => None,
            })
            .collect();
        let asked = self
            .of(Writer::AgentSvc, session)
            .filter(|event| matches!(event.data, Data::PermissionRequested(_)));
        let asked = asked.count();
        let told = self.of(Writer::AgentSvc, session).any(|event| match &event.data {
            Data::ToolResult(result) => {
                refused.contains(&result.call_id)
                    && result.error.as_ref().is_some_and(|error| error.code == REASON)
            }
            _ => false,
        });
        let ran = self
            .calls(session)
            .into_iter()
            .any(|(id, call)| refused.contains(&id) && call.completed > 0);
        let seen = match (refused.as_slice(), asked, told, ran) {
            ([_, ..], 1, true, false) => kept,
            ([], ..) => Err(format!("no {REASON} in the stream of sandbox-svc")),
            (_, asked, ..) if asked != 1 => {
                Err(format!("{asked} asks where the import alone should ask"))
            }
            (_, _, false, _) => Err("the model was not told".to_owned()),
            _ => Err("the refused import was executed".to_owned()),
        };
        Observed::that("stale import blocked", seen)
    }

    /// Neither secret in any form, although the command printed one of them.
    pub(crate) fn redacted(&self, scene: &Scene, output: &str) -> Observed {
        let needles = [Needles::of(scene.secret()), Needles::of(scene.printed())];
        let holds = |bytes: &[u8]| needles.iter().any(|needles| needles.in_bytes(bytes));
        let leak =
            self.0.iter().find(|known| holds(&known.entry.event) || holds(&known.entry.envelope));
        let seen = match leak {
            Some(known) => Err(format!("entry {} holds it", known.entry.log_index)),
            None if output.contains("[REDACTED") => Ok(()),
            None => Err("what the command printed was not redacted: it is missing".to_owned()),
        };
        Observed::that("ledger redacted", seen)
    }

    fn calls(&self, session: SessionId) -> BTreeMap<CallId, Calls> {
        let mut calls: BTreeMap<CallId, Calls> = BTreeMap::new();
        for event in self.of(Writer::SandboxSvc, session) {
            match &event.data {
                Data::CallStarted(data) => {
                    let call = calls.entry(data.call_id).or_default();
                    call.tool.clone_from(&data.tool);
                    call.permission = data.permission_id;
                    call.started += 1;
                }
                Data::CallFinished(data) => {
                    let call = calls.entry(data.call_id).or_default();
                    call.finished += 1;
                    call.completed += usize::from(data.status == CallStatus::Completed);
                }
                Data::SandboxStarted(data) => {
                    calls.entry(data.call_id).or_default().containers += 1;
                }
                Data::SandboxStopped(data) => calls.entry(data.call_id).or_default().cleaned += 1,
                _ => {}
            }
        }
        calls
    }

    fn of(&self, writer: Writer, session: SessionId) -> impl Iterator<Item = &Event> {
        let session = session.to_string();
        self.0
            .iter()
            .filter(move |known| known.writer == writer && known.session == session)
            .map(|known| &known.event)
    }
}

/// Databases, logs, keys and settings: what no container may see is in none of them, and what a command printed is
/// neither in the ledger's files nor in a log. Programs are not looked at: they were there before.
pub(crate) fn secret_in_files(scene: &Scene) -> Observed {
    let layout = Layout::new(scene.state());
    let (secret, printed) = (Needles::of(scene.secret()), Needles::of(scene.printed()));
    let services = Service::ALL.map(|service| (&secret, layout.service(service)));
    let others = [
        (&secret, layout.client()),
        (&secret, layout.logs()),
        (&printed, layout.logs()),
        (&printed, layout.data(Service::AuditSvc)),
    ];
    let seen = services.iter().chain(&others).try_for_each(|(needles, place)| {
        match needles.in_files(place) {
            Ok(found) => match found.first() {
                None => Ok(()),
                Some(path) => Err(format!("in {}", path.display())),
            },
            Err(error) => Err(format!("{} can not be searched: {error}", place.display())),
        }
    });
    Observed::that("no secret in databases and logs", seen)
}

#[cfg(test)]
mod tests;
