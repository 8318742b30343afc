//! SHA-256 digests and their one spelling, `sha256:<64 lower-case hex digits>`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// The text or bytes are not a SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest of the form sha256:<64 lower-case hex digits>")]
pub struct NotADigest;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// SHA-256 of the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// SHA-256 of `domain ‖ 0x00 ‖ bytes`, so that equal bytes in two domains never share a digest.
    pub fn of_parts(domain: &str, bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(domain.as_bytes());
        hash.update([0]);
        hash.update(bytes);
        Self(hash.finalize().into())
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NotADigest> {
        bytes.try_into().map(Self).map_err(|_| NotADigest)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.strip_prefix(PREFIX).ok_or(NotADigest)?;
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(NotADigest);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| NotADigest)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_reads_back_as_written() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(digest));
        assert_eq!(Digest::from_bytes(digest.as_bytes()), Ok(digest));
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in
            [&EMPTY[7..], &EMPTY.to_uppercase(), &EMPTY[..70], &format!("{EMPTY}0"), "sha256:", ""]
        {
            assert_eq!(text.parse::<Digest>(), Err(NotADigest), "{text}");
        }
        assert_eq!(Digest::from_bytes(&[0; 31]), Err(NotADigest));
    }

    #[test]
    fn a_domain_is_part_of_the_digest() {
        assert_eq!(Digest::of_parts("harness.plan.v1", b"{}"), Digest::of(b"harness.plan.v1\0{}"));
        assert_ne!(
            Digest::of_parts("harness.plan.v1", b"{}"),
            Digest::of_parts("harness.action.v1", b"{}")
        );
    }
}
