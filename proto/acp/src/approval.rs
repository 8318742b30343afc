//! A person's own signature under an allow, as it comes with the answer. Its form is judged here, never what it proves.
use std::fmt;

use event::Digest;
use serde::{Deserialize, Deserializer, Serialize};

use crate::text::Text;

/// A payload has 4 KiB at most.
const MAX_PAYLOAD: usize = 4096_usize.div_ceil(3) * 4;
const SIGNATURE_DIGITS: usize = 128;

/// What was signed and by which key. `payload` and `signature` go into the receipt as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    pub payload: Base64,
    pub signature: SignatureHex,
    /// SHA-256 of the public key's 32 bytes.
    pub key_id: Digest,
}

/// Bytes in base64 with padding.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Base64(Text<4, MAX_PAYLOAD>);

/// An Ed25519 signature in lower-case hex.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SignatureHex(Text<SIGNATURE_DIGITS, SIGNATURE_DIGITS>);

/// The text is not what its place asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnApproval {
    #[error("must be base64 with padding, of 4 KiB at most")]
    Payload,
    #[error("must be 128 lower-case hex digits")]
    Signature,
}

impl Base64 {
    pub fn new(text: impl Into<String>) -> Result<Self, NotAnApproval> {
        let text = Text::new(text).map_err(|_| NotAnApproval::Payload)?;
        let whole = text.as_str();
        let digits = whole.strip_suffix("==").or_else(|| whole.strip_suffix('=')).unwrap_or(whole);
        let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
        match whole.len().is_multiple_of(4) && digits.bytes().all(digit) {
            true => Ok(Self(text)),
            false => Err(NotAnApproval::Payload),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl SignatureHex {
    pub fn new(text: impl Into<String>) -> Result<Self, NotAnApproval> {
        let text = Text::new(text).map_err(|_| NotAnApproval::Signature)?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.as_str().bytes().all(digit) {
            true => Ok(Self(text)),
            false => Err(NotAnApproval::Signature),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for SignatureHex {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl fmt::Debug for SignatureHex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_three_members_in_one_form() {
        let (signature, key) = ("0f".repeat(64), Digest::of(b"key"));
        let text = format!(r#"{{"payload":"e30=","signature":"{signature}","keyId":"{key}"}}"#);
        let approval: Approval = serde_json::from_str(&text).expect("an approval");
        assert_eq!(serde_json::to_string(&approval).expect("JSON"), text);
        for bad in [
            text.replace("e30=", ""),
            text.replace("e30=", "e30"),
            text.replace("e30=", "e==="),
            text.replace("e30=", "e3-_"),
            text.replace("e30=", &"A".repeat(MAX_PAYLOAD + 4)),
            text.replace(&signature, &signature[2..]),
            text.replace(&signature, &signature.to_uppercase()),
            text.replace(&signature, &"0g".repeat(64)),
            text.replace("sha256:", ""),
            text.replace("keyId", "key_id"),
            text.replace(r#""payload":"e30=","#, ""),
            text.replace('}', r#","chain":[]}"#),
            "null".to_owned(),
        ] {
            assert_ne!(bad, text);
            assert!(serde_json::from_str::<Approval>(&bad).is_err(), "{bad}");
        }
        assert!(Base64::new("A".repeat(MAX_PAYLOAD)).is_ok());
    }
}
