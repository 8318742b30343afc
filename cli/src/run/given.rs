//! The answers that one command has given, held against what became of them: one that is not in force is a failure, and
//! never passes for done. It answers nothing.
use std::{collections::BTreeMap, time::Duration};

use event::{
    Data, Decision, Event,
    id::{CallId, PermissionId},
};
use tokio::time::{Instant, timeout_at};

use super::report::Error;
use crate::{
    error::Exit,
    key::Signatory,
    output,
    session::{self, Ask, Session, Step, render},
};

/// For the event that says how an ask was settled; a receipt may still be on its way.
const SETTLED_LIMIT: Duration = Duration::from_secs(30);

/// What is answered with, what was answered, and what of it does not hold.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Signs what needs it.
    key: Option<Signatory>,
    /// Calls that were allowed here, and by which answer.
    allowed: BTreeMap<CallId, PermissionId>,
    lost: BTreeMap<PermissionId, String>,
}

impl Given {
    pub(crate) fn of(key: Option<Signatory>) -> Self {
        Self { key, ..Self::default() }
    }

    pub(crate) fn key(&self) -> Option<&Signatory> {
        self.key.as_ref()
    }

    /// The gateway took it. An earlier answer about the same call matters no more.
    pub(super) fn accepted(&mut self, ask: &Ask, decision: Decision) {
        let Some(call) = ask.call() else { return };
        if let Some(before) = self.allowed.remove(&call) {
            self.lost.remove(&before);
        }
        if decision == Decision::Allow {
            self.allowed.insert(call, ask.permission_id);
        }
    }

    /// It is not in force.
    pub(super) fn lost(&mut self, ask: &Ask, why: String) {
        self.lost.insert(ask.permission_id, why);
    }

    /// Something that happened after the answers were given.
    pub(crate) fn heard(&mut self, event: &Event) {
        let (call, why) = match &event.data {
            Data::ToolResult(result) => match &result.error {
                Some(error) if is_about_people(&error.code) => (result.call_id, told(&error.code)),
                Some(_) | None => return,
            },
            Data::CallRefused(refused) if is_about_people(&refused.reason) => {
                let Some(call) = refused.call_id else { return };
                (call, told(&refused.reason))
            }
            Data::PermissionRequested(asked) => match asked.call_id {
                Some(call) if self.allowed.get(&call) != Some(&asked.permission_id) => {
                    let why = "the call was not admitted under it and is asked about anew";
                    (call, why.to_owned())
                }
                Some(_) | None => return,
            },
            _ => return,
        };
        if let Some(permission) = self.allowed.get(&call) {
            self.lost.entry(*permission).or_insert(why);
        }
    }

    /// How the command ends. `lookup` says where more is to be read.
    pub(crate) fn end(self, exit: Exit, lookup: String) -> Result<Exit, Error> {
        match self.lost.into_iter().next() {
            None => Ok(exit),
            Some((permission, why)) => Err(Error::NotInForce { permission, why, lookup }),
        }
    }
}

/// Refusals that are about what people allowed, and not about the call.
fn is_about_people(reason: &str) -> bool {
    reason.starts_with("APPROVAL_") || reason.starts_with("RECEIPT_")
}

fn told(reason: &str) -> String {
    format!("the executor did not admit the call under it ({reason})")
}

/// How an ask that somebody else has settled was settled, as the session's own events say; `None` where they do not say
/// it in time. Asks that come meanwhile come again.
pub(super) async fn in_force(
    session: &mut Session,
    ask: &Ask,
    given: &mut Given,
) -> Result<Option<Decision>, session::Error> {
    let until = Instant::now() + SETTLED_LIMIT;
    let mut later = Vec::new();
    let found = loop {
        if let Some(decision) = session.resolution(ask.permission_id) {
            break Some(decision);
        }
        match timeout_at(until, session.next()).await {
            Err(_) => break None,
            Ok(step) => match step? {
                Step::Event { event, old: false, text: _ } => {
                    given.heard(&event);
                    if let Some(text) = render(&event) {
                        output::say(&text);
                    }
                }
                Step::Event { old: true, .. } => {}
                Step::Ask(ask) => later.push(ask),
                Step::Ended(_) => break None,
            },
        }
    };
    session.put_back(later);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use event::{ToolError, ToolResult, id::EventId};
    use time::OffsetDateTime;

    use super::*;
    use crate::session::samples;

    fn ended(call: CallId, code: &str) -> Event {
        let error = Some(ToolError { code: code.to_owned(), message: String::new() });
        let (tool, ok, output, duration_ms) = ("t".to_owned(), false, None, None);
        let data = ToolResult { call_id: call, tool, ok, output, error, duration_ms };
        let id = EventId::nil();
        Event { id, at: OffsetDateTime::UNIX_EPOCH, actor: None, data: data.into() }
    }

    fn end_after(decision: Decision, code: &str) -> Result<Exit, String> {
        let ask = samples::ask(&samples::plan(&["rm"]));
        let mut given = Given::default();
        given.accepted(&ask, decision);
        given.heard(&ended(ask.call().unwrap(), code));
        given.end(Exit::Done, "look".to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_allow_that_the_executor_does_not_admit_is_a_failure_with_its_reason() {
        for reason in ["APPROVAL_KEY_UNKNOWN", "RECEIPT_EXPIRED"] {
            let said = end_after(Decision::Allow, reason).unwrap_err();
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn a_call_that_fails_by_itself_and_one_that_was_denied_say_nothing_about_the_answer() {
        assert_eq!(end_after(Decision::Allow, "FAILED"), Ok(Exit::Done));
        assert_eq!(end_after(Decision::Deny, "RECEIPT_REQUIRED"), Ok(Exit::Done));
    }

    #[test]
    fn a_call_that_is_asked_about_anew_was_not_admitted_until_it_is_answered_again() {
        let plan = samples::plan(&["rm"]);
        let first = samples::ask(&plan);
        let again =
            Ask { permission_id: PermissionId::parse(samples::RUN).unwrap(), ..first.clone() };
        let mut given = Given::default();
        given.accepted(&first, Decision::Allow);
        given.heard(&samples::asked(&plan, first.permission_id));
        assert!(given.lost.is_empty());
        given.heard(&samples::asked(&plan, again.permission_id));
        assert_eq!(given.lost.keys().collect::<Vec<_>>(), [&first.permission_id]);
        given.accepted(&again, Decision::Allow);
        assert_eq!(given.end(Exit::Done, String::new()).unwrap(), Exit::Done);
    }
}
