//! The service between its neighbours: started, killed and started again on one state directory.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use event::Digest;
use proto::audit::v1::audit_service_server::AuditServiceServer;
use proto::model::v1::model_service_server::ModelServiceServer;
use proto::sandbox::v1::sandbox_service_server::SandboxServiceServer;
use tempfile::TempDir;
use tokio::sync::Notify;
use transport::authz::{self, Caller, Row, Table};
use transport::issue::DevPki;
use transport::server::Server;
use transport::{Bound as _, Context, Service};

use super::audit::Audit;
use super::model::Model;
use super::sandbox::Sandbox;
use crate::clock::manual::Manual;
use crate::failpoint::Records;
use crate::runtime::Spans;
use crate::{Config, bind_with};

/// A test that waits longer than this has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) const MANIFEST: &str = r#"id: fix-it
title: Fix it
goal: Make the tests pass
acceptance:
  - the tests pass
allowed_paths:
  - src/**
permissions: {}
models:
  - scripted
"#;

pub(crate) fn digest() -> Digest {
    Digest::of(MANIFEST.as_bytes())
}

pub(crate) struct Mesh {
    pub(crate) pki: DevPki,
    pub(crate) clock: Manual,
    pub(crate) audit: Audit,
    pub(crate) sandbox: Sandbox,
    pub(crate) model: Model,
    pub(crate) spans: Spans,
    /// Where the service listens.
    pub(crate) addr: SocketAddr,
    peers: [SocketAddr; 3],
    dir: TempDir,
    process: Option<Process>,
}

/// Everything that dies with it runs on its own threads.
struct Process {
    runtime: tokio::runtime::Runtime,
    died: Arc<Notify>,
}

impl Mesh {
    pub(crate) async fn start() -> Self {
        Self::start_dying(None).await
    }

    /// The service's first process dies right after this record.
    pub(crate) async fn start_dying(after_record: Option<u64>) -> Self {
        let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
        let (audit, sandbox, model) = (Audit::new(), Sandbox::new(), Model::new());
        let peers = [
            serve(&pki, Service::SandboxSvc, "harness.sandbox.v1.SandboxService", |server| {
                server.add_service(SandboxServiceServer::new(sandbox.clone()))
            })
            .await,
            serve(&pki, Service::ModelSvc, "harness.model.v1.ModelService", |server| {
                server.add_service(ModelServiceServer::new(model.clone()))
            })
            .await,
            serve(&pki, Service::AuditSvc, "harness.audit.v1.AuditService", |server| {
                server.add_service(AuditServiceServer::new(audit.clone()))
            })
            .await,
        ];
        let mut mesh = Self {
            clock: Manual::new(),
            audit,
            sandbox,
            model,
            spans: Spans::new(Duration::from_secs(10)),
            addr: peers[0],
            peers,
            dir: tempfile::tempdir().unwrap(),
            process: None,
            pki,
        };
        mesh.boot(after_record).await;
        mesh
    }

    /// Another process takes the state directory up.
    pub(crate) async fn boot(&mut self, after_record: Option<u64>) {
        let died = Arc::new(Notify::new());
        let records = after_record
            .map_or_else(Records::default, |record| Records::dying(record, Arc::clone(&died)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let context = self.pki.context(Service::AgentSvc).unwrap();
        let config = config(self.dir.path(), self.peers);
        let (clock, spans) = (self.clock.clock(), self.spans);
        let (tell, addr) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let shutdown = context.shutdown.clone();
            let bound = bind_with(config, context, clock, spans, records).await.unwrap();
            tell.send(bound.addrs()[0].1).unwrap();
            bound.serve(shutdown).await.unwrap();
        });
        self.addr = within("the service is up", addr).await.unwrap();
        self.process = Some(Process { runtime, died });
    }

    /// Ends the process without a word: no task of it goes on.
    pub(crate) async fn kill(&mut self) {
        let process = self.process.take().unwrap();
        let ended = tokio::task::spawn_blocking(move || process.runtime.shutdown_timeout(LIMIT));
        ended.await.unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.boot(None).await;
    }

    pub(crate) async fn died(&self) {
        let died = Arc::clone(&self.process.as_ref().unwrap().died);
        within("the process dies", died.notified()).await;
    }

    pub(crate) fn database(&self) -> std::path::PathBuf {
        self.dir.path().join("state/agent.db")
    }

    pub(crate) fn context(&self, service: Service) -> Context {
        self.pki.context(service).unwrap()
    }

    /// Another connection to the service's database.
    pub(crate) async fn connect(&self) -> sqlx::SqlitePool {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.database());
        sqlx::SqlitePool::connect_with(options).await.unwrap()
    }

    /// Changes what is stored while no process has it.
    pub(crate) async fn damage(&self, statement: &'static str) {
        let pool = self.connect().await;
        sqlx::query(statement).execute(&pool).await.unwrap();
        pool.close().await;
    }

    /// How many events wait for the ledger.
    pub(crate) async fn waiting(&self) -> i64 {
        let pool = self.connect().await;
        let count =
            sqlx::query_scalar("SELECT COUNT(*) FROM outbox").fetch_one(&pool).await.unwrap();
        pool.close().await;
        count
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
        }
    }
}

fn config(dir: &Path, [sandbox, model, audit]: [SocketAddr; 3]) -> Config {
    let state = dir.join("state");
    let [sandbox, model, audit] = [sandbox, model, audit].map(|addr| addr.to_string());
    Config::parse_from([
        "agent-svc",
        "--tls-dir",
        "/nonexistent",
        "--trust-domain",
        "harness.test",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        state.to_str().unwrap(),
        "--sandbox-endpoint",
        &sandbox,
        "--model-endpoint",
        &model,
        "--audit-endpoint",
        &audit,
    ])
}

async fn serve(
    pki: &DevPki,
    service: Service,
    name: &'static str,
    add: impl FnOnce(Server) -> Server,
) -> SocketAddr {
    const ANY: &[Caller] = &[Caller::AnyService];
    let methods = authz::methods(proto::DESCRIPTORS, &[name]).unwrap();
    let rows: Vec<Row> = methods
        .into_iter()
        .map(|method| Row { method: Box::leak(method.into_boxed_str()), callers: ANY })
        .collect();
    let table = Table::new(&rows, proto::DESCRIPTORS, &[name]).unwrap();
    let context = pki.context(service).unwrap();
    let server = add(Server::new(&context, table));
    let listening = server.services_listener("127.0.0.1:0".parse().unwrap()).bind().await.unwrap();
    let addr = listening.addrs()[0].1;
    let shutdown = context.shutdown.clone();
    context.tracker.spawn(listening.serve(shutdown));
    addr
}

pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

/// Looks again until it holds; for what nobody announces.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
