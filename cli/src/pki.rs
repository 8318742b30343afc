//! The development certificate authority on disk: an offline root and three issuers, one per kind of caller.
//! It never overwrites a key, and what it issues says exactly one thing about its holder.
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use transport::{
    Identity, Service, TrustDomain,
    issue::{self, Authority, DevPki, Eku, Issued, Key, LeafSpec},
};

use crate::{
    error::{Exit, Explain},
    file::{self, Access},
};

/// Whom a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Service {
        service: Service,
        instance: String,
    },
    Client {
        tenant: String,
        name: String,
    },
    Auditor {
        name: String,
    },
    /// Signs grants and receipts, and can open no connection.
    Receipts {
        instance: String,
    },
}

/// Host names and addresses beside the loopback ones.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    pub dns: Vec<String>,
    pub ip: Vec<IpAddr>,
}

/// A file of an issued identity, by its name in the directory that it belongs to.
pub struct Named {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Named({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// The authority's directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    domain: TrustDomain,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{} holds no certificate authority", dir.display())]
    NoStore { dir: PathBuf, source: file::Error },
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("'{0}' can not be part of an identity")]
    Name(String),
    #[error("{0} days are outside 1 to {MAX_DAYS}")]
    Days(u32),
    #[error("can not issue the certificate")]
    Issue(#[from] issue::Error),
    #[error("can not keep the authority as JSON")]
    Encode(#[source] serde_json::Error),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::NoStore { .. } | Self::Name(_) | Self::Days(_) => Exit::Usage,
            Self::Damaged { .. } | Self::Issue(_) | Self::Encode(_) => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::File(error) => return error.advice(),
            Self::NoStore { .. } => "make one with 'harness pki init', or check --dir",
            Self::Damaged { .. } => "restore it from a copy; issued certificates stay valid",
            Self::Name(_) => "use letters, digits, '.', '-' and '_'",
            Self::Days(_) => "choose a shorter life; it is renewed by issuing again",
            Self::Issue(_) | Self::Encode(_) => "check the authority's files",
        }
        .to_owned()
    }
}

/// The longest life of a leaf; issuers live a year themselves.
const MAX_DAYS: u32 = 365;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct About {
    schema_version: u32,
    trust_domain: String,
}

impl Store {
    /// Mints the four authorities into a new directory: all of it, or nothing.
    pub fn init(dir: &Path, domain: TrustDomain) -> Result<Self, Error> {
        let pki = DevPki::new(domain.clone())?;
        let staged = dir.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
        let made = Self::fill(&staged, &pki).and_then(|()| Self::settle(&staged, dir));
        if made.is_err() && staged.exists() {
            fs::remove_dir_all(&staged).map_err(file::failed("remove", &staged))?;
        }
        made.map(|()| Self { dir: dir.to_owned(), domain })
    }

    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(ABOUT);
        let text =
            file::read(&path).map_err(|source| Error::NoStore { dir: dir.to_owned(), source })?;
        let damaged = |source: Box<dyn std::error::Error + Send + Sync>| Error::Damaged {
            path: path.clone(),
            source,
        };
        let About { schema_version: _, trust_domain } =
            serde_json::from_slice(&text).map_err(|source| damaged(source.into()))?;
        let domain = trust_domain
            .parse()
            .map_err(|source: transport::identity::Malformed| damaged(source.into()))?;
        Ok(Self { dir: dir.to_owned(), domain })
    }

    #[must_use]
    pub fn domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// The certificates by which people's clients know the gateway and the ledger: the services' issuer, and the root
    /// for programs that accept self-signed anchors only.
    pub fn client_bundle(&self) -> Result<Vec<u8>, Error> {
        Ok([self.certificate(SERVICES)?, self.certificate(ROOT)?].concat())
    }

    /// Everything that `subject` needs in its directory.
    pub fn issue(&self, subject: &Subject, hosts: &Hosts, days: u32) -> Result<Vec<Named>, Error> {
        let spec = self.leaf(subject, hosts, days)?;
        let issuer = match subject {
            Subject::Service { .. } | Subject::Receipts { .. } => SERVICES,
            Subject::Client { .. } => CLIENTS,
            Subject::Auditor { .. } => AUDITORS,
        };
        let issuing = self.certificate(issuer)?;
        let Issued { cert_pem, key_pem } = self.authority(issuer)?.issue(&spec)?;
        let named = |name, bytes: Vec<u8>| Named { name, bytes };
        if let Subject::Receipts { .. } = subject {
            // Verifiers hold the issuer; a shorter chain keeps every receipt short.
            return Ok(vec![
                named("receipt.crt", cert_pem.into()),
                named("receipt.key", key_pem.into()),
            ]);
        }
        let mut files = vec![
            named("tls.crt", [cert_pem.into_bytes(), issuing].concat()),
            named("tls.key", key_pem.into()),
            named("ca.crt", self.certificate(SERVICES)?),
        ];
        if let Subject::Service { service: Service::AuditSvc, .. } = subject {
            files.push(named("auditors-ca.crt", self.certificate(AUDITORS)?));
        }
        Ok(files)
    }

    fn leaf(&self, subject: &Subject, hosts: &Hosts, days: u32) -> Result<LeafSpec, Error> {
        if !(1..=MAX_DAYS).contains(&days) {
            return Err(Error::Days(days));
        }
        let uri = subject.uri(&self.domain)?;
        let now = OffsetDateTime::now_utc();
        let (dns_sans, ip_sans) = match subject {
            Subject::Service { service, .. } => (
                ["localhost".to_owned(), service.to_string()]
                    .into_iter()
                    .chain(hosts.dns.clone())
                    .collect(),
                [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
                    .into_iter()
                    .chain(hosts.ip.clone())
                    .collect(),
            ),
            Subject::Client { .. } | Subject::Auditor { .. } | Subject::Receipts { .. } => {
                (Vec::new(), Vec::new())
            }
        };
        Ok(LeafSpec {
            common_name: subject.common_name(),
            uri_sans: vec![uri],
            dns_sans,
            ip_sans,
            ekus: subject.usages(),
            key: match subject {
                Subject::Receipts { .. } => Key::Ed25519,
                Subject::Service { .. } | Subject::Client { .. } | Subject::Auditor { .. } => {
                    Key::P256
                }
            },
            // Clocks of two hosts differ a little.
            not_before: now - Duration::minutes(5),
            not_after: now + Duration::days(days.into()),
            is_ca: false,
        })
    }

    fn authority(&self, name: &str) -> Result<Authority, Error> {
        let dir = self.dir.join(name);
        let cert = file::read_text(&dir.join(CERT))?;
        let key = file::read_text(&dir.join(KEY))?;
        Ok(Authority::from_pem(&cert, &key)?)
    }

    fn certificate(&self, name: &str) -> Result<Vec<u8>, Error> {
        Ok(file::read(&self.dir.join(name).join(CERT))?)
    }

    fn fill(dir: &Path, pki: &DevPki) -> Result<(), Error> {
        file::new_directory(dir, Access::PRIVATE_DIR)?;
        let all = [
            (ROOT, &pki.root),
            (SERVICES, &pki.services),
            (CLIENTS, &pki.clients),
            (AUDITORS, &pki.auditors),
        ];
        for (name, authority) in all {
            let place = dir.join(name);
            file::new_directory(&place, Access::PRIVATE_DIR)?;
            file::create(&place.join(CERT), authority.cert_pem().as_bytes(), Access::PRIVATE)?;
            file::create(&place.join(KEY), authority.key_pem().as_bytes(), Access::PRIVATE)?;
        }
        let about = About { schema_version: 1, trust_domain: pki.domain.to_string() };
        let about = serde_json::to_vec_pretty(&about).map_err(Error::Encode)?;
        Ok(file::create(&dir.join(ABOUT), &about, Access::PRIVATE)?)
    }

    /// Renaming refuses a place that holds something.
    fn settle(staged: &Path, dir: &Path) -> Result<(), Error> {
        if fs::symlink_metadata(dir).is_ok_and(|found| !found.is_dir()) {
            return Err(file::Error::Exists { path: dir.to_owned() }.into());
        }
        fs::rename(staged, dir).map_err(|source| match source.kind() {
            std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists => {
                file::Error::Exists { path: dir.to_owned() }.into()
            }
            _ => file::failed("create", dir)(source).into(),
        })
    }
}

const ABOUT: &str = "pki.json";
const ROOT: &str = "root";
const SERVICES: &str = "services";
const CLIENTS: &str = "clients";
const AUDITORS: &str = "auditors";
const CERT: &str = "ca.crt";
const KEY: &str = "ca.key";

impl Subject {
    /// The SPIFFE id, whose every segment is one that parses back.
    fn uri(&self, domain: &TrustDomain) -> Result<String, Error> {
        let identity = match self.clone() {
            Self::Service { service, instance } => Identity::Service { service, instance },
            Self::Client { tenant, name } => Identity::Client { tenant, name },
            Self::Auditor { name } => Identity::Auditor { name },
            Self::Receipts { instance } => {
                let twin =
                    Identity::Service { service: Service::Gateway, instance: instance.clone() };
                parsed(&twin, domain)?;
                return Ok(format!("spiffe://{domain}/receipts/gateway/{instance}"));
            }
        };
        parsed(&identity, domain)
    }

    fn common_name(&self) -> String {
        match self {
            Self::Service { service, instance } => format!("{service} {instance}"),
            Self::Client { tenant, name } => format!("client {tenant} {name}"),
            Self::Auditor { name } => format!("auditor {name}"),
            Self::Receipts { instance } => format!("receipts of gateway {instance}"),
        }
    }

    fn usages(&self) -> Vec<Eku> {
        match self {
            Self::Service { .. } => vec![Eku::ServerAuth, Eku::ClientAuth],
            Self::Client { .. } | Self::Auditor { .. } => vec![Eku::ClientAuth],
            Self::Receipts { .. } => vec![Eku::Other(receipt::EKU_OID.to_vec())],
        }
    }
}

fn parsed(identity: &Identity, domain: &TrustDomain) -> Result<String, Error> {
    let uri = identity.uri(domain);
    match Identity::parse(&uri, domain) {
        Ok(back) if back == *identity => Ok(uri),
        Ok(_) | Err(_) => Err(Error::Name(
            uri.rsplit_once("//").map_or_else(|| uri.clone(), |(_, path)| path.to_owned()),
        )),
    }
}

#[cfg(test)]
mod tests;
