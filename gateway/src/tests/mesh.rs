//! One gateway between its fake peers: real certificates, real sockets, throw-away files.
use std::net::SocketAddr;
use std::path::Path;

use acp::client::{Bearer, Client, Events, Options};
use acp::token::{Entry, File, RANDOM_BYTES, Token};
use clap::Parser as _;
use proto::agent::v1::agent_service_server::AgentServiceServer;
use proto::audit::v1::audit_service_server::AuditServiceServer;
use time::{Duration, OffsetDateTime};
use transport::authz::{Caller, Row, Table, methods};
use transport::issue::{DevPki, Issued, LeafSpec};
use transport::server::Server;
use transport::{Bound as _, CancellationToken, Context, Service, TaskTracker};

use super::agent::FakeAgent;
use super::audit::FakeAudit;
use super::within;
use crate::{Config, Limits, bind_within};

pub(crate) const MANIFEST: &str = "id: fix-tests\ntitle: Fix\ngoal: Fix them\nacceptance: [green]\nallowed_paths: [src/**]\npermissions: {fs.read: allow}\nmodels: [small, large]\n";

pub(crate) struct Mesh {
    pub(crate) agent: FakeAgent,
    pub(crate) audit: FakeAudit,
    pub(crate) addr: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tracker: TaskTracker,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) pki: DevPki,
    peers: CancellationToken,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.peers.cancel();
    }
}

/// Who there is: name, roles, tenant, seconds to live.
const PEOPLE: [(&str, &[&str], &str, i64); 6] = [
    ("ada", &["operator"], "home", 3600),
    ("bob", &["operator"], "home", 3600),
    ("anna", &["admin"], "home", 3600),
    ("vera", &["viewer"], "home", 3600),
    ("eve", &["operator"], "abroad", 3600),
    ("late", &["operator"], "home", -1),
];

pub(crate) fn token(name: &str) -> Token {
    let seed = name.bytes().fold(0_u8, u8::wrapping_add);
    let mut random = [seed; RANDOM_BYTES];
    random[0] = u8::try_from(name.len()).expect("short");
    Token::mint(&random)
}

fn tokens() -> File {
    let entries = PEOPLE.iter().map(|(name, roles, tenant, life)| Entry {
        id: token(name).id().to_owned(),
        sha256: token(name).sha256_hex(),
        tenant: (*tenant).to_owned(),
        subject: (*name).to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        expires: OffsetDateTime::now_utc() + Duration::seconds(*life),
    });
    File { token: entries.collect() }
}

pub(crate) fn write_tokens(dir: &Path, leave_out: &str) {
    let mut file = tokens();
    file.token.retain(|entry| entry.subject != leave_out);
    let text = toml::to_string(&file).expect("TOML");
    std::fs::write(dir.join("tokens.next"), text).expect("written");
    std::fs::rename(dir.join("tokens.next"), dir.join("tokens.toml")).expect("renamed");
}

pub(crate) fn write_signing(dir: &Path, issued: &Issued) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(dir).expect("a directory");
    std::fs::write(dir.join("receipt.crt"), &issued.cert_pem).expect("written");
    std::fs::write(dir.join("receipt.key"), &issued.key_pem).expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.join("receipt.key"), private).expect("set");
}

pub(crate) fn config(dir: &Path, agent: SocketAddr, audit: SocketAddr) -> Config {
    let path = |name: &str| dir.join(name).display().to_string();
    let args = [
        "gateway".to_owned(),
        format!("--tls-dir={}", path("tls")),
        "--trust-domain=example.test".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        format!("--signing-dir={}", path("signing")),
        format!("--agent-endpoint={agent}"),
        format!("--audit-endpoint={audit}"),
        format!("--manifest-dir={}", path("manifests")),
        "--default-manifest=fix-tests".to_owned(),
        format!("--tokens-file={}", path("tokens.toml")),
        "--allowed-origin=https://console.example".to_owned(),
    ];
    Config::try_parse_from(args).expect("a configuration")
}

fn only_the_gateway(service: &'static str) -> Table {
    let found = methods(proto::DESCRIPTORS, &[service]).expect("methods");
    let rows: Vec<Row> = found
        .into_iter()
        .map(|method| Row { method: method.leak(), callers: &[Caller::Service(Service::Gateway)] })
        .collect();
    Table::new(&rows, proto::DESCRIPTORS, &[service]).expect("a table")
}

async fn listen(context: &Context, server: Server, stop: &CancellationToken) -> SocketAddr {
    let listening =
        server.services_listener(([127, 0, 0, 1], 0).into()).bind().await.expect("listens");
    let addr = listening.addrs()[0].1;
    let stop = stop.clone();
    context.tracker.spawn(async move { listening.serve(stop).await.expect("served") });
    addr
}

impl Mesh {
    pub(crate) async fn start() -> Self {
        Self::start_within(Limits {
            patience: std::time::Duration::from_millis(300),
            ..Limits::default()
        })
        .await
    }

    pub(crate) async fn start_within(limits: Limits) -> Self {
        let pki = DevPki::new("example.test".parse().expect("a name")).expect("issuers");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("manifests")).expect("a directory");
        std::fs::write(dir.path().join("manifests/fix-tests.yaml"), MANIFEST).expect("written");
        write_tokens(dir.path(), "");
        // Valid since yesterday, so that grants can be old.
        let mut receipts = LeafSpec::receipts(&pki.domain, "0");
        receipts.not_before -= Duration::days(1);
        write_signing(&dir.path().join("signing"), &pki.services.issue(&receipts).expect("issued"));

        let stop = CancellationToken::new();
        let context = |service| pki.context(service).expect("a context");
        let agent_context = context(Service::AgentSvc);
        let audit = FakeAudit::default();
        let tracker = agent_context.tracker.clone();
        let agent = FakeAgent::new(pki.services.cert_pem(), "example.test", tracker, audit.clone());
        let server = Server::new(&agent_context, only_the_gateway("harness.agent.v1.AgentService"))
            .add_service(AgentServiceServer::new(agent.clone()));
        let agent_addr = listen(&agent_context, server, &stop).await;
        let audit_context = context(Service::AuditSvc);
        let server = Server::new(&audit_context, only_the_gateway("harness.audit.v1.AuditService"))
            .add_service(AuditServiceServer::new(audit.clone()));
        let audit_addr = listen(&audit_context, server, &stop).await;

        let gateway = context(Service::Gateway);
        let shutdown = gateway.shutdown.clone();
        let bound =
            bind_within(config(dir.path(), agent_addr, audit_addr), gateway.clone(), limits).await;
        let bound = bound.expect("binds");
        let addr = bound.addrs()[0].1;
        let serving = shutdown.clone();
        agent_context.tracker.spawn(async move { bound.serve(serving).await.expect("served") });
        within(gateway.ready.wait()).await;
        let tracker = gateway.tracker;
        Self { agent, audit, addr, shutdown, tracker, dir, pki, peers: stop }
    }

    pub(crate) fn options(&self, name: &str) -> Options {
        Options {
            endpoint: format!("wss://{}", self.addr).parse().expect("an address"),
            ca_pem: self.pki.services.cert_pem().as_bytes().to_vec(),
            bearer: Bearer::from(&token(name)),
            limits: acp::client::Limits::default(),
        }
    }

    /// A client of the project's own kind, initialized.
    pub(crate) async fn client(&self, name: &str) -> (Client, Events) {
        let (client, events) = within(Client::connect(self.options(name))).await.expect("connects");
        let params = acp::InitializeParams {
            protocol_version: acp::Text::new(acp::PROTOCOL_VERSION).expect("fits"),
            client_name: acp::Text::new("test").expect("fits"),
            client_version: None,
            capabilities: acp::ClientCapabilities {
                streaming: true,
                permissioning: true,
                sessions: true,
            },
        };
        within(client.call::<acp::Initialize>(params)).await.expect("initializes");
        (client, events)
    }
}

impl Mesh {
    /// Past half its life.
    pub(crate) fn grow_old(&self, session: event::id::SessionId) -> Vec<u8> {
        self.grow(session, 7)
    }

    /// Replaces the session's grant at agent-svc by one that was signed hours ago; returns its payload.
    pub(crate) fn grow(&self, session: event::id::SessionId, hours: u64) -> Vec<u8> {
        let signing = self.dir.path().join("signing");
        let signer = crate::sign::read(&signing).expect("a key");
        let mut state = self.agent.state();
        let found = state.sessions.get_mut(&session).expect("known");
        let iat = found.grant.iat - hours * 3600;
        found.grant = receipt::Grant { iat, exp: iat + 12 * 3600, ..found.grant.clone() };
        let signed = signer.sign(&found.grant).expect("signs");
        found.signed = crate::peers::to_wire(signed);
        found.signed.payload.clone()
    }
}
