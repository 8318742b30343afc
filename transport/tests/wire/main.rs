//! Two processes' worth of transport in one: real sockets, real certificates, and a ledger that does next to nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "helpers outside test functions are tests, too"
)]

mod admin;
mod deadlines;
mod denials;
mod drain;
mod ledger;
mod matrix;
mod paths;
mod process;
mod public;
mod refusals;
mod rotation;
mod setup;
mod statuses;
mod traces;
