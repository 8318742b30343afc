//! Workspaces, environments, containers and patches; the only holder of the engine.

mod admit;
mod answer;
mod api;
mod bind;
mod binding;
mod broker;
mod calls;
mod children;
mod config;
mod edit;
mod edit_call;
mod engine;
mod environment;
mod error;
mod exec;
mod failpoint;
mod image;
mod import;
mod import_call;
mod journal;
mod ledger;
mod lifecycle;
mod limits;
mod live;
mod mcp;
mod mounts;
mod patch;
mod patch_stream;
mod perform;
mod planner;
mod policy;
mod pool;
mod program;
mod purge;
mod reaper;
mod refusal;
mod report;
mod retake;
mod sandbox;
mod server;
mod session;
mod spool;
mod staging;
mod store;
#[cfg(test)]
mod tests;
mod tool;
mod tree;
mod undo;
mod warm;
mod why;

pub use api::CALLERS;
pub use bind::{Bound, bind};
pub use binding::Binding;
pub use config::{
    CarryRule, Config, Milli, NotACarryRule, NotARuntime, NotAWorkspace, NotAnAmount, StagingKind,
    Workspace,
};
pub use error::Error;
pub use mounts::dependency::{Dependency, NotADependency};
pub use purge::{Purge, Purged};
pub use store::StoreError;
