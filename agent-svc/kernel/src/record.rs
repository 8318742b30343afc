//! Events as bytes, one JSON object each with the version of the kernel that wrote it, and back.
//! A version this kernel does not know is refused, never guessed at.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::RunId;
use crate::run::Run;

/// The version that this kernel writes, and the only one it reads.
pub const VERSION: u16 = 1;

#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(
        "the record was written by kernel version {found}, this kernel reads version {VERSION}"
    )]
    UnknownVersion { found: u16 },
    #[error("the record is damaged")]
    Malformed(#[source] serde_json::Error),
}

#[derive(Debug, thiserror::Error)]
#[error("the event cannot be written")]
pub struct Unwritable(#[source] serde_json::Error);

/// An event that cannot follow on those before it: the record is not whole, or not of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {index} of the record cannot follow on those before it")]
pub struct Misfit {
    pub index: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<E> {
    v: u16,
    event: E,
}

/// All that is sure about an entry of another version.
#[derive(Deserialize)]
struct Header {
    v: u16,
}

pub fn encode(event: &Event) -> Result<Vec<u8>, Unwritable> {
    serde_json::to_vec(&Entry { v: VERSION, event }).map_err(Unwritable)
}

pub fn decode(bytes: &[u8]) -> Result<Event, Unreadable> {
    let Header { v } = serde_json::from_slice(bytes).map_err(Unreadable::Malformed)?;
    if v != VERSION {
        return Err(Unreadable::UnknownVersion { found: v });
    }
    let Entry { v: _, event } = serde_json::from_slice(bytes).map_err(Unreadable::Malformed)?;
    Ok(event)
}

/// The run as its record leaves it. What is due then is exactly what was outstanding.
pub fn fold(id: RunId, events: impl IntoIterator<Item = Event>) -> Result<Run, Misfit> {
    let mut run = Run::new(id);
    for (index, event) in events.into_iter().enumerate() {
        if !run.follow(event) {
            return Err(Misfit { index });
        }
    }
    Ok(run)
}
