//! One served ledger with its issuers, and clients of every kind.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use proto::audit::v1::{
    AppendRequest, AppendResponse, audit_service_client::AuditServiceClient,
    audit_service_server::AuditServiceServer,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::Request;
use transport::{
    CancellationToken, Context, Fault, Material, PeerChannel, Service,
    admin::Admin,
    channel,
    deadline::request,
    issue::{DevPki, Issued},
    server::Server,
};

use crate::ledger::{Ledger, table};

pub(crate) const LIMIT: Duration = Duration::from_secs(10);
pub(crate) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) fn pki() -> DevPki {
    DevPki::new("harness.test".parse().unwrap()).unwrap()
}

pub(crate) struct Setup {
    pub(crate) pki: DevPki,
    pub(crate) ledger: Ledger,
    pub(crate) context: Context,
    pub(crate) services: SocketAddr,
    pub(crate) auditors: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) server: JoinSet<()>,
    probes: JoinSet<()>,
    dir: TempDir,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(Ledger::new(None), |server| server).await
    }

    pub(crate) async fn with(ledger: Ledger, change: impl FnOnce(Server) -> Server) -> Self {
        Self::start(ledger, Duration::from_secs(2), change).await
    }

    pub(crate) async fn draining_for(limit: Duration) -> Self {
        Self::start(Ledger::new(None), limit, |server| server).await
    }

    async fn start(
        ledger: Ledger,
        drain_timeout: Duration,
        change: impl FnOnce(Server) -> Server,
    ) -> Self {
        let pki = pki();
        let dir = TempDir::new().unwrap();
        let issued = pki.service(Service::AuditSvc, "0").unwrap();
        pki.write_tls_dir(&dir.path().join("audit-svc"), &issued).unwrap();
        let material = Material::open(&dir.path().join("audit-svc"), pki.domain.clone()).unwrap();
        let context = Context { drain_timeout, ..Context::for_test(material) };
        let server = Server::new(&context, table())
            .add_service(AuditServiceServer::new(ledger.clone()))
            .services_listener(ANY_PORT)
            .auditors_listener(ANY_PORT);
        let listening = change(server).bind().await.unwrap();
        let addrs = listening.addrs();
        let shutdown = CancellationToken::new();
        let mut server = JoinSet::new();
        let until = shutdown.clone();
        server.spawn(async move { listening.serve(until).await.unwrap() });
        let (services, auditors) = (addrs[0].1, addrs[1].1);
        let probe = Admin::bind(&context, ANY_PORT).await.unwrap();
        let admin = probe.addr();
        let mut probes = JoinSet::new();
        probes.spawn(probe.serve(CancellationToken::new()));
        Self { pki, ledger, context, services, auditors, admin, shutdown, server, probes, dir }
    }

    /// The directory of a process of this test.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, issued: &Issued) {
        self.pki.write_tls_dir(&self.dir(name), issued).unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        assert_eq!(self.probes.len(), 1);
        get(self.admin, path).await
    }

    pub(crate) fn channel_of(&self, material: Arc<Material>, addr: SocketAddr) -> PeerChannel {
        channel::connect(&Context::for_test(material), &addr.into(), Service::AuditSvc)
    }

    /// A channel of `caller` to the services' listener.
    pub(crate) fn channel(&self, caller: Service) -> PeerChannel {
        let issued = self.pki.service(caller, "0").unwrap();
        self.channel_of(self.pki.material(&issued).unwrap(), self.services)
    }

    pub(crate) fn client(&self, caller: Service) -> AuditServiceClient<PeerChannel> {
        AuditServiceClient::new(self.channel(caller))
    }

    pub(crate) fn auditor(&self) -> AuditServiceClient<PeerChannel> {
        let issued = self.pki.auditor("eve").unwrap();
        AuditServiceClient::new(self.channel_of(self.pki.material(&issued).unwrap(), self.auditors))
    }
}

/// A probe over plain HTTP: status and body.
pub(crate) async fn get(admin: SocketAddr, path: &str) -> (u16, String) {
    let mut tcp = TcpStream::connect(admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LIMIT, tcp.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn soon<T>(message: T) -> Request<T> {
    request(message, LIMIT)
}

pub(crate) async fn append(
    client: &mut AuditServiceClient<PeerChannel>,
) -> Result<AppendResponse, Fault> {
    let answer = client.append(soon(AppendRequest::default())).await;
    answer.map(tonic::Response::into_inner).map_err(Fault::from)
}

/// A client that presents `issued`, trusts `ca`, and speaks `protocol`; it judges nothing else.
pub(crate) fn raw_config(ca: &str, issued: Option<&Issued>, protocol: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match issued {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let chain = CertificateDer::pem_slice_iter(issued.cert_pem.as_bytes())
                .collect::<Result<_, _>>()
                .unwrap();
            let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

pub(crate) async fn dial(
    addr: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(addr).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), tcp)
        .await
}

/// The value of a metric of this process, 0 while it does not exist. Labels as they stand in the text.
pub(crate) fn metric(text: &str, name_and_labels: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name_and_labels));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}
