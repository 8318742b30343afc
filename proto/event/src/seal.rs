//! The three gates an event passes: sealed by its writer, opened by a reader, admitted by the ledger.
//! Each says no with a stable reason; none repairs what it is given.

use serde_json::Value;

use crate::canon::{self, NotCanonical, ParseError};
use crate::redact::{self, Finding, Redacted, RedactionFailed};
use crate::{Event, Writer};

/// An event's only bytes: what is stored, hashed and sent. The findings say what is missing from them, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub bytes: Vec<u8>,
    pub kind: &'static str,
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("the event has no canonical form")]
    Canonical(#[source] NotCanonical),
    #[error("the event cannot be redacted")]
    Redaction(#[source] RedactionFailed),
    #[error("the redacted event is not one of the catalogue's")]
    Schema(#[source] OpenError),
}

/// Why bytes are not an event. Never says what was found instead: that may be anybody's secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the event is not acceptable JSON")]
    Json(#[source] ParseError),
    #[error("the event is not of version 1")]
    Version,
    #[error("the event's type is not in the catalogue")]
    Type,
    #[error("the data is not that of {kind}: {detail}")]
    Data { kind: &'static str, detail: String },
}

/// Why the ledger does not take an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the bytes are not the event's canonical form")]
    NotCanonical,
    #[error("the event is not one of the catalogue's")]
    Schema(#[source] OpenError),
    #[error("{writer} may not write {kind}")]
    WriterNotAllowed { writer: Writer, kind: &'static str },
    #[error("the event cannot be redacted")]
    Redaction(#[source] RedactionFailed),
    #[error("redaction would still change the event (rule {rule})")]
    Unredacted { rule: &'static str },
}

impl Refusal {
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotCanonical => "EVENT_NOT_CANONICAL",
            Self::Schema(_) => "EVENT_SCHEMA",
            Self::WriterNotAllowed { .. } => "WRITER_NOT_ALLOWED",
            Self::Redaction(_) | Self::Unredacted { .. } => "EVENT_REDACTION_FAILED",
        }
    }
}

/// Makes an event's bytes: bounded, redacted to a fixpoint, read again by the catalogue, canonical.
pub fn seal(event: &Event) -> Result<Sealed, SealError> {
    let raw = event.to_value().map_err(|_| SealError::Canonical(NotCanonical::NoForm))?;
    canon::to_bytes(&raw).map_err(SealError::Canonical)?;
    let Redacted { value, findings } = redact::redact(&raw).map_err(SealError::Redaction)?;
    if redact::redact(&value).map_err(SealError::Redaction)?.value != value {
        return Err(SealError::Redaction(RedactionFailed::Unstable));
    }
    let safe = Event::from_value(&value).map_err(SealError::Schema)?;
    let bytes = canon::to_bytes(&value).map_err(SealError::Canonical)?;
    Ok(Sealed { bytes, kind: safe.data.kind(), findings })
}

/// Reads an event back. Gates, in this order: JSON, version, type, data.
pub fn open(bytes: &[u8]) -> Result<Event, OpenError> {
    Event::from_value(&canon::parse(bytes).map_err(OpenError::Json)?)
}

/// The ledger's own check, whatever the writer did before: canonical, of the catalogue, by a service that may
/// write it, and with nothing left that redaction would change.
pub fn admit(bytes: &[u8], writer: Writer) -> Result<Event, Refusal> {
    let value: Value = canon::parse(bytes).map_err(|_| Refusal::NotCanonical)?;
    if canon::to_bytes(&value).as_deref() != Ok(bytes) {
        return Err(Refusal::NotCanonical);
    }
    let event = Event::from_value(&value).map_err(Refusal::Schema)?;
    let kind = event.data.kind();
    if !writer.may_write(kind) {
        return Err(Refusal::WriterNotAllowed { writer, kind });
    }
    let Redacted { value: again, findings } = redact::redact(&value).map_err(Refusal::Redaction)?;
    if again != value {
        let rule = findings.first().map_or("unnamed", |finding| finding.rule);
        return Err(Refusal::Unredacted { rule });
    }
    Ok(event)
}

/// Any bytes: no panic, and what opens is sealed to something that opens again.
#[cfg(any(test, fuzzing))]
pub fn fuzz_open(bytes: &[u8]) {
    if let Ok(event) = open(bytes)
        && let Ok(sealed) = seal(&event)
    {
        assert!(open(&sealed.bytes).is_ok());
    }
}

#[cfg(test)]
mod tests;
