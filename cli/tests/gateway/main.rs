//! The built program against a gateway that is played here.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod answers;
mod approvals;
mod patch;
mod played;
mod program;
mod terminal;
