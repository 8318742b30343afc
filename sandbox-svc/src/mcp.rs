//! The conversation with a tool server: its lines bounded and judged before anything reads them, every wait with an
//! end, every answer a fact about an untrusted peer. It neither starts a server nor decides whether one may be asked.

mod client;
mod definition;
mod result;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

pub(crate) use client::{Client, Failure, Limits};
pub(crate) use definition::Definition;
pub(crate) use result::told;
pub(crate) use wire::Broken;
