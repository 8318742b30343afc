//! Who a certificate says it is: parses SPIFFE ids into segments and compares those; never matches by prefix or pattern.

use std::{fmt, str::FromStr};

/// One of the five processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// The only service that people reach.
    Gateway,
    /// Sessions and runs.
    AgentSvc,
    /// Workspaces and containers.
    SandboxSvc,
    /// Providers and remote tool servers.
    ModelSvc,
    /// The ledger.
    AuditSvc,
}

impl Service {
    /// Every service, in the order of the architecture page.
    pub const ALL: [Self; 5] =
        [Self::Gateway, Self::AgentSvc, Self::SandboxSvc, Self::ModelSvc, Self::AuditSvc];

    /// The name as it stands in certificates, flags and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::AgentSvc => "agent-svc",
            Self::SandboxSvc => "sandbox-svc",
            Self::ModelSvc => "model-svc",
            Self::AuditSvc => "audit-svc",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Service {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        Self::ALL.into_iter().find(|service| service.as_str() == text).ok_or(Malformed::Service)
    }
}

/// The name of one installation; every certificate of it carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// The name, without scheme.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TrustDomain {
    type Err = Malformed;

    /// Lower-case letters, digits, `.`, `-` and `_`, at most 255 of them; never empty and never a pattern.
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let fits =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        match text.is_empty() || text.len() > 255 || !text.chars().all(fits) {
            true => Err(Malformed::TrustDomain),
            false => Ok(Self(text.to_owned())),
        }
    }
}

/// Who holds a certificate that may authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// `spiffe://<trust-domain>/svc/<service>/<instance>`
    Service {
        /// Which of the five.
        service: Service,
        /// Which process of it.
        instance: String,
    },
    /// `spiffe://<trust-domain>/client/<tenant>/<name>`
    Client {
        /// The tenant it belongs to.
        tenant: String,
        /// Its name in that tenant.
        name: String,
    },
    /// `spiffe://<trust-domain>/auditor/<name>`
    Auditor {
        /// Its name.
        name: String,
    },
}

impl Identity {
    /// Reads a SPIFFE id of `domain`. Certificates that sign receipts have an id too, but it is none of these.
    pub fn parse(uri: &str, domain: &TrustDomain) -> Result<Self, Malformed> {
        let mut segments = path_of(uri, domain)?;
        let mut next = || segments.next();
        let identity = match (next(), next(), next()) {
            (Some("svc"), Some(service), Some(instance)) => {
                Self::Service { service: service.parse()?, instance: instance.to_owned() }
            }
            (Some("client"), Some(tenant), Some(name)) => {
                Self::Client { tenant: tenant.to_owned(), name: name.to_owned() }
            }
            (Some("auditor"), Some(name), None) => Self::Auditor { name: name.to_owned() },
            (Some("receipts"), ..) => return Err(Malformed::SigningOnly),
            _ => return Err(Malformed::Role),
        };
        match next() {
            None => Ok(identity),
            Some(_) => Err(Malformed::Role),
        }
    }

    /// The SPIFFE id of this identity in `domain`.
    pub fn uri(&self, domain: &TrustDomain) -> String {
        match self {
            Self::Service { service, instance } => {
                format!("spiffe://{domain}/svc/{service}/{instance}")
            }
            Self::Client { tenant, name } => format!("spiffe://{domain}/client/{tenant}/{name}"),
            Self::Auditor { name } => format!("spiffe://{domain}/auditor/{name}"),
        }
    }
}

/// Checks form and trust domain of any SPIFFE id and gives its path segments.
pub(crate) fn path_of<'a>(
    uri: &'a str,
    domain: &TrustDomain,
) -> Result<impl Iterator<Item = &'a str> + use<'a>, Malformed> {
    if uri.len() > MAX_URI {
        return Err(Malformed::Uri);
    }
    let rest = uri.strip_prefix("spiffe://").ok_or(Malformed::Uri)?;
    let (authority, path) = rest.split_once('/').ok_or(Malformed::Uri)?;
    if authority.parse::<TrustDomain>()? != *domain {
        return Err(Malformed::OtherTrustDomain);
    }
    match path.split('/').all(is_segment) {
        true => Ok(path.split('/')),
        false => Err(Malformed::Uri),
    }
}

const MAX_URI: usize = 2048;

/// The characters that SPIFFE allows; escapes, queries and dot segments are not among them.
fn is_segment(segment: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !matches!(segment, "" | "." | "..") && segment.chars().all(fits)
}

/// Why a text names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not a SPIFFE id in its one accepted form.
    #[error("not a SPIFFE id; expected spiffe://<trust-domain>/<segments>")]
    Uri,
    /// Not a trust domain's name.
    #[error("not a trust domain; use lower-case letters, digits, '.', '-' and '_', and no pattern")]
    TrustDomain,
    /// A well-formed id of somebody else's installation.
    #[error("the id belongs to another trust domain")]
    OtherTrustDomain,
    /// None of the roles that may authenticate.
    #[error(
        "the id names no role; expected svc/<service>/<instance>, client/<tenant>/<name> or auditor/<name>"
    )]
    Role,
    /// A receipt-signing certificate, which never authenticates.
    #[error("the id may only sign receipts, never authenticate")]
    SigningOnly,
    /// None of the five.
    #[error("no such service; expected gateway, agent-svc, sandbox-svc, model-svc or audit-svc")]
    Service,
}

#[cfg(test)]
mod tests;
