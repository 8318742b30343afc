//! Task manifests: parsed into typed rules, decided and explained; never reads a file.

mod execution;
mod fault;
mod fields;
pub mod glob;
mod policy;
mod schema;
mod subject;
mod tree;
mod units;

pub use event::Effect;

pub use execution::{Backend, Execution, Limits, Mode};
pub use fault::{Fault, Faults};
pub use policy::{Action, Decision, Policy};
pub use schema::{Budget, Delivery, Interaction, Manifest, OnDisconnect};
pub use subject::exec_subject;
