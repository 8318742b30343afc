//! Signing and verifying with minted certificates, and what holds for every plan and payload.

mod pki;
mod properties;
mod verify;
