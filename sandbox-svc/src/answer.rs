//! Results of the tools that change nothing: what a model is told of the private copy. Everything is
//! bounded, and read as trees that may change are read.

mod patch;
mod read;

use receipt::PathText;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::planner::{self, Planned, Prepared, Stop};
use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

pub(crate) use patch::{diff_with, op, read_copy};

/// The result of a call that changes nothing. Blocks.
pub(crate) fn answer(environment: &Environment, planned: &Planned) -> Result<Vec<u8>, Stop> {
    let rulebook = &planned.rulebook;
    let value = match &planned.prepared {
        Prepared::Read(prepared) => read::answer(environment, rulebook, prepared)?,
        Prepared::Patch(planner::patch::Prepared::Inspect(present)) => {
            patch::inspect(environment, rulebook, present)?
        }
        Prepared::Command(_)
        | Prepared::Delegate(_)
        | Prepared::Patch(
            planner::patch::Prepared::Import(_) | planner::patch::Prepared::Undo(_),
        ) => return Err(Reason::PlanStale.into()),
    };
    to_bytes(&value)
}

/// Canonical, as everything that is hashed.
pub(crate) fn to_bytes(value: &Value) -> Result<Vec<u8>, Stop> {
    event::canon::to_bytes(value)
        .map_err(|error| Refusal::new(Reason::ResultTooLarge, error).into())
}

/// A path as JSON: text, or base64 where it is not UTF-8.
pub(crate) fn text(path: &RelPath) -> Value {
    if path.is_root() { ".".into() } else { bytes_text(path.as_bytes()) }
}

pub(crate) fn bytes_text(bytes: &[u8]) -> Value {
    let path = PathText::from_bytes(bytes);
    match path.as_str() {
        Some(text) => text.into(),
        None => json!({ "b64": base64_of(bytes) }),
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The longest beginning of at most `limit` bytes that ends at a character.
fn clip(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
