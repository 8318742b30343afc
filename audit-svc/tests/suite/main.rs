//! The ledger as its callers meet it: over mutual TLS, with real certificates and a real database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod append;
mod disk;
mod fixture;
mod reach;
mod read;
