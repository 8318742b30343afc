//! A payload's bytes beside their signature and the signer's certificates: carried, never believed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::canonical::{self, Malformed};

/// The gRPC metadata key of an on-behalf-of context; its value is [`Signed::to_bytes`].
pub const OBO_KEY: &str = "harness-obo-bin";

const MAX_BYTES: usize = 128 * 1024;

/// Not verified: [`crate::Verifier::verify`] turns it into something to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Canonical JSON.
    pub payload: Vec<u8>,
    /// Ed25519 over the kind's domain, a zero byte and the payload.
    pub signature: Vec<u8>,
    /// DER, leaf first.
    pub chain: Vec<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    chain: Vec<String>,
    payload: String,
    signature: String,
}

impl Signed {
    /// Canonical JSON of base64 members.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        canonical::encode(&Wire {
            chain: self.chain.iter().map(|der| STANDARD.encode(der)).collect(),
            payload: STANDARD.encode(&self.payload),
            signature: STANDARD.encode(&self.signature),
        })
    }

    /// Strict: the bytes must be those that `to_bytes` writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let Wire { chain, payload, signature } = canonical::decode(bytes, MAX_BYTES)?;
        let decode = |text: String| {
            STANDARD.decode(text).map_err(|_| Malformed::Shape("not base64".to_owned()))
        };
        Ok(Self {
            payload: decode(payload)?,
            signature: decode(signature)?,
            chain: chain.into_iter().map(decode).collect::<Result<_, _>>()?,
        })
    }
}

/// What is signed: the kind's domain, a zero byte, the payload.
pub(crate) fn message(domain: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(domain.len() + 1 + payload.len());
    message.extend_from_slice(domain.as_bytes());
    message.push(0);
    message.extend_from_slice(payload);
    message
}
