//! A caller of a broker, and what the tests configure one with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use egress::{Config, Line};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Allows these, with short limits.
pub(crate) fn config(allowed: &[&str], private: &[&str], limits: &Value) -> Config {
    let rules: Vec<_> = allowed
        .iter()
        .map(
            |hosts| json!({ "hosts": hosts, "effect": "allow", "rule": format!("allows {hosts}") }),
        )
        .collect();
    let mut all = super::rules::limits();
    for (name, value) in limits.as_object().unwrap() {
        all[name] = value.clone();
    }
    let otherwise = json!({ "effect": "deny", "rule": "otherwise" });
    let document = json!({
        "layers": [{ "never": [], "rules": rules, "otherwise": otherwise }],
        "private": private,
        "limits": all,
    });
    Config::parse(document.to_string().as_bytes()).unwrap()
}

pub(crate) struct Caller {
    pub(crate) stream: UnixStream,
}

impl Caller {
    pub(crate) async fn new(socket: &Path) -> Self {
        Self { stream: UnixStream::connect(socket).await.unwrap() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The head of an answer.
    pub(crate) async fn head(&mut self) -> String {
        let read = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match self.stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            String::from_utf8(head).unwrap()
        };
        tokio::time::timeout(PATIENCE, read).await.expect("an answer in time")
    }

    /// What comes until the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut bytes));
        // A connection that is reset has ended too.
        drop(read.await.expect("an end in time"));
        bytes
    }

    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = tokio::time::timeout(PATIENCE, self.stream.read_exact(&mut bytes));
        read.await.expect("bytes in time").unwrap();
        bytes
    }

    /// Status and reason of one request.
    pub(crate) async fn ask(socket: &Path, request: impl AsRef<[u8]>) -> (u16, String) {
        let mut caller = Self::new(socket).await;
        caller.send(request).await;
        let head = caller.head().await;
        outcome(&head)
    }

    pub(crate) async fn connect(socket: &Path, authority: &str) -> (u16, String) {
        Self::ask(socket, format!("CONNECT {authority} HTTP/1.1\r\n\r\n")).await
    }

    /// A tunnel that is open.
    pub(crate) async fn tunnel(socket: &Path, authority: &str) -> Self {
        let mut caller = Self::new(socket).await;
        caller.send(format!("CONNECT {authority} HTTP/1.1\r\n\r\n")).await;
        assert_eq!(outcome(&caller.head().await), (200, String::new()));
        caller
    }
}

pub(crate) fn outcome(head: &str) -> (u16, String) {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let reason = head.lines().find_map(|line| line.strip_prefix("x-proxy-error: "));
    (status, reason.unwrap_or_default().to_owned())
}

pub(crate) fn socket_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("s")
}

/// A line without what differs from run to run.
pub(crate) fn parse(line: &str) -> Line {
    serde_json::from_str(line).unwrap()
}
