//! A whole process (`examples/smallest.rs`): its signals, its exit codes, what it says on standard error.

use std::{path::PathBuf, process::Stdio, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto::audit::v1::{AppendRequest, audit_service_client::AuditServiceClient};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStderr, Command},
    sync::mpsc,
    task::JoinSet,
};
use transport::{Context, Fault, Service, channel, issue::DevPki};

use crate::{
    rotation::{der, presented},
    setup::{ANY_PORT, LIMIT, dial, get, pki, raw_config, soon},
};

struct Desk {
    dir: TempDir,
    pki: DevPki,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { dir: TempDir::new().unwrap(), pki: pki() };
        desk.pki
            .write_tls_dir(&desk.tls(), &desk.pki.service(Service::AuditSvc, "0").unwrap())
            .unwrap();
        desk
    }

    fn tls(&self) -> PathBuf {
        self.dir.path().join("tls")
    }

    fn command(&self, flags: &[&str]) -> Command {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples/smallest");
        assert!(
            program.exists(),
            "build the examples: cargo test -p transport without --test does"
        );
        let mut command = Command::new(program);
        command
            .args(["--trust-domain", "harness.test", "--tls-dir"])
            .arg(self.tls())
            .args(flags)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs to its end: exit code, standard output, standard error.
    async fn run(&self, flags: &[&str]) -> (Option<i32>, String, String) {
        let output =
            tokio::time::timeout(LIMIT, self.command(flags).output()).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn start(&self, flags: &[&str]) -> Running {
        let flags = [&["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"], flags].concat();
        let mut child = self.command(&flags).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Running { child, log }
    }
}

struct Running {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Running {
    /// The next line of the log that holds every one of `texts`.
    async fn line(&mut self, texts: &[&str]) -> String {
        let found = async {
            loop {
                let line = self.log.next_line().await.unwrap().expect("the log goes on");
                if texts.iter().all(|text| line.contains(text)) {
                    return line;
                }
            }
        };
        tokio::time::timeout(LIMIT, found)
            .await
            .unwrap_or_else(|_| panic!("no line with {texts:?}"))
    }

    async fn addr(&mut self, listener: &str) -> std::net::SocketAddr {
        let line = self.line(&["\"listening\"", &format!("\"listener\":\"{listener}\"")]).await;
        let (_, rest) = line.split_once("\"addr\":\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
    }

    async fn exit(mut self) -> Option<i32> {
        let mut rest = Vec::new();
        let ended = async {
            self.log.into_inner().read_to_end(&mut rest).await.unwrap();
            self.child.wait().await.unwrap().code()
        };
        tokio::time::timeout(LIMIT, ended).await.expect("it ends")
    }
}

#[tokio::test]
async fn a_process_serves_until_it_is_asked_to_stop() {
    let desk = Desk::new();
    let mut running = desk.start(&[]);
    let admin = running.addr("admin-listen").await;
    let services = running.addr("listen").await;
    let gateway = desk.pki.material(&desk.pki.service(Service::Gateway, "0").unwrap()).unwrap();
    let channel =
        channel::connect(&Context::for_test(gateway), &services.into(), Service::AuditSvc);
    channel.probe(LIMIT).await.unwrap();
    let ready = async { while get(admin, "/readyz").await != (200, "ready\n".to_owned()) {} };
    tokio::time::timeout(LIMIT, ready).await.unwrap();
    running.signal("-TERM").await;
    running.line(&["\"stopping\"", "SIGTERM"]).await;
    assert_eq!(running.exit().await, Some(0));
}

#[tokio::test]
async fn a_hangup_reads_the_tls_directory_again() {
    let desk = Desk::new();
    let mut running = desk.start(&["--tls-reload-interval", "1h"]);
    let services = running.addr("listen").await;
    let next = desk.pki.service(Service::AuditSvc, "1").unwrap();
    desk.pki.write_tls_dir(&desk.tls(), &next).unwrap();
    running.signal("-HUP").await;
    running.line(&["tls material changed", "spiffe://harness.test/svc/audit-svc/1"]).await;
    let gateway = desk.pki.service(Service::Gateway, "0").unwrap();
    let stream = dial(services, raw_config(desk.pki.services.cert_pem(), Some(&gateway), b"h2"))
        .await
        .unwrap();
    assert_eq!(presented(&stream), der(&next));
    running.signal("-INT").await;
    assert_eq!(running.exit().await, Some(0));
}

#[tokio::test]
async fn the_tls_directory_is_also_read_by_and_by() {
    let desk = Desk::new();
    let mut running = desk.start(&["--tls-reload-interval", "50ms"]);
    running.addr("listen").await;
    desk.pki
        .write_tls_dir(&desk.tls(), &desk.pki.service(Service::AuditSvc, "1").unwrap())
        .unwrap();
    running.line(&["tls material changed"]).await;
}

#[tokio::test]
async fn a_refused_handshake_is_in_the_log_with_its_reason() {
    let desk = Desk::new();
    let mut running = desk.start(&[]);
    let services = running.addr("listen").await;
    let config = raw_config(desk.pki.services.cert_pem(), None, b"h2");
    let mut stream = dial(services, config).await.unwrap();
    stream.read_u8().await.unwrap_err();
    running
        .line(&["tls handshake refused", "\"reason\":\"no_certificate\"", "\"level\":\"WARN\""])
        .await;
}

#[tokio::test]
async fn a_log_line_of_a_request_names_its_peer_its_method_and_its_trace() {
    let desk = Desk::new();
    let mut running = desk.start(&[]);
    let services = running.addr("listen").await;
    let gateway = desk.pki.material(&desk.pki.service(Service::Gateway, "0").unwrap()).unwrap();
    let channel =
        channel::connect(&Context::for_test(gateway), &services.into(), Service::AuditSvc);
    let status =
        AuditServiceClient::new(channel).append(soon(AppendRequest::default())).await.unwrap_err();
    assert_eq!(Fault::from(status).reason, "METHOD_NOT_ALLOWED");
    let line = running.line(&["request refused by the method table"]).await;
    let peer = "\"peer\":\"spiffe://harness.test/svc/gateway/0\"";
    for field in [peer, "\"method\":\"unknown\"", "\"trace_id\":\""] {
        assert!(line.contains(field), "{field} in {line}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_on_standard_error_with_its_exit_code() {
    let desk = Desk::new();
    let tls = desk.tls();
    assert_eq!(
        desk.run(&["--check-config", "--listen", "127.0.0.1:0"]).await,
        (Some(0), "configuration is valid\n".to_owned(), String::new())
    );
    assert_eq!(
        desk.run(&["--listen", "nowhere", "--lisen", "x"]).await,
        (
            Some(2),
            String::new(),
            "harness-audit-svc: unknown argument --lisen; did you mean --listen?\n\
             harness-audit-svc: invalid value 'nowhere' for '--listen <ADDR>': invalid socket address syntax\n"
                .to_owned()
        )
    );
    let taken = TcpListener::bind(ANY_PORT).await.unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).await.unwrap();
    assert_eq!(
        desk.run(&["--listen", &taken.to_string()]).await,
        (
            Some(1),
            String::new(),
            format!(
                "harness-audit-svc: cannot listen on {taken} (--listen); choose an address that is free and belongs to \
                 this host: Address already in use (os error 98)\n"
            )
        )
    );
    drop(holder);
    std::fs::remove_file(tls.join("ca.crt")).unwrap();
    assert_eq!(
        desk.run(&["--listen", "127.0.0.1:0"]).await,
        (
            Some(2),
            String::new(),
            format!(
                "harness-audit-svc: --tls-dir {}: cannot read {}: entity not found\n",
                tls.display(),
                tls.join("ca.crt").display()
            )
        )
    );
}

/// A collector that hands every export over as it came.
async fn collector() -> (std::net::SocketAddr, mpsc::Receiver<(String, Bytes)>, JoinSet<()>) {
    let tcp = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = tcp.local_addr().unwrap();
    let (exports, received) = mpsc::channel(16);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let service = service_fn(move |request: Request<Incoming>| {
            let exports = exports.clone();
            async move {
                let path = request.uri().path().to_owned();
                exports
                    .send((path, request.into_body().collect().await?.to_bytes()))
                    .await
                    .unwrap();
                let answer = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", "0");
                Ok::<_, hyper::Error>(answer.body(Full::new(Bytes::new())).unwrap())
            }
        });
        let (stream, _) = tcp.accept().await.unwrap();
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .unwrap();
    });
    (addr, received, serving)
}

#[tokio::test]
async fn spans_are_exported_where_the_configuration_says() {
    let desk = Desk::new();
    let (addr, mut exports, _serving) = collector().await;
    let mut running = desk.start(&["--otlp-endpoint", &format!("http://{addr}")]);
    let services = running.addr("listen").await;
    let gateway = desk.pki.material(&desk.pki.service(Service::Gateway, "0").unwrap()).unwrap();
    let channel =
        channel::connect(&Context::for_test(gateway), &services.into(), Service::AuditSvc);
    channel.probe(LIMIT).await.unwrap();
    running.signal("-TERM").await;
    let (path, body) = tokio::time::timeout(LIMIT, exports.recv()).await.unwrap().unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let body = String::from_utf8_lossy(&body);
    for text in [
        "harness-audit-svc",
        "request",
        "/grpc.health.v1.Health/Check",
        "spiffe://harness.test/svc/gateway/0",
    ] {
        assert!(body.contains(text), "{text} in {body}");
    }
    assert_eq!(running.exit().await, Some(0));
}

#[tokio::test]
async fn a_dead_collector_does_not_hold_up_the_end() {
    let desk = Desk::new();
    let dead = TcpListener::bind(ANY_PORT).await.unwrap().local_addr().unwrap();
    let mut running = desk.start(&["--otlp-endpoint", &format!("http://{dead}")]);
    running.addr("listen").await;
    running.signal("-TERM").await;
    let started = std::time::Instant::now();
    assert_eq!(running.exit().await, Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
