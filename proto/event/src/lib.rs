//! The event catalogue, canonical bytes and redaction; decides what may be recorded, never records it.

pub mod canon;
mod data;
mod digest;
pub mod id;
pub mod redact;
mod seal;
mod stamp;
mod wire;
mod writer;

pub use data::*;
pub use digest::{Digest, NotADigest};
pub use seal::{OpenError, Refusal, SealError, Sealed, admit, open, seal};
pub use stamp::{NotAStamp, parse_stamp, stamp};
pub use wire::{Actor, ActorKind, Event};
pub use writer::{NotAWriter, Writer};

#[cfg(any(test, fuzzing))]
pub use seal::fuzz_open;
