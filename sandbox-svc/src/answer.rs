//! Results of the tools that change nothing: what a model is told of the private copy. Everything is
//! bounded, and read as trees that may change are read.

mod edit;
mod patch;
mod read;
mod search;
mod status;

use receipt::PathText;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::planner::{self, Planned, Prepared, Stop};
use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

pub(crate) use edit::changed;
pub(crate) use patch::{diff_with, op, read_copy};
pub(crate) use read::is_there;

/// The result of a call that changes nothing. Blocks.
pub(crate) fn answer(environment: &Environment, planned: &Planned) -> Result<Vec<u8>, Stop> {
    let rulebook = &planned.rulebook;
    let value = match &planned.prepared {
        Prepared::Read(prepared) => read::answer(environment, rulebook, prepared)?,
        Prepared::Patch(planner::patch::Prepared::Inspect(present)) => {
            patch::inspect(environment, rulebook, present)?
        }
        Prepared::Search(prepared) => search::answer(environment, prepared),
        Prepared::Status(prepared) => status::answer(environment, rulebook, prepared)?,
        Prepared::Edit(planner::edit::Prepared::Propose { proposal, writes }) => {
            edit::proposed(proposal, writes)
        }
        Prepared::Edit(planner::edit::Prepared::Edit(_) | planner::edit::Prepared::Denied)
        | Prepared::Command(_)
        | Prepared::Mcp(_)
        | Prepared::Delegate(_)
        | Prepared::Patch(
            planner::patch::Prepared::Import(_) | planner::patch::Prepared::Undo(_),
        ) => return Err(Reason::PlanStale.into()),
    };
    to_bytes(&value)
}

/// A result of the kind, which says which version of its form it has.
pub(crate) fn document(kind: &str, mut value: Value) -> Value {
    value["schemaVersion"] = 1.into();
    value["kind"] = kind.into();
    value
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
pub(crate) fn clip(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
