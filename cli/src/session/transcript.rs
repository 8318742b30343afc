//! Holds what a gateway sends against what it may send. The first break of a rule ends the connection: a transcript
//! that contradicts itself is not a basis for an approval. It keeps ids, never content.
use std::collections::{HashMap, hash_map::Entry};

use acp::{OpenAsk, PromptStatus, SessionEvent};
use event::{
    AgentStatus, Data, Decision, Event, OpenError, PermissionRequested, PermissionResolved,
    id::{EventId, PermissionId, SessionId},
};
use receipt::Plan;

/// More live events than this are a flood, not a conversation.
const MAX_EVENTS: u64 = 10_000;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("an event of session {0}, which is not ours")]
    ForeignSession(SessionId),
    #[error("event {found} where {expected} was due")]
    Gap { expected: u64, found: u64 },
    #[error("event {0} twice")]
    Repeated(EventId),
    #[error("something that is not an event at {seq}")]
    NotAnEvent { seq: u64, source: OpenError },
    #[error("more than {MAX_EVENTS} events")]
    Flood,
    #[error("permission {0} twice")]
    RepeatedPermission(PermissionId),
    #[error("permission {0} with another plan than its digest says")]
    PlanDigest(PermissionId),
    #[error("permission {0} with a plan of another session, call or action")]
    ForeignPlan(PermissionId),
    #[error("another patch than the plan of permission {0} names")]
    ForeignPatch(PermissionId),
    #[error("permission {0} with something that is not a plan")]
    NotAPlan(PermissionId),
    #[error("an answer to permission {0}, which was never asked")]
    NeverAsked(PermissionId),
    #[error("permission {permission} resolved as {found}, but {sent} was answered and accepted")]
    Disagrees { permission: PermissionId, sent: &'static str, found: &'static str },
    #[error("an end of the run after its end")]
    TwoEnds,
    #[error("the result {answer:?} after the run ended as {stopped:?}")]
    Result { answer: PromptStatus, stopped: AgentStatus },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Open,
    Answered(Decision),
    Resolved(Decision),
}

/// One session as this client saw it.
#[derive(Debug)]
pub struct Transcript {
    session: SessionId,
    next: u64,
    /// Beyond this one it is a flood.
    last: u64,
    seen: HashMap<EventId, u64>,
    asked: HashMap<PermissionId, Asked>,
    stopped: Option<AgentStatus>,
}

impl Transcript {
    /// A session from its first event; `through` is the last that was there before this client.
    #[must_use]
    pub fn new(session: SessionId, through: Option<u64>) -> Self {
        let last = through.unwrap_or(0).saturating_add(MAX_EVENTS);
        Self { session, next: 0, last, seen: HashMap::new(), asked: HashMap::new(), stopped: None }
    }

    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The number that the next event has.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.next
    }

    /// Reads the next event.
    pub fn admit(&mut self, sent: &SessionEvent) -> Result<Event, Violation> {
        let SessionEvent { session_id, seq, event } = sent;
        if *session_id != self.session {
            return Err(Violation::ForeignSession(*session_id));
        }
        let seq = seq.get();
        if seq != self.next {
            return Err(Violation::Gap { expected: self.next, found: seq });
        }
        let event = self.read(seq, event.get())?;
        self.next += 1;
        match &event.data {
            Data::PermissionResolved(resolved) => self.resolve(resolved)?,
            // A child's end is not the run's.
            Data::AgentStopped(stopped) if stopped.parent_run_id.is_some() => (),
            Data::AgentStopped(_) if self.stopped.is_some() => return Err(Violation::TwoEnds),
            Data::AgentStopped(stopped) => self.stopped = Some(stopped.status),
            data => {
                if let Some(of) = data.session_id().filter(|of| *of != self.session) {
                    return Err(Violation::ForeignSession(of));
                }
            }
        }
        Ok(event)
    }

    /// Reads an ask that is still open, as an attach answers it; the stream may bring the same event again.
    pub fn reopen(&mut self, ask: &OpenAsk) -> Result<Event, Violation> {
        self.read(ask.seq.get(), ask.event.get())
    }

    /// The gateway accepted this answer.
    pub fn answered(&mut self, permission: PermissionId, decision: Decision) {
        if let Some(asked @ Asked::Open) = self.asked.get_mut(&permission) {
            *asked = Asked::Answered(decision);
        }
    }

    /// Whether nobody has settled it yet, as far as was seen.
    #[must_use]
    pub fn is_open(&self, permission: PermissionId) -> bool {
        self.asked.get(&permission) == Some(&Asked::Open)
    }

    /// How it was settled, once an event has said so.
    #[must_use]
    pub fn resolution(&self, permission: PermissionId) -> Option<Decision> {
        match self.asked.get(&permission) {
            Some(Asked::Resolved(decision)) => Some(*decision),
            Some(Asked::Open | Asked::Answered(_)) | None => None,
        }
    }

    /// Holds the prompt's answer against the event that ended the run.
    pub fn finish(&self, answer: PromptStatus) -> Result<(), Violation> {
        match self.stopped {
            Some(stopped)
                if (stopped == AgentStatus::Completed) != (answer == PromptStatus::Completed) =>
            {
                Err(Violation::Result { answer, stopped })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn read(&mut self, seq: u64, text: &str) -> Result<Event, Violation> {
        if seq > self.last {
            return Err(Violation::Flood);
        }
        let event =
            event::open(text.as_bytes()).map_err(|source| Violation::NotAnEvent { seq, source })?;
        let again = match self.seen.entry(event.id) {
            Entry::Occupied(before) if *before.get() != seq => {
                return Err(Violation::Repeated(event.id));
            }
            Entry::Occupied(_) => true,
            Entry::Vacant(place) => {
                place.insert(seq);
                false
            }
        };
        if let (false, Data::PermissionRequested(asked)) = (again, &event.data) {
            self.ask(asked)?;
        }
        Ok(event)
    }

    fn ask(&mut self, asked: &PermissionRequested) -> Result<(), Violation> {
        let PermissionRequested {
            permission_id,
            session_id,
            call_id,
            action,
            plan,
            plan_digest,
            child_run_id,
            ..
        } = asked;
        let permission = *permission_id;
        if *session_id != self.session {
            return Err(Violation::ForeignSession(*session_id));
        }
        let bytes = event::canon::to_bytes(plan).map_err(|_| Violation::NotAPlan(permission))?;
        if receipt::plan_digest(&bytes) != *plan_digest {
            return Err(Violation::PlanDigest(permission));
        }
        let plan = Plan::parse(&bytes).map_err(|_| Violation::NotAPlan(permission))?;
        if plan.session != self.session
            || call_id.is_some_and(|call| call != plan.call)
            || child_run_id.is_some_and(|run| run != plan.run)
            || plan.action != *action
        {
            return Err(Violation::ForeignPlan(permission));
        }
        match self.asked.insert(permission, Asked::Open) {
            None => Ok(()),
            Some(_) => Err(Violation::RepeatedPermission(permission)),
        }
    }

    fn resolve(&mut self, resolved: &PermissionResolved) -> Result<(), Violation> {
        let PermissionResolved { permission_id, session_id, decision, .. } = resolved;
        if *session_id != self.session {
            return Err(Violation::ForeignSession(*session_id));
        }
        let permission = *permission_id;
        match self.asked.insert(permission, Asked::Resolved(*decision)) {
            None => Err(Violation::NeverAsked(permission)),
            Some(Asked::Resolved(_)) => Err(Violation::RepeatedPermission(permission)),
            Some(Asked::Answered(sent)) if sent != *decision => Err(Violation::Disagrees {
                permission,
                sent: sent.as_str(),
                found: decision.as_str(),
            }),
            Some(Asked::Open | Asked::Answered(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
