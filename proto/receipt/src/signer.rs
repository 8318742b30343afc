//! The gateway's hand: signs the three kinds with the receipt certificate's key, and refuses at the start
//! what every verifier would refuse later. The key never leaves it.

use std::fmt;

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::canonical::Malformed;
use crate::leaf::{self, Signing, Untrusted};
use crate::payload::Payload;
use crate::signed::{self, Signed};

pub struct Signer {
    key: Ed25519KeyPair,
    chain: Vec<Vec<u8>>,
    signing: Signing,
}

/// Why a certificate and key cannot sign.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("the signing certificate is not PEM")]
    ChainPem(#[source] rustls_pki_types::pem::Error),
    #[error("the signing key is not a PKCS #8 PEM")]
    KeyPem(#[source] rustls_pki_types::pem::Error),
    #[error("the signing key is not Ed25519")]
    Key,
    #[error("the signing key does not belong to the certificate")]
    Mismatch,
    #[error("the signing certificate is not fit for signing")]
    Certificate(#[from] Untrusted),
}

impl Signer {
    /// `chain_pem`: the receipt certificate, then its issuers up to but without the services CA.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, Unusable> {
        let chain = CertificateDer::pem_slice_iter(chain_pem)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Unusable::ChainPem)?;
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(key_pem).map_err(Unusable::KeyPem)?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8.secret_pkcs8_der())
            .map_err(|_| Unusable::Key)?;
        let leaf = leaf::parse(chain.first().ok_or(Untrusted::Chain)?)?;
        let signing = leaf::signing(&leaf)?;
        if *leaf.public_key().subject_public_key.data != *key.public_key().as_ref() {
            return Err(Unusable::Mismatch);
        }
        Ok(Self { key, chain, signing })
    }

    /// The certificate's name and serial number.
    pub fn signing(&self) -> &Signing {
        &self.signing
    }

    /// Refuses a payload that no verifier would accept.
    pub fn sign<P: Payload>(&self, payload: &P) -> Result<Signed, Malformed> {
        let payload = payload.to_bytes()?;
        let signature = self.key.sign(&signed::message(P::DOMAIN, &payload));
        Ok(Signed { payload, signature: signature.as_ref().to_vec(), chain: self.chain.clone() })
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("signing", &self.signing).finish_non_exhaustive()
    }
}
