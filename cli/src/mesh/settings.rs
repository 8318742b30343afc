//! The configuration file of each service of a mesh. It decides nothing that a service would check itself.
use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use toml::{Table, Value};
use transport::Service;

use super::{Isolation, Layout, PolicyFiles, ports::Ports};

/// What one mesh is made of, as far as its services are told.
pub(crate) struct Facts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) ports: Ports,
    pub(crate) trust_domain: &'a str,
    pub(crate) isolation: Isolation,
    pub(crate) engine: &'a Path,
    pub(crate) workspaces: &'a BTreeMap<String, std::path::PathBuf>,
    pub(crate) dependencies: &'a BTreeMap<String, std::path::PathBuf>,
    pub(crate) default_manifest: &'a str,
    pub(crate) policy: &'a PolicyFiles,
}

/// The settings of `service`; a mesh's own overrides come last.
pub(crate) fn table(
    facts: &Facts<'_>,
    service: Service,
    overrides: &[(Service, String, Value)],
) -> Table {
    let mut table = common(facts, service);
    table.extend(own(facts, service));
    let wanted = overrides.iter().filter(|(of, ..)| *of == service);
    table.extend(wanted.map(|(_, key, value)| (key.clone(), value.clone())));
    table
}

fn common(facts: &Facts<'_>, service: Service) -> Table {
    let Facts { layout, ports, trust_domain, .. } = facts;
    Table::from_iter([
        entry("tls-dir", path(&layout.tls(service))),
        entry("trust-domain", *trust_domain),
        entry("listen", addr(ports.service(service))),
        entry("admin-listen", addr(ports.admin(service))),
        entry("log-format", "json"),
        entry("drain-timeout", "5s"),
    ])
}

fn own(facts: &Facts<'_>, service: Service) -> Table {
    let Facts {
        layout,
        ports,
        trust_domain,
        isolation,
        engine,
        workspaces,
        dependencies,
        default_manifest,
        policy,
    } = facts;
    let state = || entry("state-dir", path(&layout.data(service)));
    let peer = |key: &str, peer: Service| entry(key, addr(ports.service(peer)));
    match service {
        Service::Gateway => Table::from_iter([
            peer("agent-endpoint", Service::AgentSvc),
            peer("audit-endpoint", Service::AuditSvc),
            entry("signing-dir", path(&layout.signing())),
            entry("tokens-file", path(&layout.tokens())),
            entry("manifest-dir", path(&layout.manifests())),
            entry("default-manifest", *default_manifest),
        ]),
        Service::AgentSvc => Table::from_iter([
            state(),
            peer("sandbox-endpoint", Service::SandboxSvc),
            peer("model-endpoint", Service::ModelSvc),
            peer("audit-endpoint", Service::AuditSvc),
        ]),
        Service::SandboxSvc => {
            let named = |trees: &BTreeMap<String, std::path::PathBuf>| {
                let each = trees.iter();
                each.map(|(name, dir)| Value::from(format!("{name}={}", path(dir)))).collect()
            };
            let (workspaces, dependencies): (Vec<_>, Vec<_>) =
                (named(workspaces), named(dependencies));
            let mut table = ceilings();
            table.extend([
                state(),
                peer("audit-endpoint", Service::AuditSvc),
                entry("engine-socket", path(engine)),
                entry("workspace", workspaces),
                entry("staging", staging(*isolation)),
            ]);
            if !dependencies.is_empty() {
                table.extend([entry("dependency", dependencies)]);
            }
            table.extend(above(layout, policy));
            table
        }
        Service::ModelSvc => Table::from_iter([
            state(),
            peer("audit-endpoint", Service::AuditSvc),
            entry("models-file", path(&layout.models())),
        ]),
        Service::AuditSvc => Table::from_iter([
            state(),
            entry("auditors-listen", addr(ports.auditors())),
            entry("origin", super::origin(trust_domain)),
        ]),
    }
}

/// The administrator's files: read where they are, because they are read again when they change.
fn above(layout: &Layout, policy: &PolicyFiles) -> Vec<(String, Value)> {
    let PolicyFiles { ceiling, tenant_ceiling, approver_keys } = policy;
    let tenants = tenant_ceiling.as_ref().map(|_| layout.tenant_ceilings());
    let named = [
        ("ceiling", ceiling.clone()),
        ("tenant-ceilings", tenants),
        ("approver-keys", approver_keys.clone()),
    ];
    named.into_iter().filter_map(|(key, file)| Some(entry(key, path(&file?)))).collect()
}

/// What one container may take of a developer's machine; a manifest can only ask for less.
fn ceilings() -> Table {
    Table::from_iter([
        entry("max-memory", "1GiB"),
        entry("max-pids", 512),
        entry("max-cpus", "2"),
        entry("max-time", "10m"),
        entry("max-output", "8MiB"),
        entry("max-workspace-bytes", "2GiB"),
        entry("max-workspace-inodes", 200_000),
        entry("max-file-bytes", "256MiB"),
        entry("max-tmp-bytes", "256MiB"),
    ])
}

/// A tmpfs per environment needs a mount, and mounting needs a capability that only root can hand on.
fn staging(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::OwnUids => "host-tmpfs",
        Isolation::OneUid => "dirs",
    }
}

fn entry(key: &str, value: impl Into<Value>) -> (String, Value) {
    (key.to_owned(), value.into())
}

fn addr(addr: SocketAddr) -> String {
    addr.to_string()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
