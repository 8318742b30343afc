//! Workspaces, environments, containers and patches; the only holder of the engine.

mod config;
mod engine;
mod error;
mod failpoint;
mod import;
mod ledger;
mod patch;
mod refusal;
mod staging;
mod store;
mod tree;

pub use config::{Config, Milli, NotAWorkspace, NotAnAmount, StagingKind, Workspace};
pub use error::Error;
