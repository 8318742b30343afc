//! The log against RFC 6962's own definitions, and against every change that somebody could make to it.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod envelope;
mod merkle;
mod sample;
mod tampering;
