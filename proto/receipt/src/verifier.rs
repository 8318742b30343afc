//! From [`Signed`] to [`Verified`]: signature, payload, signer and time, each with its own refusal.
//! It holds only the services CA and the trust domain, and asks nobody.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::canonical::Malformed;
use crate::leaf::{self, EKU_DER, Signing, Untrusted};
use crate::payload::Payload;
use crate::signed::{self, Signed};

const MAX_CHAIN: usize = 4;
const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;
/// How far ahead the signer's clock may run, in seconds.
const LEEWAY: u64 = 60;
/// What authorities may sign certificates with. Payloads are Ed25519 only.
const ISSUER_ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] =
    &[webpki::ring::ECDSA_P256_SHA256, webpki::ring::ECDSA_P384_SHA384, webpki::ring::ED25519];

/// Judges what a gateway signed.
pub struct Verifier {
    anchors: Vec<TrustAnchor<'static>>,
    trust_domain: String,
}

/// The CA bundle cannot vouch for anyone.
#[derive(Debug, thiserror::Error)]
pub enum NoTrust {
    #[error("the CA bundle is not PEM")]
    Pem(#[source] rustls_pki_types::pem::Error),
    #[error("a certificate of the CA bundle is not usable")]
    Certificate(#[source] webpki::Error),
    #[error("the CA bundle is empty")]
    Empty,
    #[error("the trust domain is empty")]
    TrustDomain,
}

impl Verifier {
    /// `ca_pem` holds the services CA, one or more certificates.
    pub fn new(ca_pem: &[u8], trust_domain: &str) -> Result<Self, NoTrust> {
        if trust_domain.is_empty() {
            return Err(NoTrust::TrustDomain);
        }
        let mut anchors = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            let certificate = certificate.map_err(NoTrust::Pem)?;
            let anchor =
                webpki::anchor_from_trusted_cert(&certificate).map_err(NoTrust::Certificate)?;
            anchors.push(anchor.to_owned());
        }
        if anchors.is_empty() {
            return Err(NoTrust::Empty);
        }
        Ok(Self { anchors, trust_domain: trust_domain.to_owned() })
    }

    /// Judges `signed` at `now` (Unix seconds). `denied` is the present deny list.
    pub fn verify<P: Payload>(
        &self,
        signed: &Signed,
        now: u64,
        denied: &dyn Fn(&Signing) -> bool,
    ) -> Result<Verified<P>, Invalid> {
        let chain = bounded(&signed.chain)?;
        let (leaf_der, issuers) = chain.split_first().ok_or(Untrusted::Chain)?;
        let leaf = leaf::parse(leaf_der)?;
        for issuer in issuers {
            leaf::parse(issuer)?;
        }
        leaf::requires_ed25519(&leaf)?;
        let certificate = EndEntityCert::try_from(leaf_der).map_err(|_| Untrusted::Certificate)?;
        certificate
            .verify_signature(
                webpki::ring::ED25519,
                &signed::message(P::DOMAIN, &signed.payload),
                &signed.signature,
            )
            .map_err(|_| Invalid::Signature)?;

        let payload = P::parse(&signed.payload)?;
        let signing = leaf::signing(&leaf)?;
        if leaf::trust_domain(&signing.spiffe_id)? != self.trust_domain {
            return Err(Untrusted::TrustDomain.into());
        }
        self.requires_chain(&certificate, issuers, payload.iat())?;
        if denied(&signing) {
            return Err(Invalid::Denied);
        }
        if payload.iat() > now.saturating_add(LEEWAY) {
            return Err(Invalid::NotYetValid);
        }
        if payload.exp() <= now {
            return Err(Invalid::Expired);
        }
        Ok(Verified { payload, signing })
    }

    fn requires_chain(
        &self,
        certificate: &EndEntityCert<'_>,
        issuers: &[CertificateDer<'_>],
        at: u64,
    ) -> Result<(), Untrusted> {
        // The leaf's purposes are already judged more strictly; this judges those of authorities.
        let usage = KeyUsage::required_if_present(EKU_DER);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        match certificate.verify_for_usage(
            ISSUER_ALGORITHMS,
            &self.anchors,
            issuers,
            at,
            usage,
            None,
            None,
        ) {
            Ok(_) => Ok(()),
            Err(webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. }) => {
                Err(Untrusted::Validity)
            }
            Err(_) => Err(Untrusted::Issuer),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("trust_domain", &self.trust_domain)
            .field("anchors", &self.anchors.len())
            .finish()
    }
}

fn bounded(chain: &[Vec<u8>]) -> Result<Vec<CertificateDer<'_>>, Untrusted> {
    let fits = (1..=MAX_CHAIN).contains(&chain.len())
        && chain.iter().all(|der| der.len() <= MAX_CERTIFICATE_BYTES);
    if fits {
        Ok(chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect())
    } else {
        Err(Untrusted::Chain)
    }
}

/// A payload whose signer, signature and time were in order when it was judged. Only
/// [`Verifier::verify`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified<P> {
    payload: P,
    signing: Signing,
}

impl<P> Verified<P> {
    pub fn signing(&self) -> &Signing {
        &self.signing
    }

    pub fn into_inner(self) -> P {
        self.payload
    }
}

impl<P> Deref for Verified<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.payload
    }
}

/// Why something signed is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("the signature does not fit the payload, its kind or the certificate")]
    Signature,
    #[error("the signer is not trusted: {0}")]
    Signer(#[from] Untrusted),
    #[error("the signer is on the deny list")]
    Denied,
    #[error("valid no longer")]
    Expired,
    #[error("not valid yet")]
    NotYetValid,
    #[error("the payload is malformed: {0}")]
    Payload(#[from] Malformed),
}

impl Invalid {
    /// Stable, for callers and the record.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Signature => "SIGNATURE_INVALID",
            Self::Signer(_) => "SIGNER_UNTRUSTED",
            Self::Denied => "SIGNER_DENIED",
            Self::Expired => "EXPIRED",
            Self::NotYetValid => "NOT_YET_VALID",
            Self::Payload(_) => "PAYLOAD_MALFORMED",
        }
    }
}
