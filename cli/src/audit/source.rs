//! Which ledger is read, and with whose certificate.
use std::path::PathBuf;

use transport::{Context, Endpoint, Material, Service, TrustDomain, channel::NotAnEndpoint};

use super::Ledger;
use crate::{
    error::{Exit, Explain},
    mesh::{self, Known},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// State directory of a mesh that 'harness up' made
    #[arg(long, value_name = "DIR", required_unless_present = "audit", conflicts_with_all = ["audit", "tls_dir", "trust_domain", "origin"])]
    state: Option<PathBuf>,

    /// Auditors' address of audit-svc: HOST:PORT
    #[arg(long, value_name = "ADDR", requires = "tls_dir")]
    audit: Option<String>,

    /// Directory with tls.crt, tls.key and ca.crt, as 'harness pki issue … auditor' writes it
    #[arg(long, value_name = "DIR", requires = "audit")]
    tls_dir: Option<PathBuf>,

    /// Name of the installation
    #[arg(
        long,
        value_name = "NAME",
        requires = "audit",
        default_value = "harness.local",
        conflicts_with = "state"
    )]
    trust_domain: TrustDomain,

    /// Name of the log; without it that of the installation
    #[arg(long, value_name = "NAME", requires = "audit")]
    origin: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Mesh(#[from] mesh::Error),
    #[error("no ledger is named")]
    Nothing,
    #[error("'{given}' is not an address")]
    Address { given: String, source: NotAnEndpoint },
    #[error("the auditor's certificate can not be used")]
    Material(#[source] transport::material::Error),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Mesh(error) => error.exit(),
            Self::Nothing | Self::Address { .. } | Self::Material(_) => Exit::Usage,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Mesh(error) => return error.advice(),
            Self::Nothing => "give --state DIR, or --audit and --tls-dir",
            Self::Address { .. } => "give --audit HOST:PORT",
            Self::Material(_) => {
                "check --tls-dir and --trust-domain, or issue it anew with 'harness pki issue'"
            }
        }
        .to_owned()
    }
}

impl Source {
    pub(crate) fn of_state(state: PathBuf) -> Result<Self, Error> {
        let trust_domain = Known::read(&state)?.trust_domain;
        Ok(Self { state: Some(state), audit: None, tls_dir: None, trust_domain, origin: None })
    }

    /// Connects with the first question.
    pub(crate) fn open(&self) -> Result<Ledger, Error> {
        let (endpoint, tls_dir, domain) = match (&self.state, &self.audit, &self.tls_dir) {
            (Some(state), ..) => {
                let known = Known::read(state)?;
                (Endpoint::from(known.audit), known.auditor, known.trust_domain)
            }
            (None, Some(audit), Some(tls_dir)) => {
                let bare = audit.strip_prefix("https://").unwrap_or(audit).trim_end_matches('/');
                let endpoint = bare
                    .parse()
                    .map_err(|source| Error::Address { given: audit.clone(), source })?;
                (endpoint, tls_dir.clone(), self.trust_domain.clone())
            }
            (None, ..) => return Err(Error::Nothing),
        };
        let material = Material::open(&tls_dir, domain).map_err(Error::Material)?;
        // A one-shot client: no process around it is watched or drained.
        let context = Context::for_test(material);
        Ok(Ledger::new(transport::channel::connect(&context, &endpoint, Service::AuditSvc)))
    }

    /// The name that every envelope must carry.
    pub(crate) fn origin(&self) -> Result<String, Error> {
        let domain = match &self.state {
            Some(state) => Known::read(state)?.trust_domain,
            None => self.trust_domain.clone(),
        };
        Ok(self.origin.clone().unwrap_or_else(|| mesh::origin(&domain)))
    }
}
