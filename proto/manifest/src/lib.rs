//! Task manifests and the ceilings above them: parsed into typed rules, decided and explained; never reads a
//! file.

mod action;
mod allowed;
mod ballot;
mod ceiling;
mod command;
mod decision;
mod evaluate;
mod execution;
mod fault;
mod fields;
pub mod glob;
mod host;
mod interpreter;
mod names;
mod path;
mod place;
mod policy;
mod policy_test;
mod protected;
mod requirement;
mod rulebook;
mod rules;
mod schema;
mod source;
mod subject;
mod tree;
mod units;

pub use event::Effect;

pub use action::Action;
pub use allowed::{BadAllowedPath, check_allowed_path};
pub use ceiling::Ceiling;
pub use command::{Command, ResolvedProgram, parse_exec_subject};
pub use decision::{Decision, Layer, Matched, system};
pub use evaluate::Target;
pub use execution::{Backend, Execution, Limits, Mode};
pub use fault::{Fault, Faults};
pub use host::{BadHost, HostPort};
pub use names::{fold, is_git};
pub use path::{BadPath, WorkPath};
pub use place::At;
pub use policy::Policy;
pub use policy_test::{Example, PolicyTest};
pub use protected::{Protected, is_git_directory, is_protected};
pub use requirement::Requirement;
pub use rulebook::Rulebook;
pub use schema::{Budget, Delivery, Interaction, Manifest, OnDisconnect};
pub use subject::exec_subject;
