//! Task manifests and the ceilings above them: parsed into typed rules, decided and explained; never reads a
//! file.

mod action;
mod allowed;
mod ballot;
mod ceiling;
mod command;
mod decision;
mod diff;
mod evaluate;
mod execution;
mod explain;
mod fault;
mod fields;
#[cfg(any(test, fuzzing))]
mod fuzz;
pub mod glob;
mod host;
mod interpreter;
mod json_schema;
mod lint;
mod names;
mod nearest;
mod network;
mod overlap;
mod path;
mod place;
mod policy;
mod policy_test;
mod print;
mod profile;
mod protected;
mod requirement;
mod rulebook;
mod rules;
mod schema;
mod server;
mod shell;
mod source;
mod starter;
mod subject;
mod tree;
mod units;

pub use event::Effect;

pub use action::Action;
pub use allowed::{BadAllowedPath, check_allowed_path};
pub use ceiling::Ceiling;
pub use command::{Command, ResolvedProgram, parse_exec_subject};
pub use decision::{Decision, Layer, Matched, system};
pub use diff::{Change, KeyChange, Outcome, Recorded, diff, diff_keys};
pub use evaluate::Target;
pub use execution::{Backend, Execution, Limits, Mode};
pub use explain::{Explanation, NearMiss, SourceFile};
pub use fault::{Fault, Faults};
#[cfg(any(test, fuzzing))]
pub use fuzz::{fuzz_manifest, fuzz_pattern, fuzz_script};
pub use host::{BadHost, HostPort};
pub use json_schema::{ceiling_schema, schema};
pub use lint::{Code, Finding, Level, Roster, lint, lint_ceiling};
pub use names::{fold, is_git};
pub use network::{HostRule, Network, NetworkLayer, OTHERWISE, Otherwise, TooManyHosts};
pub use path::{BadPath, WorkPath};
pub use place::At;
pub use policy::Policy;
pub use policy_test::{Example, PolicyTest};
pub use print::{print, print_ceiling};
pub use profile::Profile;
pub use protected::{Protected, is_git_directory, is_protected};
pub use requirement::Requirement;
pub use rulebook::Rulebook;
pub use schema::{Budget, Delivery, Interaction, Manifest, OnDisconnect};
pub use server::{Server, tool_subject};
pub use starter::starter;
pub use subject::exec_subject;
