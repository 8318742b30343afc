//! A broker in this process, with names and connections of the tests' own: decisions, first bytes, limits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use egress::{Broker, End, Line, Reason, World};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caller::{Caller, PATIENCE, config, outcome, parse, socket_in};
use crate::hellos::hello;

/// Names with one answer after another, and one upstream behind every address.
struct Stage {
    names: HashMap<&'static str, Vec<&'static [&'static str]>>,
    asked: Arc<Mutex<Vec<String>>>,
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    upstream: Option<SocketAddr>,
}

impl World for Stage {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let answers = self.names.get(host).ok_or(io::ErrorKind::NotFound)?;
        let before = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(host.to_owned());
            asked.iter().filter(|name| *name == host).count() - 1
        };
        let answer = answers.get(before).or_else(|| answers.last()).unwrap();
        Ok(answer.iter().map(|text| text.parse().unwrap()).collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address);
        TcpStream::connect(self.upstream.ok_or(io::ErrorKind::ConnectionRefused)?).await
    }
}

struct Played {
    socket: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    lines: tokio::io::Lines<BufReader<tokio::io::DuplexStream>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    _dir: tempfile::TempDir,
}

const PUBLIC: &[&str] = &["93.184.216.34"];

/// A broker that allows a few names, and an upstream that sends back what it gets.
async fn play(limits: Value) -> Played {
    play_with(limits, true).await
}

async fn play_with(limits: Value, answers: bool) -> Played {
    let dir = tempfile::tempdir().unwrap();
    let socket = socket_in(&dir);
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = upstream.local_addr().unwrap();
    let (asked, dialled) = (Arc::default(), Arc::default());
    let names: [(&'static str, Vec<&'static [&'static str]>); 8] = [
        ("registry.test", vec![PUBLIC]),
        ("a.pkg.test", vec![PUBLIC]),
        ("rebound.test", vec![PUBLIC, &["127.0.0.1"]]),
        ("inside.test", vec![&["127.0.0.1"]]),
        ("corp.test", vec![&["10.1.2.3"]]),
        ("meta.test", vec![&["169.254.169.254"]]),
        ("mixed.test", vec![&["93.184.216.34", "10.0.0.5"]]),
        ("mapped.test", vec![&["::ffff:127.0.0.1"]]),
    ];
    let stage = Stage {
        names: HashMap::from(names),
        asked: Arc::clone(&asked),
        dialled: Arc::clone(&dialled),
        upstream: answers.then_some(address),
    };
    let allowed = [
        "registry.test:443",
        "registry.test:8080",
        "*.pkg.test:443",
        "rebound.test:8080",
        "inside.test:8080",
        "corp.test:8080",
        "meta.test:8080",
        "mixed.test:8080",
        "mapped.test:8080",
        "unknown.test:443",
    ];
    let config = config(&allowed, &["corp.test:8080", "meta.test:8080"], &limits);
    let (ours, ears) = tokio::io::duplex(1 << 16);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let broker = Broker::new(&config, stage, ears, stop.clone());
    tasks.spawn(broker.run(UnixListener::bind(&socket).unwrap()));
    tasks.spawn(echo(upstream, stop.clone()));
    let lines = BufReader::new(ours).lines();
    let mut played = Played { socket, asked, dialled, lines, stop, tasks, _dir: dir };
    assert_eq!(played.line().await, Line::Ready {});
    played
}

async fn echo(listener: TcpListener, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            () = stop.cancelled() => return,
        };
        tasks.spawn(async move {
            let (mut from, mut to) = accepted.into_split();
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
    }
}

impl Played {
    async fn line(&mut self) -> Line {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        parse(&line.expect("a line in time").unwrap().expect("a line"))
    }

    async fn refused(&mut self) -> (String, Option<u16>, Option<String>, Reason) {
        match self.line().await {
            Line::Refused { host, port, rule, reason } => (host, port, rule, reason),
            other => panic!("{other:?}"),
        }
    }

    async fn closed(&mut self) -> (u64, u64, End) {
        match self.line().await {
            Line::Closed { up, down, end, .. } => (up, down, end),
            other => panic!("{other:?}"),
        }
    }

    async fn opened(&mut self) -> String {
        match self.line().await {
            Line::Opened { host, port, rule, .. } => format!("{host}:{port} {rule}"),
            other => panic!("{other:?}"),
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.expect("it drains");
    }
}

#[tokio::test]
async fn other_methods_than_connect_are_refused() {
    let mut played = play(json!({})).await;
    let plain = "GET http://registry.test:8080/ HTTP/1.1\r\nhost: registry.test\r\n\r\n";
    let answer = Caller::ask(&played.socket, plain).await;
    assert_eq!(answer, (405, "method_not_allowed".to_owned()));
    assert_eq!(played.refused().await, (String::new(), None, None, Reason::MethodNotAllowed));
    played.end().await;
}

#[tokio::test]
async fn look_alikes_wrong_ports_and_addresses_are_denied_with_their_reason() {
    let mut played = play(json!({})).await;
    for (authority, reason) in [
        ("evil.test:443", Reason::NotAllowed),
        ("registry.test.evil.test:443", Reason::NotAllowed),
        ("registry.test:22", Reason::NotAllowed),
        ("pkg.test:443", Reason::NotAllowed),
        ("evilpkg.test:443", Reason::NotAllowed),
        ("a.registry.test:443", Reason::NotAllowed),
        ("10.0.0.5:443", Reason::AddressLiteral),
        ("127.1:8080", Reason::AddressLiteral),
        ("2130706433:8080", Reason::AddressLiteral),
        ("[::ffff:127.0.0.1]:8080", Reason::AddressLiteral),
        ("169.254.169.254:80", Reason::AddressLiteral),
        ("user@registry.test:443", Reason::BadHost),
        ("registry.test%00.evil.test:443", Reason::BadHost),
        ("r\u{435}gistry.test:443", Reason::BadHost),
        ("registry.test", Reason::BadHost),
    ] {
        let (status, word) = Caller::connect(&played.socket, authority).await;
        assert_eq!((status, word.as_str()), (403, reason.as_str()), "{authority}");
        let (host, _, _, told) = played.refused().await;
        assert_eq!(told, reason, "{authority}");
        assert!(host.is_ascii());
    }
    assert_eq!(*played.asked.lock().unwrap(), Vec::<String>::new());
    assert_eq!(*played.dialled.lock().unwrap(), []);
    played.end().await;
}

#[tokio::test]
async fn a_denial_says_in_one_sentence_that_trying_again_is_no_use() {
    let played = play(json!({})).await;
    let mut caller = Caller::new(&played.socket).await;
    caller.send("CONNECT evil.test:443 HTTP/1.1\r\n\r\n").await;
    let answer = String::from_utf8(caller.rest().await).unwrap();
    assert_eq!(outcome(&answer), (403, "not_allowed".to_owned()));
    assert!(answer.contains("denied by policy, do not retry"), "{answer}");
    played.end().await;
}

#[tokio::test]
async fn a_name_that_leads_inside_is_denied_unless_the_administrator_lists_it() {
    let mut played = play(json!({})).await;
    for host in ["inside.test", "meta.test", "mixed.test", "mapped.test"] {
        let (status, word) = Caller::connect(&played.socket, &format!("{host}:8080")).await;
        assert_eq!((status, word.as_str()), (403, "address_not_public"), "{host}");
        let refused = played.refused().await;
        let rule = Some(format!("allows {host}:8080"));
        assert_eq!(refused, (host.to_owned(), Some(8080), rule, Reason::AddressNotPublic));
    }
    assert_eq!(*played.dialled.lock().unwrap(), []);
    drop(Caller::tunnel(&played.socket, "corp.test:8080").await);
    assert_eq!(*played.dialled.lock().unwrap(), ["10.1.2.3:8080".parse().unwrap()]);
    played.end().await;
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_dialled() {
    let mut played = play(json!({})).await;
    let mut caller = Caller::tunnel(&played.socket, "rebound.test:8080").await;
    caller.send("x").await;
    assert_eq!(caller.exactly(1).await, b"x");
    assert_eq!(*played.asked.lock().unwrap(), ["rebound.test"]);
    assert_eq!(*played.dialled.lock().unwrap(), ["93.184.216.34:8080".parse().unwrap()]);
    drop(caller);
    assert_eq!(played.opened().await, "rebound.test:8080 allows rebound.test:8080");
    assert_eq!(played.closed().await, (1, 1, End::Done));
    let (status, word) = Caller::connect(&played.socket, "rebound.test:8080").await;
    assert_eq!((status, word.as_str()), (403, "address_not_public"));
    played.end().await;
}

#[tokio::test]
async fn a_name_without_an_address_is_told_apart_from_one_that_is_denied() {
    let mut played = play(json!({})).await;
    let answer = Caller::connect(&played.socket, "unknown.test:443").await;
    assert_eq!(answer, (502, "unresolvable".to_owned()));
    assert_eq!(played.refused().await.3, Reason::Unresolvable);
    played.end().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_told_and_counted() {
    let mut played = play_with(json!({}), false).await;
    let answer = Caller::connect(&played.socket, "registry.test:443").await;
    assert_eq!(answer, (502, "connect_failed".to_owned()));
    assert_eq!(played.opened().await, "registry.test:443 allows registry.test:443");
    assert_eq!(played.closed().await, (0, 0, End::ConnectFailed));
    played.end().await;
}

#[tokio::test]
async fn on_443_a_hello_for_the_host_goes_through_unchanged() {
    let mut played = play(json!({})).await;
    let bytes = hello("registry.test");
    // With the head in one piece, as an eager client would.
    let mut caller = Caller::new(&played.socket).await;
    let head = b"CONNECT Registry.Test.:443 HTTP/1.1\r\n\r\n".to_vec();
    caller.send([head, bytes.clone()].concat()).await;
    assert_eq!(outcome(&caller.head().await), (200, String::new()));
    assert_eq!(caller.exactly(bytes.len()).await, bytes);
    drop(caller);
    assert_eq!(played.opened().await, "registry.test:443 allows registry.test:443");
    let count = bytes.len() as u64;
    assert_eq!(played.closed().await, (count, count, End::Done));
    played.end().await;
}

#[tokio::test]
async fn on_443_another_name_another_protocol_and_a_second_connect_reach_nobody() {
    let mut played = play(json!({ "hello_ms": 300 })).await;
    let nested = b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n".to_vec();
    for (bytes, end) in [
        (hello("evil.test"), End::ServerNameOther),
        (hello("93.184.216.34"), End::ServerNameMissing),
        (nested, End::NotTls),
        (b"SSH-2.0-client\r\n".to_vec(), End::NotTls),
        // It never says anything.
        (Vec::new(), End::NotTls),
    ] {
        let mut caller = Caller::tunnel(&played.socket, "registry.test:443").await;
        caller.send(&bytes).await;
        // An alert of TLS, and not a byte of the upstream.
        assert_eq!(caller.rest().await, [0x15, 3, 3, 0, 2, 2, 112]);
        played.opened().await;
        assert_eq!(played.closed().await, (0, 0, end));
        assert!(end.is_denial());
    }
    played.end().await;
}

#[tokio::test]
async fn a_relay_inside_reaches_no_more_than_its_user() {
    let mut played = play(json!({})).await;
    let dir = tempfile::tempdir().unwrap();
    let relay = UnixListener::bind(socket_in(&dir)).unwrap();
    let to = played.socket.clone();
    let tasks = TaskTracker::new();
    tasks.spawn(async move {
        let (mut client, _) = relay.accept().await.unwrap();
        let mut broker = tokio::net::UnixStream::connect(to).await.unwrap();
        drop(tokio::io::copy_bidirectional(&mut client, &mut broker).await);
    });
    let answer = Caller::connect(&socket_in(&dir), "evil.test:443").await;
    assert_eq!(answer, (403, "not_allowed".to_owned()));
    assert_eq!(played.refused().await.0, "evil.test");
    played.end().await;
}

#[tokio::test]
async fn a_head_that_trickles_is_given_up() {
    let mut played = play(json!({ "head_ms": 300 })).await;
    let mut caller = Caller::new(&played.socket).await;
    caller.send("CONNECT registry.test:8080 HT").await;
    let answer = String::from_utf8(caller.rest().await).unwrap();
    assert_eq!(outcome(&answer), (408, "request_timeout".to_owned()));
    assert_eq!(played.refused().await.3, Reason::RequestTimeout);
    let long = format!("CONNECT registry.test:8080 HTTP/1.1\r\nx: {}", "y".repeat(9000));
    assert_eq!(Caller::ask(&played.socket, long).await, (400, "malformed_request".to_owned()));
    played.end().await;
}

#[tokio::test]
async fn uploads_and_downloads_end_at_their_limits_over_all_connections() {
    let mut played = play(json!({ "upload_bytes": 100, "download_bytes": 150 })).await;
    let mut first = Caller::tunnel(&played.socket, "registry.test:8080").await;
    first.send([7; 80]).await;
    assert_eq!(first.exactly(80).await, [7; 80]);
    drop(first);
    played.opened().await;
    assert_eq!(played.closed().await, (80, 80, End::Done));
    let mut second = Caller::tunnel(&played.socket, "registry.test:8080").await;
    second.send([7; 30]).await;
    assert_eq!(second.rest().await, b"");
    played.opened().await;
    assert_eq!(played.closed().await, (0, 0, End::UploadLimit));
    played.end().await;
    let mut played = play(json!({ "download_bytes": 10 })).await;
    let mut caller = Caller::tunnel(&played.socket, "registry.test:8080").await;
    caller.send([7; 11]).await;
    assert_eq!(caller.rest().await, b"");
    played.opened().await;
    assert_eq!(played.closed().await, (11, 0, End::DownloadLimit));
    played.end().await;
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let mut played = play(json!({ "idle_ms": 300 })).await;
    let mut caller = Caller::tunnel(&played.socket, "registry.test:8080").await;
    assert_eq!(caller.rest().await, b"");
    played.opened().await;
    assert_eq!(played.closed().await, (0, 0, End::Idle));
    played.end().await;
}

#[tokio::test]
async fn too_many_connections_and_requests_are_refused() {
    let mut played = play(json!({ "connections": 1, "requests": 3 })).await;
    let held = Caller::tunnel(&played.socket, "registry.test:8080").await;
    let answer = Caller::connect(&played.socket, "registry.test:8080").await;
    assert_eq!(answer, (403, "too_many_connections".to_owned()));
    played.opened().await;
    assert_eq!(played.refused().await.3, Reason::TooManyConnections);
    drop(held);
    assert_eq!(played.closed().await, (0, 0, End::Done));
    assert_eq!(Caller::connect(&played.socket, "evil.test:443").await.1, "not_allowed");
    assert_eq!(played.refused().await.3, Reason::NotAllowed);
    for authority in ["evil.test:443", "registry.test:8080"] {
        let answer = Caller::connect(&played.socket, authority).await;
        assert_eq!(answer, (403, "too_many_requests".to_owned()));
    }
    played.stop.cancel();
    assert!(matches!(played.line().await, Line::Untold { requests: 2.. }));
}

#[tokio::test]
async fn a_stop_closes_what_is_open_and_says_so() {
    let mut played = play(json!({})).await;
    let mut caller = Caller::tunnel(&played.socket, "registry.test:8080").await;
    caller.send("abc").await;
    assert_eq!(caller.exactly(3).await, b"abc");
    played.opened().await;
    played.stop.cancel();
    assert_eq!(caller.rest().await, b"");
    assert_eq!(played.closed().await, (3, 3, End::Stopped));
    played.end().await;
}

#[tokio::test]
async fn nothing_is_connected_to_when_nobody_hears_the_decision() {
    let Played { socket, dialled, lines, stop, tasks, _dir, .. } = play(json!({})).await;
    drop(lines);
    let mut caller = Caller::new(&socket).await;
    caller.send("CONNECT registry.test:8080 HTTP/1.1\r\n\r\n").await;
    assert_eq!(caller.rest().await, b"");
    assert_eq!(*dialled.lock().unwrap(), []);
    // And it does not go on.
    tokio::time::timeout(PATIENCE, stop.cancelled()).await.unwrap();
    tasks.close();
}

#[tokio::test]
async fn half_of_a_tunnel_may_end_before_the_other() {
    let mut played = play(json!({})).await;
    let mut caller = Caller::tunnel(&played.socket, "registry.test:8080").await;
    caller.send("abc").await;
    caller.stream.shutdown().await.unwrap();
    let mut answer = String::new();
    caller.stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "abc");
    played.opened().await;
    assert_eq!(played.closed().await, (3, 3, End::Done));
    played.end().await;
}
