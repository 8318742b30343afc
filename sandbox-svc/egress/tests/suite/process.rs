//! The real process: what it may, how it is given work, how it ends, and real names, addresses and TLS in a network
//! of the test's own.

use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::sync::{Arc, Mutex};

use egress::{Config, End, Line, Reason, give};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use crate::caller::{Caller, PATIENCE, config, parse, socket_in};
use crate::hellos::hello;

const PROGRAM: &str = env!("CARGO_BIN_EXE_harness-egress");
const NOBODY: u32 = 65_534;

struct Started {
    child: Child,
    lifeline: Option<UnixStream>,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
    socket: PathBuf,
    _dirs: [tempfile::TempDir; 2],
}

/// A copy that every user can reach.
fn program() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::Builder::new().permissions(open()).tempdir().unwrap();
    let copy = dir.path().join("harness-egress");
    // By another process: a program that this one has open for writing cannot be started beside.
    run("cp", &[PROGRAM, copy.to_str().unwrap()]);
    (dir, copy)
}

fn open() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

async fn start(config: &Config) -> Started {
    let (dir, program) = program();
    let place = tempfile::tempdir().unwrap();
    let socket = socket_in(&place);
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(program)
        .env_clear()
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    give(&ours, listener.as_fd(), config).unwrap();
    drop(listener);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut started = Started { child, lifeline: Some(ours), lines, socket, _dirs: [dir, place] };
    assert_eq!(started.line().await, Some(Line::Ready {}));
    started
}

impl Started {
    async fn line(&mut self) -> Option<Line> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("a line or an end in time").unwrap().map(|line| parse(&line))
    }

    async fn exit(&mut self) -> Option<i32> {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        status.expect("it ends in time").unwrap().code()
    }
}

/// Sends back what it gets, with no limit.
async fn echo(listener: TcpListener, tasks: TaskTracker) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tasks.spawn(async move {
            let (mut from, mut to) = stream.into_split();
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
    }
}

#[tokio::test]
async fn it_reaches_what_is_allowed_and_ends_with_its_starter() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = upstream.local_addr().unwrap().port();
    let tasks = TaskTracker::new();
    tasks.spawn(echo(upstream, tasks.clone()));
    let target = format!("localhost:{port}");
    let mut broker = start(&config(&[&target], &[&target], &json!({}))).await;
    let mut caller = Caller::tunnel(&broker.socket, &target).await;
    caller.send("hello").await;
    assert_eq!(caller.exactly(5).await, b"hello");
    assert_eq!(Caller::connect(&broker.socket, "localhost:1").await, (403, "not_allowed".into()));
    let rule = format!("allows {target}");
    let host = "localhost".to_owned();
    assert_eq!(broker.line().await, Some(Line::Opened { id: 0, host: host.clone(), port, rule }));
    let rule = Some("otherwise".to_owned());
    let refused = Line::Refused { host, port: Some(1), rule, reason: Reason::NotAllowed };
    assert_eq!(broker.line().await, Some(refused));
    broker.lifeline = None;
    assert_eq!(
        broker.line().await,
        Some(Line::Closed { id: 0, up: 5, down: 5, end: End::Stopped })
    );
    assert_eq!(broker.line().await, None);
    assert_eq!(broker.exit().await, Some(0));
    assert_eq!(caller.rest().await, b"");
    assert!(tokio::net::UnixStream::connect(&broker.socket).await.is_err());
}

#[tokio::test]
async fn it_has_no_rights_and_an_empty_environment() {
    let broker = start(&config(&["a.test:443"], &[], &json!({}))).await;
    let id = broker.child.id().unwrap();
    let value = status_of(&broker.child);
    assert_eq!(value("Uid:"), "65534 65534 65534 65534");
    assert_eq!(value("Gid:"), "65534 65534 65534 65534");
    assert_eq!(value("Groups:"), "");
    assert_eq!(value("CapEff:"), "0000000000000000");
    assert_eq!(value("CapPrm:"), "0000000000000000");
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(std::fs::read(format!("/proc/{id}/environ")).unwrap(), b"");
}

/// As a service that is not root hands them down: capabilities that pass through a start.
#[tokio::test]
async fn rights_that_it_is_started_with_are_given_away_first() {
    let (_dir, program) = program();
    let caps = "-all,+sys_admin,+dac_override,+chown,+fowner,+setuid,+setgid";
    let mut handed = Command::new("setpriv");
    handed.args(["--reuid", "21003", "--regid", "21003", "--groups", "1,2", "--no-new-privs"]);
    handed.args(["--inh-caps", caps, "--ambient-caps", caps, "--bounding-set", caps, "--"]);
    handed.arg(&program);
    for mut command in [Command::new(&program), handed] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        command.arg("65533").env_clear().env("PATH", "/usr/bin:/bin").stdout(Stdio::piped());
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).kill_on_drop(true).spawn();
        let mut child = child.unwrap();
        let place = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(socket_in(&place)).unwrap();
        give(&ours, listener.as_fd(), &config(&["a.test:443"], &[], &json!({}))).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(parse(&lines.next_line().await.unwrap().unwrap()), Line::Ready {});
        let status = status_of(&child);
        assert_eq!(status("Uid:"), "65533 65533 65533 65533");
        assert_eq!(status("Gid:"), "65533 65533 65533 65533");
        assert_eq!(status("Groups:"), "");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(status(set), "0000000000000000", "{set}");
        }
    }
}

fn status_of(child: &Child) -> impl Fn(&str) -> String {
    let path = format!("/proc/{}/status", child.id().unwrap());
    let text = std::fs::read_to_string(path).unwrap();
    move |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test]
async fn it_refuses_to_run_with_rights_and_without_work() {
    let exit = |user: u32| async move {
        let (_dir, program) = program();
        let mut command = Command::new(program);
        command.env_clear().uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::piped());
        command.status().await.unwrap().code()
    };
    assert_eq!(exit(0).await, Some(3));
    assert_eq!(exit(NOBODY).await, Some(2));
}

#[tokio::test]
async fn work_without_a_listener_or_with_another_document_is_refused() {
    let (_dir, program) = program();
    for line in ["{}\n", "not a document\n", "{\"layers\":[]}\n"] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(&program);
        command.env_clear().uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
        let mut child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
        std::io::Write::write_all(&mut &ours, line.as_bytes()).unwrap();
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap();
        assert_eq!(status.unwrap().code(), Some(2), "{line}");
    }
}

#[tokio::test]
async fn when_it_is_killed_connections_fail_and_none_is_open() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("localhost:{}", upstream.local_addr().unwrap().port());
    let mut broker = start(&config(&[&target], &[&target], &json!({}))).await;
    let mut caller = Caller::tunnel(&broker.socket, &target).await;
    broker.child.start_kill().unwrap();
    assert_eq!(caller.rest().await, b"");
    assert_eq!(broker.exit().await, None);
    assert!(tokio::net::UnixStream::connect(&broker.socket).await.is_err());
    assert!(matches!(broker.line().await, Some(Line::Opened { .. })));
    assert_eq!(broker.line().await, None);
}

#[tokio::test]
async fn a_socket_is_an_identity_that_another_run_does_not_share() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("localhost:{}", upstream.local_addr().unwrap().port());
    let mut one = start(&config(&[&target], &[&target], &json!({}))).await;
    let mut other = start(&config(&["a.test:443"], &[], &json!({}))).await;
    drop(Caller::tunnel(&one.socket, &target).await);
    // Whatever it says of itself.
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\nx-forwarded-for: 127.0.0.1\r\n\
         proxy-authorization: Basic b25lOm9uZQ==\r\n\r\n"
    );
    assert_eq!(Caller::ask(&other.socket, request).await, (403, "not_allowed".to_owned()));
    assert!(matches!(one.line().await, Some(Line::Opened { .. })));
    assert!(matches!(other.line().await, Some(Line::Refused { .. })));
}

/// Runs the test `name` again inside a network and a mount namespace of its own; true inside.
fn is_inside(name: &str) -> bool {
    if std::env::var_os("EGRESS_TEST_INSIDE").is_some() {
        return true;
    }
    let output = Blocking::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("EGRESS_TEST_INSIDE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    false
}

fn run(program: &str, arguments: &[&str]) {
    let status = Blocking::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// Questions for an address of version 4, in their order, answered from a list whose last entry is repeated.
struct Names {
    asked: Arc<Mutex<Vec<String>>>,
}

fn serve_names(answers: HashMap<&'static str, Vec<Ipv4Addr>>, dir: &Path) -> Names {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        run("mount", &["--bind", path.to_str().unwrap(), &format!("/etc/{name}")]);
    };
    file("resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n");
    file("nsswitch.conf", "hosts: files dns\n");
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let asked = Arc::new(Mutex::new(Vec::<String>::new()));
    let told = asked.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let (name, end) = question(&buffer[..length]);
            let wants_v4 = buffer[end - 3] == 1;
            let mut found = None;
            if wants_v4 {
                let mut asked = told.lock().unwrap();
                let before = asked.iter().filter(|known| **known == name).count();
                found = answers
                    .get(name.as_str())
                    .and_then(|all| all.get(before).or_else(|| all.last()));
                asked.push(name);
            }
            let mut answer = buffer[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]);
            answer.extend(&buffer[12..end]);
            if let Some(address) = found {
                answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(address.octets());
            }
            socket.send_to(&answer, from).unwrap();
        }
    });
    Names { asked }
}

/// The name asked for, and where the question ends.
fn question(query: &[u8]) -> (String, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).into_owned());
        at += length + 1;
    }
    (labels.join("."), at + 5)
}

const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

fn public_address() {
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["addr", "add", "93.184.216.34/32", "dev", "lo"]);
}

#[tokio::test]
async fn a_name_that_turns_inside_after_the_first_answer_is_dialled_where_it_was_checked() {
    let name =
        "process::a_name_that_turns_inside_after_the_first_answer_is_dialled_where_it_was_checked";
    if !is_inside(name) {
        return;
    }
    public_address();
    let dir = tempfile::Builder::new().permissions(open()).tempdir().unwrap();
    let answers = HashMap::from([
        ("rebound.test", vec![PUBLIC, Ipv4Addr::LOCALHOST]),
        ("inside.test", vec![Ipv4Addr::LOCALHOST]),
        ("meta.test", vec![Ipv4Addr::new(169, 254, 169, 254)]),
    ]);
    let names = serve_names(answers, dir.path());
    let tasks = TaskTracker::new();
    tasks.spawn(echo(TcpListener::bind((PUBLIC, 8080)).await.unwrap(), tasks.clone()));
    let inside = TcpListener::bind("127.0.0.1:8080").await.unwrap();
    let allowed = ["rebound.test:8080", "inside.test:8080", "meta.test:8080"];
    let broker = start(&config(&allowed, &[], &json!({}))).await;
    let mut caller = Caller::tunnel(&broker.socket, "rebound.test:8080").await;
    caller.send("x").await;
    assert_eq!(caller.exactly(1).await, b"x");
    assert_eq!(*names.asked.lock().unwrap(), ["rebound.test"]);
    for authority in allowed {
        let answer = Caller::connect(&broker.socket, authority).await;
        assert_eq!(answer, (403, "address_not_public".to_owned()), "{authority}");
    }
    let answer = Caller::connect(&broker.socket, "unlisted.test:8080").await;
    assert_eq!(answer, (403, "not_allowed".to_owned()));
    let asked = names.asked.lock().unwrap().clone();
    assert_eq!(asked, ["rebound.test", "rebound.test", "inside.test", "meta.test"]);
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(50), inside.accept()).await;
    assert!(nobody.is_err());
}

#[tokio::test]
async fn tls_to_the_named_host_works_and_to_another_behind_it_does_not() {
    if !is_inside("process::tls_to_the_named_host_works_and_to_another_behind_it_does_not") {
        return;
    }
    public_address();
    let dir = tempfile::Builder::new().permissions(open()).tempdir().unwrap();
    serve_names(HashMap::from([("registry.test", vec![PUBLIC])]), dir.path());
    let names = ["registry.test".to_owned(), "evil.test".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone());
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind((PUBLIC, 443)).await.unwrap();
    let tasks = TaskTracker::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let served = seen.clone();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let name = stream.get_ref().1.server_name().map(str::to_owned);
            served.lock().unwrap().push(name);
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            stream.write_all(&byte).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));

    let broker = start(&config(&["registry.test:443"], &[], &json!({}))).await;
    let tunnel = Caller::tunnel(&broker.socket, "registry.test:443").await;
    let name = |text: &'static str| rustls_pki_types::ServerName::try_from(text).unwrap();
    let mut spoken = connector.connect(name("registry.test"), tunnel.stream).await.unwrap();
    spoken.write_all(b"x").await.unwrap();
    let mut byte = [0];
    spoken.read_exact(&mut byte).await.unwrap();
    assert_eq!(byte, *b"x");

    let tunnel = Caller::tunnel(&broker.socket, "registry.test:443").await;
    let fronted = connector.connect(name("evil.test"), tunnel.stream).await.unwrap_err();
    assert!(fronted.to_string().contains("UnrecognisedName"), "{fronted}");
    let mut raw = Caller::tunnel(&broker.socket, "registry.test:443").await;
    raw.send(hello("evil.test")).await;
    assert_eq!(raw.rest().await[0], 0x15);
    assert_eq!(*seen.lock().unwrap(), [Some("registry.test".to_owned())]);
}
