//! A services CA and receipt certificates of every shape, right and wrong.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType, SignatureAlgorithm,
};
use receipt::{Grant, OnDisconnect, Signer};
use time::OffsetDateTime;

pub(crate) const DOMAIN: &str = "example.test";
pub(crate) const SIGNER: &str = "spiffe://example.test/receipts/gateway/gw-1";
/// Every certificate here is valid for this span; payloads are signed inside it.
pub(crate) const NOT_BEFORE: u64 = 1_900_000_000;
pub(crate) const NOW: u64 = NOT_BEFORE + 1_000;
pub(crate) const NOT_AFTER: u64 = NOT_BEFORE + 2_000;

pub(crate) struct Ca {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) struct Leaf {
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
    key: KeyPair,
    ders: Vec<Vec<u8>>,
}

/// What a leaf says; `Spec::receipts()` is the right one.
pub(crate) struct Spec {
    pub(crate) uris: Vec<&'static str>,
    pub(crate) purposes: Vec<ExtendedKeyUsagePurpose>,
    pub(crate) algorithm: &'static SignatureAlgorithm,
    pub(crate) not_after: u64,
    pub(crate) is_ca: bool,
}

impl Spec {
    pub(crate) fn receipts() -> Self {
        Self {
            uris: vec![SIGNER],
            purposes: vec![receipts_purpose()],
            algorithm: &PKCS_ED25519,
            not_after: NOT_AFTER,
            is_ca: false,
        }
    }
}

pub(crate) fn receipts_purpose() -> ExtendedKeyUsagePurpose {
    ExtendedKeyUsagePurpose::Other(receipt::EKU_OID.to_vec())
}

fn moment(unix: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(i64::try_from(unix).unwrap()).unwrap()
}

fn params(name: &str, not_after: u64) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = moment(NOT_BEFORE);
    params.not_after = moment(not_after);
    params
}

fn ca_params(name: &str, below: u8) -> CertificateParams {
    let mut params = params(name, NOT_AFTER);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = ca_params("services CA", 1);
        let pem = params.clone().self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn leaf(&self, spec: &Spec) -> Leaf {
        leaf(&self.issuer, spec, Vec::new())
    }

    /// A leaf below an issuer of its own, which the chain carries.
    pub(crate) fn leaf_below_intermediate(&self, spec: &Spec) -> Leaf {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = ca_params("receipts CA", 0);
        let der = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        leaf(&Issuer::new(params, key), spec, vec![der])
    }

    pub(crate) fn signer(&self) -> Signer {
        self.leaf(&Spec::receipts()).signer()
    }
}

fn leaf(issuer: &Issuer<'_, KeyPair>, spec: &Spec, above: Vec<Vec<u8>>) -> Leaf {
    let key = KeyPair::generate_for(spec.algorithm).unwrap();
    let mut params = params("receipt signer", spec.not_after);
    params.subject_alt_names =
        spec.uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    params.extended_key_usages = spec.purposes.clone();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.is_ca =
        if spec.is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
    let certificate = params.signed_by(&key, issuer).unwrap();
    let mut ders = vec![certificate.der().to_vec()];
    let mut chain_pem = certificate.pem();
    for der in above {
        chain_pem.push_str(&pem(&der));
        ders.push(der);
    }
    Leaf { chain_pem, key_pem: key.serialize_pem(), key, ders }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

impl Leaf {
    pub(crate) fn signer(&self) -> Signer {
        Signer::from_pem(self.chain_pem.as_bytes(), self.key_pem.as_bytes()).unwrap()
    }

    /// Signs whatever it is told, as a forger would.
    pub(crate) fn forge(&self, domain: &str, payload: &[u8]) -> receipt::Signed {
        use rcgen::SigningKey as _;
        let mut message = domain.as_bytes().to_vec();
        message.push(0);
        message.extend_from_slice(payload);
        receipt::Signed {
            payload: payload.to_vec(),
            signature: self.key.sign(&message).unwrap(),
            chain: self.ders.clone(),
        }
    }
}

pub(crate) fn grant() -> Grant {
    Grant {
        session: "0198f000-0000-7000-8000-000000000001".parse().unwrap(),
        tenant: "default".into(),
        subject: "dev".into(),
        manifest_id: "demo".into(),
        manifest: event::Digest::of(b"manifest"),
        workspace: "demo".into(),
        models: vec!["scripted".into()],
        on_disconnect: OnDisconnect::Deny,
        iat: NOW,
        exp: NOW + 3_600,
    }
}
