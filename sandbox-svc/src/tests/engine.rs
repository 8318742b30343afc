//! Engines that fail: a proxy before the real one refuses some calls, or stands still with every connection open. Silence
//! is never taken for an end, and never waited for without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::world::{ENGINE, World, open_manifest};
use crate::config::Config;
use crate::engine::{ContainerId, Docker, EngineError, Handle, Setup};

/// Forwards every connection, but for requests that begin like the refused one, and nothing while it stands still.
struct Proxy {
    socket: PathBuf,
    refused: Arc<watch::Sender<Option<&'static str>>>,
    still: watch::Sender<bool>,
    _dir: tempfile::TempDir,
    _tasks: tokio::task::JoinSet<()>,
}

impl Proxy {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let refused = Arc::new(watch::Sender::new(None));
        let mut tasks = tokio::task::JoinSet::new();
        let refuse = refused.clone();
        let (still, stands) = watch::channel(false);
        tasks.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (refuse, stands) = (*refuse.borrow(), stands.clone());
                connections.spawn(async move {
                    forward(client, refuse, stands).await.ok();
                });
            }
        });
        Self { socket, refused, still, _dir: dir, _tasks: tasks }
    }

    fn stand_still(&self, still: bool) {
        self.still.send_replace(still);
    }

    fn refuse(&self, request: Option<&'static str>) {
        self.refused.send_replace(request);
    }
}

async fn forward(
    mut client: UnixStream,
    refuse: Option<&str>,
    still: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut head = vec![0; 4096];
    let length = client.read(&mut head).await?;
    head.truncate(length);
    if refuse.is_some_and(|refuse| head.starts_with(refuse.as_bytes())) {
        let answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 18\r\nConnection: close\r\n\r\n{\"message\":\"nope\"}";
        return client.write_all(answer).await;
    }
    let mut engine = UnixStream::connect(ENGINE).await?;
    goes_on(&still).await;
    engine.write_all(&head).await?;
    let ((from_client, to_client), (from_engine, to_engine)) = (split(client), split(engine));
    let up = pass(from_client, to_engine, &still);
    let down = pass(from_engine, to_client, &still);
    tokio::try_join!(up, down)?;
    Ok(())
}

async fn goes_on(still: &watch::Receiver<bool>) {
    still.clone().wait_for(|still| !still).await.unwrap();
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    still: &watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        goes_on(still).await;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_not_proven_is_no_end() {
    let proxy = Proxy::start();
    let world = World::with(&[], &proxy.socket, "host-tmpfs").await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    proxy.refuse(Some("DELETE"));
    let fault = run.send(run.order(&call, None)).await.unwrap_err();
    assert_eq!(fault.reason, "CLEANUP_UNCERTAIN");
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "RUN_BUSY");
    assert_eq!(world.containers().len(), 1);
    let kinds = ["call.started", "sandbox.started"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;

    proxy.refuse(None);
    world.sandbox().reconcile().await.unwrap();
    assert_eq!(run.execute(&call, None).await.end(), "exited 0");
    assert_eq!(world.containers(), Vec::<String>::new());
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stands_still_holds_up_one_call_and_no_one_else() {
    let proxy = Proxy::start();
    let world = World::with(&[("a", "x")], &proxy.socket, "host-tmpfs").await;
    let run = world.run(&open_manifest()).await;
    let other = world.run(&open_manifest()).await;
    let arguments = json!({ "argv": ["sleep", "25"], "timeoutSeconds": 1 });
    let call = run.plan("process.exec", arguments).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    stream.message().await.unwrap();
    proxy.stand_still(true);
    // Its time is over, the kill is not answered, and nobody else notices.
    let stored = async {
        loop {
            let row = world.sandbox().store.execution(call.id).await.unwrap().unwrap();
            if row.reason.is_some() {
                return row.reason;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let reason = tokio::time::timeout(super::world::LIMIT, stored).await.unwrap();
    assert_eq!(reason.as_deref(), Some("timed_out"));
    assert!(other.plan("read_file", json!({ "path": "a" })).await.result.is_some());
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    assert!(run.cancel(call.id).await);
    proxy.stand_still(false);
    assert_eq!(super::run::read(stream).await.unwrap().end(), "timed_out");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test]
async fn every_question_to_an_engine_has_an_end() {
    let proxy = Proxy::start();
    let engine = Docker::connect(&proxy.socket, Setup::default()).await.unwrap();
    let id = ContainerId::parse(&"a".repeat(64)).unwrap();
    proxy.stand_still(true);
    let silent = |failed: Result<(), EngineError>| match failed {
        Err(EngineError::Silent { call, limit }) => (call, limit.as_secs()),
        other => panic!("{other:?}"),
    };
    let handle = Handle::Id(&id);
    // At once, for each takes its whole time; a start and a removal have a minute.
    let asked = tokio::join!(
        engine.ping(),
        async { engine.inspect(handle).await.map(drop) },
        async { engine.attach(&id).await.map(drop) },
        engine.kill(&id),
        engine.terminate(&id),
        async { engine.freeze(&id).await.map(drop) },
        async { engine.thaw(&id).await.map(drop) },
        async { engine.list(&[]).await.map(drop) },
    );
    let (ping, inspect, attach, kill, terminate, freeze, thaw, list) = asked;
    let ends = [ping, inspect, attach, kill, terminate, freeze, thaw, list].map(silent);
    let expected = ["ping", "inspect", "attach", "kill", "kill", "pause", "unpause", "list"]
        .map(|call| (call, 10));
    assert_eq!(ends, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_will_not_make_or_start_a_container_fails_the_call_only() {
    let proxy = Proxy::start();
    let world = World::with(&[], &proxy.socket, "host-tmpfs").await;
    let run = world.run(&open_manifest()).await;
    for request in ["POST /containers/create", "POST /containers/sbx"] {
        let call = run.plan_exec(&["true"]).await;
        proxy.refuse(Some(request));
        let told = run.execute(&call, None).await;
        proxy.refuse(None);
        let expected = if request.ends_with("create") { "start_failed" } else { "exited 0" };
        assert!(told.end().starts_with(expected), "{}", told.end());
    }
    assert_eq!(run.exec(&["true"]).await.end(), "exited 0");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_engine_the_service_does_not_start_and_says_what_to_do() {
    let missing = Path::new("/nonexistent/engine.sock");
    let error = Docker::connect(missing, Setup::default()).await.unwrap_err();
    let text = transport::Chain(&error).to_string();
    assert!(text.starts_with("the engine cannot be reached at /nonexistent/engine.sock"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_of_the_configuration_is_passed_through_and_an_unknown_one_is_refused() {
    let mut world = World::new(&[]).await;
    world.kill();
    let runtime = Some("io.containerd.runc.v2".to_owned());
    world.start_as(|config| config.runtime = runtime).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    stream.message().await.unwrap();
    let containers = world.containers();
    let said = std::process::Command::new("docker")
        .args(["inspect", "--format", "{{.HostConfig.Runtime}}", &containers[0]])
        .output()
        .unwrap();
    std::fs::write(run.copy().join("go"), "").unwrap();
    assert_eq!(super::run::read(stream).await.unwrap().end(), "exited 0");
    assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), "io.containerd.runc.v2");

    world.kill();
    let config = Config { runtime: Some("no-such-runtime".to_owned()), ..world.config() };
    let context = world.pki.context(transport::Service::SandboxSvc).unwrap();
    let refused = crate::bind(config, context).await.unwrap_err().to_string();
    assert!(refused.starts_with("the engine has no runtime no-such-runtime"), "{refused}");
}
