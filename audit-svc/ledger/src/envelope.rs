//! The envelope: what stays of an entry for ever, small, with a salted commitment to the payload that may be erased.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::canonical::{self, MAX_INTEGER, Malformed, Members, Object, Value};
use crate::hash::Hash;

/// The largest envelope, in bytes.
pub const MAX_ENVELOPE: usize = 4096;
const VERSION: u64 = 1;
const COMMIT_DOMAIN: &[u8] = b"audit.payload.v1\0";

/// What the leaf commits to. Absent members are omitted from the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The origin of the log: an envelope belongs to one.
    pub log: String,
    pub tenant: String,
    pub event_id: String,
    pub writer: String,
    pub session: String,
    pub seq: u64,
    /// The leaf hash of this stream's entry before this one; zeros for the first.
    pub prev: Hash,
    pub kind: String,
    pub actor: Option<Actor>,
    pub on_behalf_of: Option<String>,
    pub tool: Option<String>,
    pub decision: Option<String>,
    pub policy_rev: Option<String>,
    /// The writer's claim, in microseconds since 1970.
    pub occurred_us: i64,
    /// The log's own clock, never decreasing.
    pub recorded_us: i64,
    pub payload_commit: Hash,
    pub payload_len: u64,
    pub payload_key: Option<String>,
    pub redactor: String,
    pub redactions: Vec<Redaction>,
    /// How many further redactions are not listed.
    pub redactions_omitted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub kind: String,
    pub id: Option<String>,
}

/// Where something was taken out of the payload, by which rule, how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redaction {
    pub path: String,
    pub rule: String,
    pub n: u32,
}

/// The envelope would be larger than [`MAX_ENVELOPE`], or a number too large for its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// The commitment to a payload: SHA-256("audit.payload.v1" ‖ 0x00 ‖ salt ‖ payload).
pub fn payload_commit(salt: &[u8; 32], payload: &[u8]) -> Hash {
    Hash::of(&[COMMIT_DOMAIN, salt, payload])
}

impl Envelope {
    /// The canonical bytes: the preimage of the leaf.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TooLong> {
        let Self {
            log,
            tenant,
            event_id,
            writer,
            session,
            seq,
            prev,
            kind,
            actor,
            on_behalf_of,
            tool,
            decision,
            policy_rev,
            occurred_us,
            recorded_us,
            payload_commit,
            payload_len,
            payload_key,
            redactor,
            redactions,
            redactions_omitted,
        } = self;
        let counts = [
            *seq,
            *payload_len,
            *redactions_omitted,
            occurred_us.unsigned_abs(),
            recorded_us.unsigned_abs(),
        ];
        if counts.iter().any(|count| *count > MAX_INTEGER) {
            return Err(TooLong);
        }
        let mut object = Object::new();
        if let Some(actor) = actor {
            object.raw("actor", &actor.to_json());
        }
        object.optional("decision", decision.as_deref());
        object.text("event_id", event_id);
        object.text("log", log);
        object.number("occurred_us", *occurred_us);
        object.optional("on_behalf_of", on_behalf_of.as_deref());
        object.hash("payload_commit", payload_commit);
        object.optional("payload_key", payload_key.as_deref());
        object.number("payload_len", *payload_len);
        object.optional("policy_rev", policy_rev.as_deref());
        object.hash("prev", prev);
        object.number("recorded_us", *recorded_us);
        if !redactions.is_empty() {
            object.raw("redactions", &canonical::list(redactions.iter().map(Redaction::to_json)));
        }
        if *redactions_omitted > 0 {
            object.number("redactions_omitted", *redactions_omitted);
        }
        object.text("redactor", redactor);
        object.number("seq", *seq);
        object.text("session", session);
        object.text("tenant", tenant);
        object.optional("tool", tool.as_deref());
        object.text("type", kind);
        object.number("v", VERSION);
        object.text("writer", writer);
        let bytes = object.finish().into_bytes();
        if bytes.len() > MAX_ENVELOPE { Err(TooLong) } else { Ok(bytes) }
    }

    /// Reads canonical bytes; any other spelling of the same envelope is refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_ENVELOPE {
            return Err(Malformed("longer than an envelope"));
        }
        let mut members = Members::parse(bytes)?;
        if members.count("v")? != VERSION {
            return Err(Malformed("v"));
        }
        let envelope = Self {
            log: members.text("log")?,
            tenant: members.text("tenant")?,
            event_id: members.text("event_id")?,
            writer: members.text("writer")?,
            session: members.text("session")?,
            seq: members.count("seq")?,
            prev: members.hash("prev")?,
            kind: members.text("type")?,
            actor: members.take("actor").map(Actor::from_value).transpose()?,
            on_behalf_of: members.optional("on_behalf_of")?,
            tool: members.optional("tool")?,
            decision: members.optional("decision")?,
            policy_rev: members.optional("policy_rev")?,
            occurred_us: members.integer("occurred_us")?,
            recorded_us: members.integer("recorded_us")?,
            payload_commit: members.hash("payload_commit")?,
            payload_len: members.count("payload_len")?,
            payload_key: members.optional("payload_key")?,
            redactor: members.text("redactor")?,
            redactions: redactions(&mut members)?,
            redactions_omitted: match members.take("redactions_omitted") {
                None => 0,
                Some(Value::Number(count)) => {
                    u64::try_from(count).map_err(|_| Malformed("redactions_omitted"))?
                }
                Some(_) => return Err(Malformed("redactions_omitted")),
            },
        };
        members.finish()?;
        match envelope.to_bytes() {
            Ok(again) if again == bytes => Ok(envelope),
            Ok(_) | Err(TooLong) => Err(Malformed("a second spelling")),
        }
    }
}

fn redactions(members: &mut Members) -> Result<Vec<Redaction>, Malformed> {
    members.list("redactions")?.unwrap_or_default().into_iter().map(Redaction::from_value).collect()
}

impl Actor {
    fn to_json(&self) -> String {
        let Self { kind, id } = self;
        let mut object = Object::new();
        object.optional("id", id.as_deref());
        object.text("kind", kind);
        object.finish()
    }

    fn from_value(value: Value) -> Result<Self, Malformed> {
        let Value::Object(mut members) = value else { return Err(Malformed("actor")) };
        let actor = Self { id: members.optional("id")?, kind: members.text("kind")? };
        members.finish()?;
        Ok(actor)
    }
}

impl Redaction {
    fn to_json(&self) -> String {
        let Self { path, rule, n } = self;
        let mut object = Object::new();
        object.number("n", *n);
        object.text("path", path);
        object.text("rule", rule);
        object.finish()
    }

    fn from_value(value: Value) -> Result<Self, Malformed> {
        let Value::Object(mut members) = value else { return Err(Malformed("redactions")) };
        let n = u32::try_from(members.count("n")?).map_err(|_| Malformed("n"))?;
        let redaction = Self { path: members.text("path")?, rule: members.text("rule")?, n };
        members.finish()?;
        Ok(redaction)
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the envelope does not fit into {MAX_ENVELOPE} bytes")
    }
}

impl core::error::Error for TooLong {}

/// Any bytes: no panic, and what reads back has these bytes.
#[cfg(any(test, fuzzing))]
pub fn fuzz_envelope(bytes: &[u8]) {
    if let Ok(envelope) = Envelope::parse(bytes) {
        assert_eq!(envelope.to_bytes().as_deref(), Ok(bytes));
    }
}
