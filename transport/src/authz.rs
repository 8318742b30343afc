//! Which peer may call which method: one table by exact path, deny by default; a method without a row stops the start.

use std::collections::{BTreeSet, HashMap};

use prost::Message as _;
use prost_types::FileDescriptorSet;

use crate::{Identity, Service};

/// A method and everyone who may call it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The full path, such as `/harness.audit.v1.AuditService/Append`.
    pub method: &'static str,
    /// Never empty.
    pub callers: &'static [Caller],
}

/// A kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Every instance of one service.
    Service(Service),
    /// Every instance of every service.
    AnyService,
    /// Every auditor.
    Auditor,
    /// Every client certificate.
    Client,
}

impl Caller {
    /// Whether `identity` is one of these.
    pub fn is(self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Service(wanted), Identity::Service { service, .. }) => wanted == *service,
            (Self::AnyService, Identity::Service { .. })
            | (Self::Auditor, Identity::Auditor { .. })
            | (Self::Client, Identity::Client { .. }) => true,
            (Self::Service(_) | Self::AnyService | Self::Auditor | Self::Client, _) => false,
        }
    }
}

/// The health service is on every server and asks for nothing but a good certificate of a service.
const HEALTH: [Row; 2] = [
    Row { method: "/grpc.health.v1.Health/Check", callers: &[Caller::AnyService] },
    Row { method: HEALTH_WATCH, callers: &[Caller::AnyService] },
];

pub(crate) const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The complete table of one server.
#[derive(Clone, Debug)]
pub struct Table {
    rows: HashMap<&'static str, &'static [Caller]>,
}

impl Table {
    /// Joins `rows` with the methods that `services` have in the encoded descriptor set: each method must have exactly one
    /// row with a caller, and each row a method. The health service is added.
    pub fn new(rows: &[Row], descriptors: &[u8], services: &[&str]) -> Result<Self, Mismatch> {
        let mut expected = methods(descriptors, services)?;
        expected
            .extend(methods(tonic_health::pb::FILE_DESCRIPTOR_SET, &["grpc.health.v1.Health"])?);
        let mut missing = expected.clone();
        let mut unknown = Vec::new();
        let mut joined = HashMap::new();
        for row in rows.iter().chain(&HEALTH) {
            missing.remove(row.method);
            let twice = joined.insert(row.method, row.callers).is_some();
            if twice || row.callers.is_empty() || !expected.contains(row.method) {
                unknown.push(row.method);
            }
        }
        match missing.is_empty() && unknown.is_empty() {
            true => Ok(Self { rows: joined }),
            false => Err(Mismatch::Rows { missing: missing.into_iter().collect(), wrong: unknown }),
        }
    }

    /// Whether `identity` may call `path`.
    pub fn allows(&self, path: &str, identity: &Identity) -> bool {
        self.rows.get(path).is_some_and(|callers| callers.iter().any(|caller| caller.is(identity)))
    }

    /// Every method that has a row, in order.
    pub fn methods(&self) -> Vec<&'static str> {
        let mut methods: Vec<_> = self.rows.keys().copied().collect();
        methods.sort_unstable();
        methods
    }

    /// The services that have rows, without the health service.
    pub(crate) fn services(&self) -> BTreeSet<&'static str> {
        let rows =
            self.rows.keys().filter(|method| !HEALTH.iter().any(|row| row.method == **method));
        rows.filter_map(|method| method.strip_prefix('/')?.rsplit_once('/'))
            .map(|(service, _)| service)
            .collect()
    }

    /// The name of the method at `path`, if there is one: a bounded label.
    pub(crate) fn method(&self, path: &str) -> Option<&'static str> {
        self.rows.get_key_value(path).map(|(method, _)| *method)
    }
}

/// The full path of every method that `services` have in an encoded descriptor set.
pub fn methods(descriptors: &[u8], services: &[&str]) -> Result<BTreeSet<String>, Mismatch> {
    let set = FileDescriptorSet::decode(descriptors).map_err(Mismatch::Descriptors)?;
    let mut found = BTreeSet::new();
    let mut absent: BTreeSet<&str> = services.iter().copied().collect();
    for file in &set.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            if absent.remove(name.as_str()) || services.contains(&name.as_str()) {
                found.extend(
                    service.method.iter().map(|method| format!("/{name}/{}", method.name())),
                );
            }
        }
    }
    match absent.pop_first() {
        None => Ok(found),
        Some(service) => Err(Mismatch::NoService { service: service.to_owned() }),
    }
}

/// Why a table does not fit its server.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// The schema cannot be read.
    #[error("the file descriptor set cannot be decoded")]
    Descriptors(#[source] prost::DecodeError),
    /// A service that the schema does not have.
    #[error("the file descriptor set has no service {service}")]
    NoService {
        /// Its name.
        service: String,
    },
    /// Methods and rows differ.
    #[error(
        "the method table does not fit: without a row {missing:?}; without a method, without a caller or twice {wrong:?}"
    )]
    Rows {
        /// Methods that nobody may call because no row says who.
        missing: Vec<String>,
        /// Rows that are no good.
        wrong: Vec<&'static str>,
    },
}

#[cfg(test)]
mod tests;
