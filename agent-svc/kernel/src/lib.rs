//! The run's state machine: decides what happens next, never makes it happen; no I/O, no std.
//!
//! A driver is four lines: [`Run::decide`], record the events, [`Run::apply`] each, perform what is [`Run::due`].
//! Times and ids come in with the [`Input`], so a run is a pure function of its inputs. The kernel knows ids,
//! digests, numbers and reasons; what was said, asked for or printed never enters it.
#![no_std]

extern crate alloc;

mod apply;
mod approval;
mod budget;
mod decide;
mod effect;
mod event;
mod id;
mod input;
mod outcome;
pub mod record;
mod rejected;
mod run;
pub mod session;
mod settle;

pub use approval::{Approved, Basis, Call, EffectClass, Plan, Scope, Verdict};
pub use budget::{Budget, Limits, Metric};
pub use effect::{Effect, Key};
pub use event::{Event, Fact};
pub use id::{
    CallId, Digest, Fresh, Malformed, Millis, PermissionId, Reason, RunId, Subject, Time,
};
pub use input::{Answer, Choice, Finish, Input, ModelEnd, No, Planned, Prompt, Ran, Report, Seen};
pub use outcome::{CallEnd, DenySource, Halt, Outcome, Resolution};
pub use rejected::Rejected;
pub use run::{Run, Status};

/// The most tool calls that one model turn may ask for.
pub const MAX_CALLS_PER_TURN: usize = 128;
/// How often a lost call is tried again before it counts as failed.
pub const RETRIES: u32 = 2;
