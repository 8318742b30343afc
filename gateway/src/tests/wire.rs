//! A client without manners: it writes any bytes, and reads what really comes back.
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::mesh::{Mesh, token};
use super::within;

pub(crate) struct Raw(pub(crate) TlsStream<TcpStream>);

/// What a server frame holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Text(String),
    Ping,
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// The end of the stream.
    End,
}

impl Raw {
    pub(crate) async fn connect(mesh: &Mesh) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(
                CertificateDer::from_pem_slice(mesh.pki.services.cert_pem().as_bytes())
                    .expect("PEM"),
            )
            .expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Little room, so that a client which does not read is noticed after few events.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(16 * 1024).expect("set");
        let tcp = socket.connect(mesh.addr).await.expect("connects");
        let name = ServerName::try_from("localhost").expect("a name");
        Self(TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("handshake"))
    }

    /// Sends a request with these header lines and returns status and body.
    pub(crate) async fn http(mut self, line: &str, headers: &[String]) -> (u16, String) {
        self.head(line, headers).await;
        let head = self.response_head().await;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let length = head.lines().find_map(|line| {
            line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned)
        });
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        within(self.0.read_exact(&mut body)).await.expect("a body");
        (status, String::from_utf8(body).expect("text"))
    }

    async fn head(&mut self, line: &str, headers: &[String]) {
        let mut text = format!("{line}\r\nHost: localhost\r\n");
        for header in headers {
            text += header;
            text += "\r\n";
        }
        self.0.write_all(format!("{text}\r\n").as_bytes()).await.expect("sent");
    }

    async fn response_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.0.read_u8()).await.expect("a byte"));
        }
        String::from_utf8(head).expect("text")
    }

    pub(crate) fn upgrade() -> Vec<String> {
        let upgrade = "Connection: Upgrade|Upgrade: websocket|Sec-WebSocket-Version: 13|Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
        upgrade.split('|').map(str::to_owned).collect()
    }

    pub(crate) fn bearer(name: &str) -> String {
        format!("Authorization: Bearer {}", token(name).reveal())
    }

    /// An open WebSocket.
    pub(crate) async fn open(mesh: &Mesh, name: &str) -> Self {
        let mut raw = Self::connect(mesh).await;
        let mut headers = Self::upgrade();
        headers.push(Self::bearer(name));
        raw.head("GET /harness HTTP/1.1", &headers).await;
        let head = raw.response_head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(
            head.to_lowercase().contains("sec-websocket-accept: icx+yqv66kxgm0fcwalwlflwtai="),
            "{head}"
        );
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("sent");
        self.0.flush().await.expect("sent");
    }

    pub(crate) async fn text(&mut self, text: &str) {
        self.send(&frame(0x81, text.as_bytes())).await;
    }

    pub(crate) async fn next(&mut self) -> Got {
        within(async {
            let Ok(first) = self.0.read_u8().await else { return Got::End };
            let second = self.0.read_u8().await.expect("a length");
            let length = match second {
                126 => u64::from(self.0.read_u16().await.expect("a length")),
                127 => self.0.read_u64().await.expect("a length"),
                length => u64::from(length),
            };
            let mut payload = vec![0; usize::try_from(length).expect("fits")];
            self.0.read_exact(&mut payload).await.expect("a payload");
            match first {
                0x81 => Got::Text(String::from_utf8(payload).expect("text")),
                0x88 if payload.is_empty() => Got::Close(None),
                0x88 => Got::Close(Some(u16::from_be_bytes([payload[0], payload[1]]))),
                0x89 => Got::Ping,
                0x8A => Got::Pong(payload),
                other => panic!("an odd frame {other:02x}"),
            }
        })
        .await
    }

    /// The next message that is no keepalive.
    pub(crate) async fn message(&mut self) -> Got {
        loop {
            match self.next().await {
                Got::Ping => {}
                got => return got,
            }
        }
    }

    pub(crate) async fn json(&mut self) -> Value {
        match self.message().await {
            Got::Text(text) => serde_json::from_str(&text).expect("JSON"),
            got => panic!("{got:?}"),
        }
    }

    /// Calls a method and returns its answer; events in between are kept out of it.
    pub(crate) async fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.text(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        )
        .await;
        self.answer(id).await
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.json().await;
            if message["id"] == id {
                return message;
            }
            assert_eq!(message["method"], "session/event", "{message}");
        }
    }

    pub(crate) async fn initialize(&mut self, sessions: bool) {
        let capabilities =
            json!({ "streaming": true, "permissioning": true, "sessions": sessions });
        let params = json!({ "protocolVersion": "harness/acp/1", "clientName": "raw", "capabilities": capabilities });
        let answer = self.call(0, "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "harness/acp/1", "{answer}");
    }

    pub(crate) async fn new_session(&mut self, id: u64) -> String {
        let answer = self.call(id, "session/new", json!({ "workspace": "demo" })).await;
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

/// A frame as a client must send it; `first` is the first byte of its header.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | u8::try_from(length).expect("small")),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(length).expect("small").to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    let mask = [9, 8, 7, 6];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// Number and symbol of an error.
pub(crate) fn code(answer: &Value) -> (i64, &str) {
    let error = &answer["error"];
    let number = error["code"].as_i64().unwrap_or_else(|| panic!("{answer}"));
    (number, error["data"]["code"].as_str().expect("a symbol"))
}
