//! A complete set of issuers for one installation on one desk; production has them apart and its root on no host.

use std::{path::Path, sync::Arc};

use super::{Authority, Error, Issued, LeafSpec, write_tls_dir};
use crate::{Context, Material, Service, TrustDomain, material::Pem};

/// A root and under it the issuers of services, clients and auditors.
#[derive(Debug)]
pub struct DevPki {
    /// The trust domain.
    pub domain: TrustDomain,
    /// Issues issuers.
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
        let root = Authority::root(&format!("{domain} root"))?;
        let services = root.intermediate(&format!("{domain} services"))?;
        let clients = root.intermediate(&format!("{domain} clients"))?;
        let auditors = root.intermediate(&format!("{domain} auditors"))?;
        Ok(Self { domain, root, services, clients, auditors })
    }

    /// The usual leaf for `path` in this trust domain, to be changed before it is issued.
    pub fn leaf(&self, path: &str) -> LeafSpec {
        LeafSpec::tls(&self.domain, path)
    }

    /// A leaf for one instance of a service.
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
        self.services.issue(&LeafSpec::receipts(&self.domain, instance))
    }

    /// Material in memory for `issued`; it can also serve auditors.
    pub fn material(&self, issued: &Issued) -> Result<Arc<Material>, Error> {
        let pem = Pem {
            chain: issued.cert_pem.clone().into_bytes(),
            key: issued.key_pem.clone().into_bytes(),
            ca: self.services.cert_pem().into(),
            auditors_ca: Some(self.auditors.cert_pem().into()),
            denylist: None,
        };
        Ok(Material::from_pem(pem, self.domain.clone())?)
    }

    /// A context for instance `0` of `service`, as its `bind` wants one.
    pub fn context(&self, service: Service) -> Result<Context, Error> {
        Ok(Context::for_test(self.material(&self.service(service, "0")?)?))
    }

    /// Writes a TLS directory for `issued`, with the auditors' issuers.
    pub fn write_tls_dir(&self, dir: &Path, issued: &Issued) -> Result<(), Error> {
        write_tls_dir(dir, issued, self.services.cert_pem(), Some(self.auditors.cert_pem()))
    }
}
