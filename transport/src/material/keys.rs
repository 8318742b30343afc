//! One consistent set of certificates with the rustls configurations made from it; it is swapped whole or not at all.

use std::{fmt, sync::Arc};

use metrics::gauge;
use rustls::{ClientConfig, RootCertStore, ServerConfig, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::{Error, Pem};
use crate::{
    Identity, Service, TrustDomain,
    denylist::DenyList,
    leaf::Leaf,
    tls::{self, Admits},
};

pub(super) struct Keys {
    pub(super) leaf: Leaf,
    pub(super) loaded_at: OffsetDateTime,
    pub(super) services: Arc<ServerConfig>,
    pub(super) auditors: Option<Arc<ServerConfig>>,
    pub(super) public: Arc<ServerConfig>,
    key: CertifiedKey,
    issuers: Arc<RootCertStore>,
    bundle: String,
}

/// Never shows the key.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("leaf", &self.leaf)
            .field("bundle", &self.bundle)
            .finish_non_exhaustive()
    }
}

impl Keys {
    pub(super) fn parse(
        pem: &Pem,
        domain: &TrustDomain,
        now: OffsetDateTime,
    ) -> Result<Self, Error> {
        let chain = certificates("tls.crt", &pem.chain)?;
        let key = PrivateKeyDer::from_pem_slice(&pem.key)
            .map_err(|source| Error::Pem { file: "tls.key", source })?;
        let first = chain.first().ok_or(Error::NoCertificate { file: "tls.crt" })?;
        let leaf = Leaf::read(first, domain).map_err(Error::Leaf)?;
        if now < leaf.not_before || now > leaf.not_after {
            return Err(Error::Validity { from: leaf.not_before, until: leaf.not_after });
        }
        let issuers = Arc::new(issuers("ca.crt", &pem.ca)?);
        if matches!(leaf.peer.identity, Identity::Service { .. }) {
            tls::verify_chain(first, &chain[1..], &issuers, unix(now), &tls::provider())
                .map_err(Error::Untrusted)?;
        }
        let key = CertifiedKey::from_der(chain, key, &tls::provider()).map_err(Error::Key)?;
        let auditors =
            pem.auditors_ca.as_deref().map(|ca| auditors_server(&key, ca, domain)).transpose()?;
        Ok(Self {
            leaf,
            loaded_at: now,
            services: tls::mutual_server(&key, issuers.clone(), Admits::Services, domain)
                .map_err(Error::Unusable)?,
            auditors,
            public: tls::public_server(&key).map_err(Error::Unusable)?,
            key,
            issuers,
            bundle: Sha256::digest(&pem.ca).iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    pub(super) fn client(
        &self,
        expect: Service,
        domain: &TrustDomain,
        denied: Arc<DenyList>,
    ) -> Result<Arc<ClientConfig>, Error> {
        tls::client(&self.key, self.issuers.clone(), expect, domain, denied)
            .map(Arc::new)
            .map_err(Error::Unusable)
    }

    /// A new instance of the same service may take over; another service may not.
    pub(super) fn same_role(&self, other: &Self) -> bool {
        match (&self.leaf.peer.identity, &other.leaf.peer.identity) {
            (Identity::Service { service, .. }, Identity::Service { service: before, .. }) => {
                service == before
            }
            (now, before) => now == before,
        }
    }

    pub(super) fn publish(&self, before: Option<&Self>) {
        if let Some(before) = before {
            gauge!("harness_tls_bundle_sha256", "sha256" => before.bundle.clone()).set(0.0);
        }
        gauge!("harness_tls_bundle_sha256", "sha256" => self.bundle.clone()).set(1.0);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a gauge is a float; seconds stay exact for ages to come"
        )]
        gauge!("harness_tls_cert_not_after_seconds")
            .set(self.leaf.not_after.unix_timestamp() as f64);
    }
}

fn auditors_server(
    key: &CertifiedKey,
    ca: &[u8],
    domain: &TrustDomain,
) -> Result<Arc<ServerConfig>, Error> {
    let issuers = Arc::new(issuers("auditors-ca.crt", ca)?);
    tls::mutual_server(key, issuers, Admits::Auditors, domain).map_err(Error::Unusable)
}

fn certificates(file: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Pem { file, source })
}

fn issuers(file: &'static str, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        store.add(certificate).map_err(|source| Error::Issuer { file, source })?;
    }
    match store.is_empty() {
        true => Err(Error::NoCertificate { file }),
        false => Ok(store),
    }
}

/// A moment before 1970 is no moment at which a certificate is valid.
fn unix(at: OffsetDateTime) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        at.unix_timestamp().try_into().unwrap_or(0),
    ))
}
