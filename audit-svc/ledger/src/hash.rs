//! SHA-256 as RFC 6962 uses it: a leaf can never be taken for a node.

use alloc::string::String;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const LEAF: u8 = 0x00;
const NODE: u8 = 0x01;

/// A SHA-256 value; written as base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

/// The bytes or text are not a SHA-256 value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAHash;

impl Hash {
    /// Stands where nothing precedes.
    pub const ZERO: Self = Self([0; 32]);

    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn from_slice(bytes: &[u8]) -> Result<Self, NotAHash> {
        bytes.try_into().map(Self).map_err(|_| NotAHash)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub fn from_base64(text: &str) -> Result<Self, NotAHash> {
        Self::from_slice(&STANDARD.decode(text).map_err(|_| NotAHash)?)
    }

    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// The leaf of an envelope: SHA-256(0x00 ‖ envelope).
pub fn leaf_hash(envelope: &[u8]) -> Hash {
    Hash::of(&[&[LEAF], envelope])
}

/// The node over two subtrees: SHA-256(0x01 ‖ left ‖ right).
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash::of(&[&[NODE], &left.0, &right.0])
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NotAHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a SHA-256 value")
    }
}

impl core::error::Error for NotAHash {}
