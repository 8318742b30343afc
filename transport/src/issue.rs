//! Mints certificates of any shape, for the development CA and for tests; never part of a running service.

mod dev;

use std::{
    fmt, fs,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType,
};
use time::{Duration, OffsetDateTime};

pub use self::dev::DevPki;
use crate::TrustDomain;

/// What a key can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// ECDSA, for TLS.
    P256,
    /// For signing receipts.
    Ed25519,
}

/// What a certificate may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eku {
    /// TLS servers.
    ServerAuth,
    /// TLS clients.
    ClientAuth,
    /// Any other, by object identifier.
    Other(Vec<u64>),
}

/// The extended key usage of receipt-signing certificates; TLS knows nothing of it.
const RECEIPTS_EKU: [u64; 9] = [1, 3, 6, 1, 4, 1, 32473, 7, 1];

/// A leaf of any shape, also of wrong ones.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    /// For people; nothing reads it.
    pub common_name: String,
    /// SPIFFE ids; a right leaf has exactly one.
    pub uri_sans: Vec<String>,
    /// For people and for clients that check host names.
    pub dns_sans: Vec<String>,
    /// The same for addresses.
    pub ip_sans: Vec<IpAddr>,
    /// Extended key usages.
    pub ekus: Vec<Eku>,
    /// The kind of key.
    pub key: Key,
    /// Valid from.
    pub not_before: OffsetDateTime,
    /// Valid until.
    pub not_after: OffsetDateTime,
    /// Wrong for a leaf.
    pub is_ca: bool,
}

impl LeafSpec {
    /// A right TLS leaf for the id `spiffe://<domain>/<path>`: 30 days, both directions of TLS, also good for `localhost`
    /// and the loopback addresses. Change what should be different.
    pub fn tls(domain: &TrustDomain, path: &str) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            common_name: path.to_owned(),
            uri_sans: vec![format!("spiffe://{domain}/{path}")],
            dns_sans: vec!["localhost".to_owned()],
            ip_sans: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            ekus: vec![Eku::ServerAuth, Eku::ClientAuth],
            key: Key::P256,
            not_before: now - LEEWAY,
            not_after: now + Duration::days(30),
            is_ca: false,
        }
    }

    /// The certificate of a gateway instance that signs receipts and can do nothing else.
    pub fn receipts(domain: &TrustDomain, instance: &str) -> Self {
        Self {
            dns_sans: Vec::new(),
            ip_sans: Vec::new(),
            ekus: vec![Eku::Other(RECEIPTS_EKU.to_vec())],
            key: Key::Ed25519,
            ..Self::tls(domain, &format!("receipts/gateway/{instance}"))
        }
    }

    fn params(&self) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&self.common_name);
        let uris = self.uri_sans.iter().map(|uri| Ok(SanType::URI(uri.as_str().try_into()?)));
        let hosts =
            self.dns_sans.iter().map(|host| Ok(SanType::DnsName(host.as_str().try_into()?)));
        let addrs = self.ip_sans.iter().map(|addr| Ok(SanType::IpAddress(*addr)));
        params.subject_alt_names =
            uris.chain(hosts).chain(addrs).collect::<Result<_, rcgen::Error>>()?;
        params.is_ca = if self.is_ca {
            IsCa::Ca(BasicConstraints::Constrained(0))
        } else {
            IsCa::ExplicitNoCa
        };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = self.ekus.iter().map(purpose).collect();
        params.use_authority_key_identifier_extension = true;
        params.not_before = self.not_before;
        params.not_after = self.not_after;
        Ok(params)
    }
}

/// Clocks of hosts differ a little.
const LEEWAY: Duration = Duration::minutes(5);

fn purpose(eku: &Eku) -> ExtendedKeyUsagePurpose {
    match eku {
        Eku::ServerAuth => ExtendedKeyUsagePurpose::ServerAuth,
        Eku::ClientAuth => ExtendedKeyUsagePurpose::ClientAuth,
        Eku::Other(oid) => ExtendedKeyUsagePurpose::Other(oid.clone()),
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// Never shows the key.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// An issuer.
pub struct Authority {
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Never shows the key.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

impl Authority {
    /// A self-signed root for ten years.
    pub fn root(common_name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let params = ca_params(common_name, 1, Duration::days(3650));
        Ok(Self { cert_pem: params.self_signed(&key)?.pem(), issuer: Issuer::new(params, key) })
    }

    /// An issuer of leaves for one year, under this one.
    pub fn intermediate(&self, common_name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let params = ca_params(common_name, 0, Duration::days(365));
        Ok(Self {
            cert_pem: params.signed_by(&key, &self.issuer)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The issuer as it was kept: its certificate and its key.
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let issuer = Issuer::from_ca_cert_pem(cert_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { cert_pem: cert_pem.to_owned(), issuer })
    }

    /// The issuer's certificate.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The issuer's private key.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a leaf.
    pub fn issue(&self, spec: &LeafSpec) -> Result<Issued, Error> {
        let key = KeyPair::generate_for(match spec.key {
            Key::P256 => &PKCS_ECDSA_P256_SHA256,
            Key::Ed25519 => &PKCS_ED25519,
        })?;
        let certificate = spec.params()?.signed_by(&key, &self.issuer)?;
        Ok(Issued { cert_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

fn ca_params(common_name: &str, issuers_below: u8, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(issuers_below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params.not_before = OffsetDateTime::now_utc() - LEEWAY;
    params.not_after = OffsetDateTime::now_utc() + lifetime;
    params
}

/// Writes a TLS directory as [`crate::Material::open`] reads it, private to its owner. Each file is replaced whole; a reader
/// that comes in between sees files that do not fit together and keeps what it has.
pub fn write_tls_dir(
    dir: &Path,
    issued: &Issued,
    services_ca: &str,
    auditors_ca: Option<&str>,
) -> Result<(), Error> {
    let failed = |source| Error::Write { file: dir.display().to_string(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    write_private(&dir.join("tls.key"), &issued.key_pem)?;
    write_private(&dir.join("tls.crt"), &issued.cert_pem)?;
    write_private(&dir.join("ca.crt"), services_ca)?;
    match auditors_ca {
        Some(ca) => write_private(&dir.join("auditors-ca.crt"), ca),
        None => Ok(()),
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::Write { file: path.display().to_string(), source };
    let fresh = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(failed)
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shape cannot be expressed, or a kept issuer cannot be read.
    #[error("cannot make the certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was issued is not usable.
    #[error("the issued certificate is not usable")]
    Material(#[from] crate::material::Error),
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{Identity, Material, Service, material::Pem};

    #[test]
    fn an_issuer_that_was_kept_issues_like_the_first() {
        let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
        let kept = Authority::from_pem(pki.services.cert_pem(), &pki.services.key_pem()).unwrap();
        let issued = kept.issue(&pki.leaf("svc/model-svc/7")).unwrap();
        let pem = Pem {
            chain: issued.cert_pem.into_bytes(),
            key: issued.key_pem.into_bytes(),
            ca: pki.services.cert_pem().into(),
            auditors_ca: None,
            denylist: None,
        };
        let material = Material::from_pem(pem, pki.domain.clone()).unwrap();
        let expected = Identity::Service { service: Service::ModelSvc, instance: "7".to_owned() };
        assert_eq!(material.identity(), expected);
    }

    #[test]
    fn a_tls_directory_is_private_to_its_owner() {
        let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
        let dir = tempfile::TempDir::new().unwrap();
        let tls = dir.path().join("tls");
        pki.write_tls_dir(&tls, &pki.service(Service::Gateway, "0").unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&tls), 0o700);
        let mut names: Vec<_> =
            fs::read_dir(&tls).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert!(names.iter().all(|path| mode(path) == 0o600), "{names:?}");
        let files = ["auditors-ca.crt", "ca.crt", "tls.crt", "tls.key"].map(|name| tls.join(name));
        assert_eq!(names, files);
    }
}
