//! The Merkle log: envelopes, leaves, roots and proofs, verified offline; no I/O, no std.

#![no_std]

extern crate alloc;

mod bundle;
mod canonical;
mod envelope;
mod frontier;
mod hash;
mod proof;
mod tile;
mod verify;

pub use bundle::{bundle_end, bundle_entry, bundle_head, verify_bundle};
pub use canonical::Malformed;
pub use envelope::{Actor, Envelope, MAX_ENVELOPE, Redaction, TooLong, payload_commit};
pub use frontier::Frontier;
pub use hash::{Hash, NotAHash, leaf_hash, node_hash};
pub use proof::{Node, Plan, consistency, inclusion, verify_consistency, verify_inclusion};
pub use tile::{TILE, Tile, Tiles, subtree};
pub use verify::{Entry, Fault, Finding, Head, Summary, Verifier, verify};

#[cfg(any(test, fuzzing))]
pub use bundle::fuzz_bundle;
#[cfg(any(test, fuzzing))]
pub use envelope::fuzz_envelope;
