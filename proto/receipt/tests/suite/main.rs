//! Signing and verifying with minted certificates, and what holds for every plan and payload.

#[cfg(test)]
mod pki;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod verify;
