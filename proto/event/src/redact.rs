//! Redaction: finds credentials by the name beside them and by their shape, and puts `[REDACTED:<rule>]` in their place.
//! A copy is redacted, never the value that is acted upon; what stays is a fixpoint.

mod assigned;
mod key;
mod rules;
mod walk;

use std::ops::Range;

use serde_json::Value;

use crate::canon;

/// Names the rules in force; part of every ledger envelope.
pub const REVISION: &str = "r1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    pub value: Value,
    pub findings: Vec<Finding>,
}

/// What was taken out: where in the redacted copy (a JSON pointer), by which rule, how often; never what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub rule: &'static str,
    pub count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedactionFailed {
    #[error("the value nests deeper than {} levels", canon::MAX_DEPTH)]
    TooDeep,
    #[error("the value has more than {} nodes", canon::MAX_NODES)]
    TooManyNodes,
    #[error("the value holds more than {} bytes of text", canon::MAX_BYTES)]
    TooLarge,
    #[error("the redacted value would be redacted further")]
    Unstable,
}

/// A copy of the value without what the rules recognise.
pub fn redact(value: &Value) -> Result<Redacted, RedactionFailed> {
    walk::redact(value)
}

/// A copy of a text without what the rules recognise: for messages, logs and names.
pub fn text(text: &str) -> String {
    walk::text(text)
}

/// Tokens that are known by their shape alone: where each stands, and the rule that knows it.
pub fn tokens(text: &str) -> Vec<(Range<usize>, &'static str)> {
    rules::tokens(text)
}

/// Whether redaction would change the value, or cannot tell.
pub fn holds_secret(value: &Value) -> bool {
    redact(value).map_or(true, |redacted| redacted.value != *value)
}

/// Any bytes, as text and as JSON: no panic, idempotent.
#[cfg(any(test, fuzzing))]
pub fn fuzz_redact(bytes: &[u8]) {
    let once = text(&String::from_utf8_lossy(bytes));
    assert_eq!(text(&once), once);
    if let Ok(value) = canon::parse_untrusted(bytes)
        && let Ok(redacted) = redact(&value)
    {
        assert_eq!(
            redact(&redacted.value),
            Ok(Redacted { value: redacted.value.clone(), findings: Vec::new() })
        );
    }
}

#[cfg(test)]
mod tests;
