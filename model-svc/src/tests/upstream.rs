//! A provider on loopback: it counts requests and answers with whatever bytes a test says, also none.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use transport::TaskTracker;

use super::rig::within;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Request line and headers, as they came.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What the provider does with every request.
#[derive(Debug, Clone)]
pub(super) enum Does {
    /// Sends these bytes and keeps the connection.
    Sends(Vec<u8>),
    /// Sends these bytes and closes the connection.
    SendsAndCloses(Vec<u8>),
    /// Waits until it is told otherwise.
    Hangs,
}

#[derive(Debug, Clone)]
pub(super) struct Upstream {
    pub(super) addr: SocketAddr,
    does: watch::Sender<Does>,
    seen: watch::Sender<Vec<Seen>>,
    /// Connections whose client has gone.
    left: watch::Sender<usize>,
}

impl Upstream {
    pub(super) async fn serve(tracker: &TaskTracker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Self {
            addr: listener.local_addr().unwrap(),
            does: watch::Sender::new(Does::Hangs),
            seen: watch::Sender::new(Vec::new()),
            left: watch::Sender::new(0),
        };
        let serving = upstream.clone();
        let connections = tracker.clone();
        tracker.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let each = serving.clone();
                connections.spawn(async move { each.connection(stream).await });
            }
        });
        upstream
    }

    pub(super) fn does(&self, does: Does) {
        self.does.send_replace(does);
    }

    /// A whole answer with a status of 200.
    pub(super) fn answers(&self, body: &str) {
        self.does(Does::Sends(response("200 OK", &[("content-type", "application/json")], body)));
    }

    pub(super) fn fails(&self, status: &str, headers: &[(&str, &str)], body: &str) {
        self.does(Does::Sends(response(status, headers, body)));
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(super) async fn once_seen(&self, count: usize) -> Vec<Seen> {
        within(self.seen.subscribe().wait_for(|seen| seen.len() >= count)).await.unwrap().clone()
    }

    pub(super) async fn once_left(&self, count: usize) {
        within(self.left.subscribe().wait_for(|left| *left >= count)).await.unwrap();
    }

    async fn connection(&self, mut stream: TcpStream) {
        while let Some(seen) = read(&mut stream).await {
            self.seen.send_modify(|all| all.push(seen));
            let mut does = self.does.subscribe();
            let told = does.wait_for(|does| !matches!(does, Does::Hangs));
            let does = tokio::select! {
                told = told => told.unwrap().clone(),
                () = gone(&mut stream) => break,
            };
            match does {
                Does::Sends(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                Does::SendsAndCloses(bytes) => {
                    stream.write_all(&bytes).await.unwrap();
                    return;
                }
                Does::Hangs => unreachable!("it was waited for"),
            }
        }
        self.left.send_modify(|left| *left += 1);
    }
}

/// Returns when the client, which has nothing more to say, is gone.
async fn gone(stream: &mut TcpStream) {
    let mut byte = [0];
    assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)), "a second request");
}

/// One request, or nothing when the client is gone.
async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let seen = Seen { head, body: bytes[end + 4..].to_vec() };
            let length: usize = seen.header("content-length").unwrap_or("0").parse().unwrap();
            if seen.body.len() >= length {
                return Some(seen);
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

pub(super) fn response(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}
