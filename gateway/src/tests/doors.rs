//! Who does not come in.
use serde_json::json;

use super::mesh::{Mesh, token, write_tokens};
use super::wire::{Got, Raw};
use crate::Limits;

async fn get(mesh: &Mesh, path: &str, headers: &[String]) -> (u16, String) {
    Raw::connect(mesh).await.http(&format!("GET {path} HTTP/1.1"), headers).await
}

fn with(header: &str) -> Vec<String> {
    let mut headers = Raw::upgrade();
    headers.push(header.to_owned());
    headers
}

fn code(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    body["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn without_a_good_token_nobody_comes_in() {
    let mesh = Mesh::start().await;
    let mut forged = token("ada").reveal().to_owned();
    forged.replace_range(20..21, if &forged[20..21] == "x" { "y" } else { "x" });
    for headers in [
        Raw::upgrade(),
        with("Authorization: Bearer nonsense"),
        with(&format!("Authorization: Bearer {forged}")),
        with(&Raw::bearer("stranger")),
        with(&Raw::bearer("late")),
        with(&format!("Authorization: Basic {}", token("ada").reveal())),
        with(&format!("Cookie: token={}", token("ada").reveal())),
    ] {
        let (status, body) = get(&mesh, "/harness", &headers).await;
        assert_eq!((status, code(&body).as_str()), (401, "UNAUTHENTICATED"), "{headers:?}");
    }
    Raw::open(&mesh, "ada").await;
}

#[tokio::test]
async fn a_secret_in_the_address_is_refused_even_beside_a_good_token() {
    let mesh = Mesh::start().await;
    for query in
        ["token=x", "a=1&access_token=x", "Ticket=", "key", "auth=x", "%74oken=x", "a;token=x"]
    {
        for path in ["/harness", "/health", "/elsewhere"] {
            let (status, body) =
                get(&mesh, &format!("{path}?{query}"), &with(&Raw::bearer("ada"))).await;
            assert_eq!(
                (status, code(&body).as_str()),
                (400, "CREDENTIAL_IN_URL"),
                "{path}?{query}"
            );
            assert!(!body.contains(query), "{body}");
        }
    }
}

#[tokio::test]
async fn a_web_page_comes_in_only_from_a_listed_origin() {
    let mesh = Mesh::start().await;
    for origin in [
        "https://evil.example",
        "null",
        "https://console.example.evil",
        "http://console.example",
        "",
    ] {
        let mut headers = with(&Raw::bearer("ada"));
        headers.push(format!("Origin: {origin}"));
        let (status, body) = get(&mesh, "/harness", &headers).await;
        assert_eq!((status, code(&body).as_str()), (403, "ORIGIN_NOT_ALLOWED"), "{origin}");
    }
    let mut both = with(&Raw::bearer("ada"));
    both.extend([
        "Origin: https://console.example".to_owned(),
        "Origin: https://evil.example".to_owned(),
    ]);
    assert_eq!(get(&mesh, "/harness", &both).await.0, 403);
    both.pop();
    assert_eq!(get(&mesh, "/harness", &both).await.0, 101);
}

#[tokio::test]
async fn other_paths_and_methods_are_not_there() {
    let mesh = Mesh::start().await;
    for line in [
        "GET / HTTP/1.1",
        "GET /acp HTTP/1.1",
        "GET /harness/ HTTP/1.1",
        "GET //harness HTTP/1.1",
        "POST /harness HTTP/1.1",
        "DELETE /health HTTP/1.1",
    ] {
        let (status, body) = Raw::connect(&mesh).await.http(line, &with(&Raw::bearer("ada"))).await;
        assert_eq!((status, code(&body).as_str()), (404, "NOT_FOUND"), "{line}");
    }
}

#[tokio::test]
async fn only_a_websocket_handshake_is_upgraded() {
    let mesh = Mesh::start().await;
    for leave_out in 0..4 {
        let mut headers = with(&Raw::bearer("ada"));
        headers.remove(leave_out);
        let (status, body) = get(&mesh, "/harness", &headers).await;
        assert_eq!((status, code(&body).as_str()), (426, "UPGRADE_REQUIRED"), "{headers:?}");
    }
    for (from, to) in [("Version: 13", "Version: 8"), ("AAAAAAAAAAAAAAAAAAAAAA==", "AAAA")] {
        let headers: Vec<String> =
            with(&Raw::bearer("ada")).iter().map(|header| header.replace(from, to)).collect();
        assert_eq!(get(&mesh, "/harness", &headers).await.0, 426, "{to}");
    }
}

#[tokio::test]
async fn health_tells_whether_the_gateway_can_work() {
    let mesh = Mesh::start().await;
    let (status, body) = get(&mesh, "/health", &[]).await;
    let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, body), (200, json!({ "service": "gateway", "ready": true })));
}

#[tokio::test]
async fn a_socket_does_not_outlive_its_token() {
    let limits = Limits { keepalive: std::time::Duration::from_millis(50), ..Limits::default() };
    let mesh = Mesh::start_within(limits).await;
    let mut raw = Raw::open(&mesh, "ada").await;
    write_tokens(mesh.dir.path(), "ada");
    assert_eq!(raw.message().await, Got::Close(Some(4401)));
    assert_eq!(get(&mesh, "/harness", &with(&Raw::bearer("ada"))).await.0, 401);
}

#[tokio::test]
async fn silent_connections_hold_nobody_up() {
    let mesh = Mesh::start().await;
    let mut silent = Vec::new();
    for _ in 0..256 {
        silent.push(tokio::net::TcpStream::connect(mesh.addr).await.expect("connects"));
    }
    // Others have shaken hands and say no more.
    let mut shaken = Vec::new();
    for _ in 0..8 {
        shaken.push(Raw::connect(&mesh).await);
    }
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(true).await;
    for stream in &silent {
        let open = stream.try_read(&mut [0]).expect_err("neither cut nor spoken to");
        assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
    }
}
