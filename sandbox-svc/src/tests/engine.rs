//! Engines that fail: a proxy before the real one refuses some calls. Silence is never taken for an end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::world::{ENGINE, World, open_manifest};
use crate::config::Config;
use crate::engine::{Docker, Setup};

/// Forwards every connection, but for requests that begin like the refused one.
struct Proxy {
    socket: PathBuf,
    refused: Arc<watch::Sender<Option<&'static str>>>,
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
        tasks.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let refuse = *refuse.borrow();
                connections.spawn(async move {
                    forward(client, refuse).await.ok();
                });
            }
        });
        Self { socket, refused, _dir: dir, _tasks: tasks }
    }

    fn refuse(&self, request: Option<&'static str>) {
        self.refused.send_replace(request);
    }
}

async fn forward(mut client: UnixStream, refuse: Option<&str>) -> std::io::Result<()> {
    let mut head = vec![0; 4096];
    let length = client.read(&mut head).await?;
    head.truncate(length);
    if refuse.is_some_and(|refuse| head.starts_with(refuse.as_bytes())) {
        let answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 18\r\nConnection: close\r\n\r\n{\"message\":\"nope\"}";
        return client.write_all(answer).await;
    }
    let mut engine = UnixStream::connect(ENGINE).await?;
    engine.write_all(&head).await?;
    copy_bidirectional(&mut client, &mut engine).await?;
    Ok(())
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
