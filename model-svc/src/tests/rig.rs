//! The service with its neighbours, and requests that are right unless a test makes them wrong.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use event::Digest;
use event::id::{CallId, RunId, SessionId};
use proto::common::v1 as common;
use proto::model::v1 as model;
use proto::model::v1::model_service_client::ModelServiceClient;
use receipt::{Grant, OnDisconnect, Signer};
use time::OffsetDateTime;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use transport::issue::DevPki;
use transport::{
    Args, Bound as _, CancellationToken, Context, Endpoint, Fault, PeerChannel, Service, deadline,
};

use super::audit::FakeAudit;
use super::upstream::Upstream;
use crate::Config;
use crate::clock::Clock;

pub(super) const DOMAIN: &str = "example.test";
pub(super) const CANARY: &str = "sk-canary-7Qp4x9LmN2";
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// Waits, but not for ever.
pub(super) async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(LIMIT, work).await.expect("it happens within the limit")
}

pub(super) const MANIFEST: &str = "\
id: demo
title: Demo
goal: Demonstrate.
acceptance: [it works]
allowed_paths: [app.txt]
permissions: {fs.read: allow}
models: [scripted, real]
budget: {max_model_tokens: 100000}
";

pub(super) const SCRIPT: &str = "\
script:
  - content: hello
    usage: {promptTokens: 30, completionTokens: 7}
  - toolCalls: [{id: c1, name: read_file, arguments: {path: app.txt}}]
  - {content: slow, delayMs: 600000}
  - {toolCalls: [{id: a, name: x, arguments: {}}, {id: a, name: y, arguments: {}}]}
";

pub(super) struct Rig {
    pub(super) pki: DevPki,
    pub(super) dir: tempfile::TempDir,
    pub(super) audit: FakeAudit,
    pub(super) upstream: Upstream,
    pub(super) signer: Signer,
    /// Added to the real time, in seconds.
    clock: Arc<AtomicI64>,
    audit_at: Endpoint,
    contexts: Vec<Context>,
    service: Option<Running>,
    channel: Option<PeerChannel>,
}

/// The service on a runtime of its own, which can be taken away from under it like a process.
struct Running {
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
    context: Context,
    serving: JoinHandle<Result<(), crate::Error>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Rig {
    pub(super) async fn new() -> Self {
        let mut rig = Self::stopped().await;
        rig.start().await;
        rig
    }

    /// The neighbours alone.
    pub(super) async fn stopped() -> Self {
        crate::use_ring();
        let pki = DevPki::new(DOMAIN.parse().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let neighbour = pki.context(Service::AuditSvc).unwrap();
        let audit = FakeAudit::new();
        let audit_at = Endpoint::from(audit.serve(&neighbour).await);
        let upstream = Upstream::serve(&neighbour.tracker).await;
        let receipts = pki.receipts("0").unwrap();
        let signer =
            Signer::from_pem(receipts.cert_pem.as_bytes(), receipts.key_pem.as_bytes()).unwrap();
        let rig = Self {
            pki,
            dir,
            audit,
            upstream,
            signer,
            clock: Arc::default(),
            audit_at,
            contexts: vec![neighbour],
            service: None,
            channel: None,
        };
        rig.write("script.yaml", SCRIPT, 0o644);
        rig.write("key", &format!("{CANARY}\n"), 0o600);
        rig.write("models.toml", &rig.models(""), 0o644);
        rig
    }

    /// The models file, with `more` settings for the real one.
    pub(super) fn models(&self, more: &str) -> String {
        format!(
            "[[model]]\nid = \"scripted\"\nprovider = \"scripted\"\nscript = \"script.yaml\"\n\
             [[model]]\nid = \"real\"\nprovider = \"openai-compatible\"\nbase_url = \"http://{}/v1\"\n\
             key_file = \"key\"\nupstream_model = \"m-1\"\nmax_output_tokens = 500\n{more}\n",
            self.upstream.addr
        )
    }

    pub(super) fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    pub(super) fn config(&self) -> Config {
        Config {
            transport: args(self.dir.path()),
            listen: "127.0.0.1:0".parse().unwrap(),
            state_dir: self.dir.path().join("state"),
            audit_endpoint: self.audit_at.clone(),
            models_file: self.dir.path().join("models.toml"),
        }
    }

    pub(super) async fn start(&mut self) {
        let context = self.pki.context(Service::ModelSvc).unwrap();
        let offset = Arc::clone(&self.clock);
        let clock = Clock::of(move || {
            OffsetDateTime::now_utc() + time::Duration::seconds(offset.load(Ordering::Relaxed))
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let starting = crate::start(self.config(), context.clone(), clock);
        let bound = within(runtime.spawn(starting)).await.unwrap().unwrap();
        let addr = bound.addrs()[0].1;
        let shutdown = CancellationToken::new();
        let serving = runtime.spawn(bound.serve(shutdown.clone()));
        let agent = self.pki.context(Service::AgentSvc).unwrap();
        self.channel =
            Some(transport::channel::connect(&agent, &Endpoint::from(addr), Service::ModelSvc));
        self.contexts.push(agent);
        self.service = Some(Running { runtime: Some(runtime), shutdown, context, serving });
    }

    /// Ends the service in good order.
    pub(super) async fn stop(&mut self) {
        let mut running = self.service.take().unwrap();
        self.channel = None;
        running.shutdown.cancel();
        within(&mut running.serving).await.unwrap().unwrap();
        running.context.tracker.close();
        within(running.context.tracker.wait()).await;
        end(running).await;
    }

    pub(super) fn is_ready(&self) -> bool {
        self.service.as_ref().unwrap().context.ready.is_ready()
    }

    pub(super) async fn once_ready(&self) {
        within(self.service.as_ref().unwrap().context.ready.wait()).await;
    }

    pub(super) fn advance(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(super) fn client(&self) -> ModelServiceClient<PeerChannel> {
        ModelServiceClient::new(self.channel.clone().unwrap())
            .max_decoding_message_size(16 * 1024 * 1024)
    }

    /// A client that is somebody else.
    pub(super) fn client_of(&self, context: &Context) -> ModelServiceClient<PeerChannel> {
        let endpoint = self.channel.as_ref().unwrap().endpoint();
        ModelServiceClient::new(transport::channel::connect(context, endpoint, Service::ModelSvc))
    }

    /// As if the process had been killed: what it was doing stays undone.
    pub(super) async fn crash(&mut self) {
        self.channel = None;
        end(self.service.take().unwrap()).await;
    }

    pub(super) fn now(&self) -> u64 {
        let offset = self.clock.load(Ordering::Relaxed);
        u64::try_from(OffsetDateTime::now_utc().unix_timestamp() + offset).unwrap()
    }

    pub(super) fn grant(&self, session: SessionId) -> Grant {
        Grant {
            session,
            tenant: "local".into(),
            subject: "ada".into(),
            manifest_id: "demo".into(),
            manifest: Digest::of(MANIFEST.as_bytes()),
            workspace: "demo".into(),
            models: vec!["scripted".into(), "real".into()],
            on_disconnect: OnDisconnect::Deny,
            iat: self.now(),
            exp: self.now() + 3_600,
        }
    }

    pub(super) async fn fence_with(
        &self,
        owner: common::Owner,
        grant: &Grant,
        manifest: &str,
    ) -> Result<model::FenceResponse, Fault> {
        let signed = wire(self.signer.sign(grant).unwrap());
        self.fence_signed(owner, signed, manifest).await
    }

    pub(super) async fn fence_signed(
        &self,
        owner: common::Owner,
        grant: common::Signed,
        manifest: &str,
    ) -> Result<model::FenceResponse, Fault> {
        let request = model::FenceRequest {
            owner: Some(owner),
            grant: Some(grant),
            manifest: manifest.into(),
        };
        let answer = within(self.client().fence(deadline::request(request, LIMIT))).await;
        Ok(answer.map_err(Fault::from)?.into_inner())
    }

    /// A session that this rig's agent owns.
    pub(super) async fn session(&self) -> common::Owner {
        let session = SessionId::new();
        let owner = owner(session, "node-a", 1);
        self.fence_with(owner.clone(), &self.grant(session), MANIFEST).await.unwrap();
        owner
    }

    /// The only message of a call, or why there is none.
    pub(super) async fn complete(
        &self,
        request: model::CompleteRequest,
    ) -> Result<model::complete_response::Message, Fault> {
        let answer = within(self.client().complete(deadline::request(request, LIMIT))).await;
        let mut stream = answer.map_err(Fault::from)?.into_inner();
        let first = within(stream.message()).await.map_err(Fault::from)?.unwrap();
        assert_eq!(within(stream.message()).await.map_err(Fault::from)?, None);
        Ok(first.message.unwrap())
    }

    pub(super) async fn answer(&self, request: model::CompleteRequest) -> model::Answer {
        match self.complete(request).await.unwrap() {
            model::complete_response::Message::Answer(answer) => answer,
            other => panic!("no answer: {other:?}"),
        }
    }

    pub(super) async fn failure(&self, request: model::CompleteRequest) -> model::ModelError {
        match self.complete(request).await.unwrap() {
            model::complete_response::Message::Failed(failed) => failed,
            other => panic!("no failure: {other:?}"),
        }
    }

    /// Where a call stands once it runs no more.
    pub(super) async fn settled(
        &self,
        owner: &common::Owner,
        call: &str,
    ) -> model::get_completion_response::State {
        within(async {
            loop {
                let state = self.standing(owner, call).await;
                if !matches!(state, model::get_completion_response::State::Running(_)) {
                    return state;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    pub(super) async fn standing(
        &self,
        owner: &common::Owner,
        call: &str,
    ) -> model::get_completion_response::State {
        let request =
            model::GetCompletionRequest { owner: Some(owner.clone()), call_id: call.to_owned() };
        let answer = within(self.client().get_completion(deadline::request(request, LIMIT))).await;
        answer.unwrap().into_inner().state.unwrap()
    }
}

/// Takes the runtime away and waits until nothing of it is left.
async fn end(mut running: Running) {
    let runtime = running.runtime.take();
    within(tokio::task::spawn_blocking(move || drop(runtime))).await.unwrap();
}

fn args(dir: &Path) -> Args {
    Args {
        tls_dir: dir.join("tls"),
        trust_domain: DOMAIN.parse().unwrap(),
        tls_reload_interval: Duration::from_secs(30),
        admin_listen: None,
        otlp_endpoint: None,
        log_format: transport::args::LogFormat::Text,
        log_filter: "info".into(),
        drain_timeout: Duration::from_secs(5),
    }
}

pub(super) fn wire(signed: receipt::Signed) -> common::Signed {
    let receipt::Signed { payload, signature, chain } = signed;
    common::Signed { payload, signature, chain }
}

pub(super) fn owner(session: SessionId, node: &str, epoch: u64) -> common::Owner {
    common::Owner { session_id: session.to_string(), node: node.into(), epoch }
}

pub(super) fn user(text: &str) -> model::Message {
    let text = model::Text { text: text.into() };
    model::Message { message: Some(model::message::Message::User(text)) }
}

/// A new call of a new run.
pub(super) fn turn(owner: &common::Owner, model: &str, step: u32) -> model::CompleteRequest {
    model::CompleteRequest {
        owner: Some(owner.clone()),
        call: Some(common::Call {
            run_id: RunId::new().to_string(),
            call_id: CallId::new().to_string(),
            attempt: 1,
            start_before_ms: i64::MAX,
        }),
        model: model.into(),
        step,
        messages: vec![user("do it")],
        tools: vec![],
        max_output_tokens: 0,
    }
}

pub(super) fn call_id(request: &model::CompleteRequest) -> String {
    request.call.as_ref().unwrap().call_id.clone()
}
