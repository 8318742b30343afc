//! What people's clients read of a state directory, whether its mesh runs or not.
use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use transport::{Service, TrustDomain};

use super::{Error, Layout, record::Record};
use crate::file;

/// How to reach the mesh of a state directory.
#[derive(Debug, Clone)]
pub struct Known {
    /// `wss://host:port`, without a path.
    pub gateway: String,
    /// The auditors' listener of audit-svc.
    pub audit: std::net::SocketAddr,
    pub trust_domain: TrustDomain,
    pub ca: PathBuf,
    pub token_file: PathBuf,
    /// A TLS directory with an auditor's identity.
    pub auditor: PathBuf,
    pub workspaces: Vec<String>,
}

impl Known {
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let layout = Layout::new(dir);
        let record = Record::read(&layout)?.ok_or_else(|| Error::NoMesh(dir.to_owned()))?;
        let domain = record
            .trust_domain
            .parse()
            .map_err(|_| crate::pki::Error::Name(record.trust_domain.clone()))?;
        Ok(Self {
            gateway: format!("wss://{}", record.ports.service(Service::Gateway)),
            audit: record.ports.auditors(),
            trust_domain: domain,
            ca: layout.client_ca(),
            token_file: layout.token(),
            auditor: layout.auditor(),
            workspaces: record.workspaces.into_keys().collect(),
        })
    }
}

/// A text that is shown to its owner only: in the ready line, never in a log.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn read(path: &Path) -> Result<Self, file::Error> {
        Ok(Self(file::read_text(path)?.trim().to_owned()))
    }

    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
