//! A running ledger, clients that hold each identity, and events to send.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use audit_svc::Config;
use clap::Parser as _;
use event::id::{CallId, EventId, SessionId};
use event::{CallStatus, Data, Event, Writer};
use proto::audit::v1::audit_service_client::AuditServiceClient;
use proto::audit::v1::{
    Ack, AppendRequest, CheckpointRequest, NewEntry, QueryRequest, Redaction, Stored,
};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tonic::Streaming;
use transport::channel::connect;
use transport::issue::DevPki;
use transport::{Bound as _, CancellationToken, Context, Fault, PeerChannel, Service};

pub(crate) type Client = AuditServiceClient<PeerChannel>;

/// Long enough for a busy machine; nothing waits this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const ORIGIN: &str = "ledger.test/1";
pub(crate) const TENANT: &str = "t-1";

pub(crate) struct Ledger {
    pub(crate) pki: DevPki,
    pub(crate) dir: TempDir,
    pub(crate) context: Context,
    services: SocketAddr,
    auditors: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), audit_svc::Error>>,
}

pub(crate) fn config(dir: &Path, origin: &str) -> Config {
    let dir = dir.to_str().unwrap();
    let args =
        ["audit-svc", "--tls-dir", "unused", "--trust-domain", "harness.test", "--state-dir", dir]
            .into_iter()
            .chain([
                "--listen",
                "127.0.0.1:0",
                "--auditors-listen",
                "127.0.0.1:0",
                "--origin",
                origin,
            ]);
    Config::try_parse_from(args).unwrap()
}

pub(crate) fn pki() -> DevPki {
    DevPki::new("harness.test".parse().unwrap()).unwrap()
}

impl Ledger {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), pki()).await
    }

    pub(crate) async fn start_in(dir: TempDir, pki: DevPki) -> Self {
        let context = pki.context(Service::AuditSvc).unwrap();
        let bound = audit_svc::bind(config(dir.path(), ORIGIN), context.clone()).await.unwrap();
        let addr = |flag| bound.addrs().into_iter().find(|(name, _)| *name == flag).unwrap().1;
        let (services, auditors) = (addr("listen"), addr("auditors-listen"));
        let shutdown = CancellationToken::new();
        let serving = context.tracker.spawn(bound.serve(shutdown.clone()));
        Self { pki, dir, context, services, auditors, shutdown, serving }
    }

    /// Ends as after a signal and gives back what is on disk.
    pub(crate) async fn stop(self) -> (TempDir, DevPki) {
        self.shutdown.cancel();
        tokio::time::timeout(LIMIT, self.serving).await.unwrap().unwrap().unwrap();
        (self.dir, self.pki)
    }

    pub(crate) async fn restart(self) -> Self {
        let (dir, pki) = self.stop().await;
        Self::start_in(dir, pki).await
    }

    pub(crate) fn client(&self, service: Service) -> Client {
        let context = self.pki.context(service).unwrap();
        AuditServiceClient::new(connect(
            &context,
            &self.services.to_string().parse().unwrap(),
            Service::AuditSvc,
        ))
    }

    pub(crate) fn auditor(&self) -> Client {
        let issued = self.pki.auditor("ann").unwrap();
        let context = Context::for_test(self.pki.material(&issued).unwrap());
        AuditServiceClient::new(connect(
            &context,
            &self.auditors.to_string().parse().unwrap(),
            Service::AuditSvc,
        ))
    }

    /// The head, as size and root.
    pub(crate) async fn head(&self) -> ledger::Head {
        let head = self.auditor().checkpoint(CheckpointRequest {}).await.unwrap().into_inner();
        ledger::Head { size: head.size, root: ledger::Hash::from_slice(&head.root).unwrap() }
    }

    /// Every entry of the log.
    pub(crate) async fn all(&self) -> Vec<Stored> {
        let mut all: Vec<Stored> = Vec::new();
        loop {
            let after_log_index = all.last().map(|stored| stored.log_index);
            let query = QueryRequest { after_log_index, ..QueryRequest::default() };
            let page = collect(self.auditor().query(query).await.unwrap().into_inner()).await;
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    /// The database, past the service.
    pub(crate) async fn database(&self) -> SqliteConnection {
        database(self.dir.path()).await
    }
}

pub(crate) async fn database(dir: &Path) -> SqliteConnection {
    SqliteConnection::connect(dir.join("ledger.db").to_str().unwrap()).await.unwrap()
}

pub(crate) async fn execute(database: &mut SqliteConnection, sql: &str) -> Result<(), String> {
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(database).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) async fn collect<T>(mut stream: Streaming<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(next) = stream.message().await.unwrap() {
        all.push(next);
    }
    all
}

pub(crate) async fn append(client: &Client, entries: Vec<NewEntry>) -> Result<Vec<Ack>, Fault> {
    let answer = client.clone().append(AppendRequest { entries }).await;
    answer.map(|response| response.into_inner().acks).map_err(Fault::from)
}

/// The reason for which entries are refused.
pub(crate) async fn refused(client: &Client, entries: Vec<NewEntry>) -> String {
    append(client, entries).await.unwrap_err().reason
}

pub(crate) fn at_hand(data: impl Into<Data>) -> Event {
    Event { id: EventId::new(), at: OffsetDateTime::now_utc(), actor: None, data: data.into() }
}

/// Something that agent-svc may say.
pub(crate) fn note(text: &str) -> Event {
    at_hand(event::MessageDelta { request_id: "r-1".to_owned(), index: 0, text: text.to_owned() })
}

/// Something that executors may say.
pub(crate) fn finished() -> Event {
    at_hand(event::CallFinished {
        call_id: CallId::new(),
        attempt: 1,
        status: CallStatus::Completed,
        result_digest: None,
        duration_ms: 5,
    })
}

/// An entry as a writer sends it.
pub(crate) fn entry(session: SessionId, seq: impl Into<Option<u64>>, event: &Event) -> NewEntry {
    let event::Sealed { bytes, findings, .. } = event::seal(event).unwrap();
    let redactions = findings
        .into_iter()
        .map(|event::redact::Finding { path, rule, count }| Redaction {
            path,
            rule: rule.to_owned(),
            n: count,
        })
        .collect();
    NewEntry {
        tenant: TENANT.to_owned(),
        session_id: session.to_string(),
        seq: seq.into(),
        event: bytes,
        on_behalf_of: String::new(),
        policy_rev: String::new(),
        redactor: event::redact::REVISION.to_owned(),
        redactions,
    }
}

/// What the ledger crate says of everything that the service gives out.
pub(crate) fn verified(
    stored: &[Stored],
    head: &ledger::Head,
) -> Result<ledger::Summary, ledger::Finding> {
    let entries = stored.iter().map(|stored| ledger::Entry {
        log_index: stored.log_index,
        tenant: &stored.tenant,
        writer: &stored.writer,
        session: &stored.session_id,
        seq: stored.seq,
        event: &stored.event,
        envelope: &stored.envelope,
        salt: &stored.salt,
        leaf_hash: &stored.leaf_hash,
    });
    ledger::verify(ORIGIN, entries, head)
}

/// The sequence numbers of one stream, in the order of the log.
pub(crate) fn sequence(stored: &[Stored], writer: Writer, session: SessionId) -> Vec<u64> {
    let session = session.to_string();
    let own = stored
        .iter()
        .filter(|stored| stored.writer == writer.as_str() && stored.session_id == session);
    own.map(|stored| stored.seq).collect()
}
