//! A person's own signature under what they allow, made where they sit. It proves who said yes even against a gateway
//! that lies; it never says whether that person may.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use event::id::{CallId, PermissionId, RunId, SessionId};
use event::{Digest, Scope};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Serialize};

use crate::canonical::{self, Malformed};
use crate::payload::{HOUR, Receipt, lasts};
use crate::signed;

const DOMAIN: &str = "harness.approval.v1";
const MAX_LIFE: u64 = HOUR;
const MAX_BYTES: usize = 4 * 1024;
const SIGNATURE_BYTES: usize = 64;
const KEY_BYTES: usize = 32;
/// What comes before the key in a public key's DER: an Ed25519 key without parameters, and nothing else.
const SPKI_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];

/// What a person signs. The action is named beside the plan, because an allow for the run admits other plans of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Digest of the plan that was shown.
    pub plan: Digest,
    pub action: Digest,
    pub permission: PermissionId,
    pub session: SessionId,
    pub run: RunId,
    pub call: CallId,
    pub scope: Scope,
    pub subject: String,
    /// Signed at, Unix seconds.
    pub iat: u64,
    /// Valid before; an hour later at most.
    pub exp: u64,
}

impl Approval {
    /// The canonical bytes that are signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        lasts(self.iat, self.exp, MAX_LIFE)?;
        let bytes = canonical::encode(self)?;
        if bytes.len() > MAX_BYTES {
            return Err(Malformed::TooLong { limit: MAX_BYTES });
        }
        Ok(bytes)
    }

    /// Strict: the bytes must be those that `to_bytes` writes. Says nothing about who signed them.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let approval: Self = canonical::decode(bytes, MAX_BYTES)?;
        lasts(approval.iat, approval.exp, MAX_LIFE)?;
        Ok(approval)
    }

    /// Whether it allows exactly what the receipt does. Times are judged apart.
    pub fn is_of(&self, receipt: &Receipt) -> bool {
        let Self { plan, action, permission, session, run, call, scope, subject, iat: _, exp: _ } =
            self;
        *plan == receipt.plan
            && *action == receipt.action
            && *permission == receipt.permission
            && *session == receipt.session
            && *run == receipt.run
            && *call == receipt.call
            && *scope == receipt.scope
            && *subject == receipt.subject
    }
}

/// An approval as it travels: carried by the gateway and inside a receipt, never believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct SignedApproval {
    payload: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
    key_id: Digest,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    key_id: Digest,
    payload: String,
    signature: String,
}

/// Why a signature proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("it names another key")]
    Key,
    #[error("the signature does not fit the payload or the key")]
    Signature,
    #[error("the payload is malformed: {0}")]
    Payload(#[from] Malformed),
}

impl SignedApproval {
    /// `payload` in base64, `signature` in lower-case hex: as a client sends them and a receipt holds them.
    pub fn from_text(payload: &str, signature: &str, key_id: Digest) -> Result<Self, Malformed> {
        let shape = |what: &str| Malformed::Shape(what.to_owned());
        if payload.len() > MAX_BYTES.div_ceil(3) * 4 {
            return Err(Malformed::TooLong { limit: MAX_BYTES });
        }
        let payload = STANDARD.decode(payload).map_err(|_| shape("payload is not base64"))?;
        let lower = !signature.bytes().any(|byte| byte.is_ascii_uppercase());
        let signature = hex::decode(signature)
            .ok()
            .filter(|_| lower)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| shape("signature is not 64 bytes in lower-case hex"))?;
        Ok(Self { payload, signature, key_id })
    }

    pub fn payload_text(&self) -> String {
        STANDARD.encode(&self.payload)
    }

    pub fn signature_text(&self) -> String {
        hex::encode(self.signature)
    }

    /// Names the key that is said to have signed.
    pub fn key_id(&self) -> Digest {
        self.key_id
    }

    /// What it says, by whomever.
    pub fn read(&self) -> Result<Approval, Malformed> {
        Approval::parse(&self.payload)
    }

    /// What the holder of `key` signed.
    pub fn verify(&self, key: &PublicKey) -> Result<Approval, Unproven> {
        if self.key_id != key.id() {
            return Err(Unproven::Key);
        }
        UnparsedPublicKey::new(&ED25519, &key.0)
            .verify(&signed::message(DOMAIN, &self.payload), &self.signature)
            .map_err(|_| Unproven::Signature)?;
        Ok(self.read()?)
    }
}

impl TryFrom<Wire> for SignedApproval {
    type Error = Malformed;

    fn try_from(Wire { key_id, payload, signature }: Wire) -> Result<Self, Malformed> {
        Self::from_text(&payload, &signature, key_id)
    }
}

impl From<SignedApproval> for Wire {
    fn from(signed: SignedApproval) -> Self {
        let (payload, signature) = (signed.payload_text(), signed.signature_text());
        Self { key_id: signed.key_id, payload, signature }
    }
}

/// Not a key that approvals are signed or verified with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAKey {
    #[error("not a PEM")]
    Pem,
    #[error("not 32 bytes in base64")]
    Base64,
    #[error("not an Ed25519 key")]
    Kind,
}

/// A person's signing key; it never leaves their machine.
pub struct ApproverKey(Ed25519KeyPair);

impl ApproverKey {
    /// PKCS #8, with or without the public half.
    pub fn from_pem(pem: &[u8]) -> Result<Self, NotAKey> {
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| NotAKey::Pem)?;
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8.secret_pkcs8_der())
            .map(Self)
            .map_err(|_| NotAKey::Kind)
    }

    /// What the list of approvers at the executor names.
    pub fn public(&self) -> Result<PublicKey, NotAKey> {
        self.0.public_key().as_ref().try_into().map(PublicKey).map_err(|_| NotAKey::Kind)
    }

    /// Refuses what no executor would accept.
    pub fn sign(&self, approval: &Approval) -> Result<SignedApproval, Malformed> {
        let shape = |what: &str| Malformed::Shape(what.to_owned());
        let payload = approval.to_bytes()?;
        let key = self.public().map_err(|_| shape("the key has no public half"))?;
        let signature = self.0.sign(&signed::message(DOMAIN, &payload));
        let signature =
            signature.as_ref().try_into().map_err(|_| shape("the signature is not 64 bytes"))?;
        Ok(SignedApproval { payload, signature, key_id: key.id() })
    }
}

impl fmt::Debug for ApproverKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApproverKey").finish_non_exhaustive()
    }
}

/// The public half; shown as its bytes in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// A `PUBLIC KEY` PEM, or the key's 32 bytes in base64.
    pub fn parse(text: &str) -> Result<Self, NotAKey> {
        let text = text.trim();
        if text.starts_with("-----") {
            let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
                .map_err(|_| NotAKey::Pem)?;
            let key = der.as_ref().strip_prefix(SPKI_PREFIX).ok_or(NotAKey::Kind)?;
            return key.try_into().map(Self).map_err(|_| NotAKey::Kind);
        }
        let bytes = STANDARD.decode(text).map_err(|_| NotAKey::Base64)?;
        bytes.try_into().map(Self).map_err(|_| NotAKey::Base64)
    }

    /// SHA-256 of the key's bytes.
    pub fn id(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}
