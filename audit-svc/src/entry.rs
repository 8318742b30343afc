//! One entry as it comes in: parsed, admitted by the catalogue, and known to fit into an envelope. It has no place in the log yet.

use std::panic::{AssertUnwindSafe, catch_unwind};

use event::id::{EventId, SessionId};
use event::{Event, Writer};
use ledger::{Envelope, Hash, TooLong, payload_commit};
use proto::audit::v1::{NewEntry, Redaction};

use crate::refusal::Refused;

/// How many redactions an envelope lists; the others are counted.
const LISTED: usize = 16;
const MAX_TENANT: usize = 128;
const MAX_PERSON: usize = 256;
const MAX_POLICY: usize = 128;
const MAX_REDACTIONS: usize = 10_000;
/// Longest name of a tool or actor in an envelope, in bytes; the event has the whole.
const MAX_NAME: usize = 256;
/// Larger than any number that an envelope will hold.
const WIDEST: i64 = event::canon::MAX_INTEGER;

/// An entry that may be stored as soon as its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tenant: String,
    pub(crate) writer: Writer,
    pub(crate) session: SessionId,
    /// What the writer says, if it numbers its own streams.
    pub(crate) seq: Option<u64>,
    pub(crate) event_id: EventId,
    pub(crate) payload: Vec<u8>,
    kind: &'static str,
    actor: Option<ledger::Actor>,
    on_behalf_of: Option<String>,
    tool: Option<String>,
    decision: Option<&'static str>,
    policy_rev: Option<String>,
    occurred_us: i64,
    redactor: String,
    redactions: Vec<ledger::Redaction>,
    redactions_omitted: u64,
}

/// Where an entry stands, once that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) log: &'a str,
    pub(crate) seq: u64,
    pub(crate) prev: Hash,
    pub(crate) recorded_us: i64,
}

impl Entry {
    /// Checks the `at`-th entry of a request of `writer`. Nothing that is refused here leaves a trace in the log.
    pub(crate) fn parse(
        at: usize,
        writer: Writer,
        log: &str,
        entry: NewEntry,
    ) -> Result<Self, Refused> {
        let NewEntry {
            tenant,
            session_id,
            seq,
            event,
            on_behalf_of,
            policy_rev,
            redactor,
            redactions,
        } = entry;
        let malformed = |what| Refused::EntryForm { at, what };
        let session =
            SessionId::parse(&session_id).map_err(|_| malformed("session_id is not a UUID"))?;
        let numbered = matches!(writer, Writer::AgentSvc | Writer::SandboxSvc);
        match (numbered, seq) {
            (true, None) => {
                return Err(malformed("this writer numbers its own streams; seq is missing"));
            }
            (false, Some(_)) => {
                return Err(malformed("the ledger numbers this writer's streams; leave seq out"));
            }
            (true, Some(seq)) if seq > WIDEST.unsigned_abs() => {
                return Err(malformed("seq is too large"));
            }
            (true, Some(_)) | (false, None) => {}
        }
        // Whose an entry is can be unknown only where its session is not proven.
        let unknown = session.is_nil() && tenant.is_empty();
        if !unknown && !is_name(&tenant, MAX_TENANT) {
            return Err(malformed("tenant is missing or no name"));
        }
        let on_behalf_of = optional(on_behalf_of, MAX_PERSON)
            .ok_or_else(|| malformed("on_behalf_of is no name"))?;
        let policy_rev =
            optional(policy_rev, MAX_POLICY).ok_or_else(|| malformed("policy_rev is no name"))?;
        if revision(&redactor).ok_or_else(|| malformed("redactor is not r<number>"))?
            < revision(event::redact::REVISION).unwrap_or(0)
        {
            return Err(Refused::RedactorTooOld { at });
        }
        if redactions.len() > MAX_REDACTIONS {
            return Err(malformed("too many redactions"));
        }
        let known = admit(at, &event, writer)?;
        if known.data.session_id().is_some_and(|said| said != session) {
            return Err(Refused::EntrySession { at });
        }
        let mut entry = Self {
            tenant,
            writer,
            session,
            seq,
            event_id: known.id,
            payload: event,
            kind: known.data.kind(),
            actor: known.actor.as_ref().map(actor),
            on_behalf_of,
            tool: known.data.tool().map(cut),
            decision: known.data.decision(),
            policy_rev,
            occurred_us: micros(&known),
            redactor,
            redactions: Vec::new(),
            redactions_omitted: 0,
        };
        entry
            .list(log, &redactions)
            .map_err(|TooLong| malformed("its names do not fit into an envelope"))?;
        Ok(entry)
    }

    /// Lists as many redactions as an envelope has room for, whatever place the entry gets.
    fn list(&mut self, log: &str, all: &[Redaction]) -> Result<(), TooLong> {
        let widest =
            Place { log, seq: WIDEST.unsigned_abs(), prev: Hash::ZERO, recorded_us: WIDEST };
        let mut count = all.len().min(LISTED);
        loop {
            self.redactions = all[..count].iter().map(redaction).collect();
            self.redactions_omitted = (all.len() - count) as u64;
            match self.envelope(&[0; 32], &widest).to_bytes() {
                Ok(_) => return Ok(()),
                Err(TooLong) if count == 0 => return Err(TooLong),
                Err(TooLong) => count /= 2,
            }
        }
    }

    /// The envelope of this entry at its place.
    pub(crate) fn envelope(&self, salt: &[u8; 32], place: &Place<'_>) -> Envelope {
        Envelope {
            log: place.log.to_owned(),
            tenant: self.tenant.clone(),
            event_id: self.event_id.to_string(),
            writer: self.writer.as_str().to_owned(),
            session: self.session.to_string(),
            seq: place.seq,
            prev: place.prev,
            kind: self.kind.to_owned(),
            actor: self.actor.clone(),
            on_behalf_of: self.on_behalf_of.clone(),
            tool: self.tool.clone(),
            decision: self.decision.map(str::to_owned),
            policy_rev: self.policy_rev.clone(),
            occurred_us: self.occurred_us,
            recorded_us: place.recorded_us,
            payload_commit: payload_commit(salt, &self.payload),
            payload_len: self.payload.len() as u64,
            payload_key: None,
            redactor: self.redactor.clone(),
            redactions: self.redactions.clone(),
            redactions_omitted: self.redactions_omitted,
        }
    }
}

/// The catalogue's own gate; a panic in it refuses the entry and nothing else.
fn admit(at: usize, bytes: &[u8], writer: Writer) -> Result<Event, Refused> {
    match catch_unwind(AssertUnwindSafe(|| event::admit(bytes, writer))) {
        Ok(Ok(event)) => Ok(event),
        Ok(Err(refusal)) => Err(Refused::Entry { at, refusal }),
        Err(_) => Err(Refused::Panicked { at }),
    }
}

fn is_name(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The empty text stands for an absent member.
fn optional(text: String, longest: usize) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    is_name(&text, longest).then_some(Some(text))
}

fn revision(text: &str) -> Option<u32> {
    text.strip_prefix('r').filter(|digits| digits.len() <= 6)?.parse().ok()
}

fn actor(actor: &event::Actor) -> ledger::Actor {
    let event::Actor { kind, id } = actor;
    ledger::Actor { kind: kind.as_str().to_owned(), id: id.as_deref().map(cut) }
}

fn redaction(redaction: &Redaction) -> ledger::Redaction {
    let Redaction { path, rule, n } = redaction;
    ledger::Redaction { path: path.clone(), rule: rule.clone(), n: *n }
}

fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

fn micros(event: &Event) -> i64 {
    // Within the years 0 to 9999, so within 64 bits.
    i64::try_from(event.at.unix_timestamp_nanos() / 1000).unwrap_or_default()
}
