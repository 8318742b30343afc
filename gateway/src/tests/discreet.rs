//! Nothing that people say, and no token, is in the log, however much is logged.
use std::io::Write;
use std::sync::{Arc, Mutex};

use event::id::SessionId;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use super::mesh::{Mesh, token};
use super::wire::Raw;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn the_log_holds_no_token_prompt_answer_or_address() {
    let log = Log::default();
    let filter = tracing_subscriber::EnvFilter::new("info,gateway=trace,acp=trace,transport=trace");
    let subscriber =
        tracing_subscriber::fmt().with_writer(log.clone()).with_env_filter(filter).finish();
    // For the whole process: what the other tests log meanwhile must be as discreet.
    tracing::subscriber::set_global_default(subscriber).expect("the only one");

    let mesh = Mesh::start().await;
    let bearer = Raw::bearer("ada");
    let query = format!("GET /harness?token={} HTTP/1.1", token("ada").reveal());
    Raw::connect(&mesh).await.http(&query, std::slice::from_ref(&bearer)).await;
    let wrong = format!("Authorization: Bearer {}", token("stranger").reveal());
    Raw::connect(&mesh).await.http("GET /harness HTTP/1.1", &[wrong]).await;
    Raw::connect(&mesh).await.http("GET /secret-path HTTP/1.1", &[]).await;

    let mut raw = Raw::open(&mesh, "ada").await;
    raw.initialize(true).await;
    let session = SessionId::parse(&raw.new_session(1).await).expect("an id");
    let prompt = json!({ "sessionId": session, "content": "the secret prompt" });
    raw.text(
        &json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt })
            .to_string(),
    )
    .await;
    mesh.agent.until(|state| state.sessions[&session].run).await;
    let (permission, _) = mesh.agent.ask(session);
    while raw.json().await["params"]["event"]["type"] != "permission.requested" {}
    let answer = json!({ "sessionId": session, "permissionId": permission, "decision": "allow", "note": "the secret note" });
    raw.call(3, "permission/respond", answer).await;
    raw.text("{ the secret frame").await;
    raw.json().await;
    mesh.agent.complete(session, "the secret answer");
    raw.answer(2).await;
    raw.send(b"\x82the secret bytes").await;
    raw.message().await;

    let log = String::from_utf8(log.0.lock().expect("unpoisoned").clone()).expect("text");
    assert!(log.contains("session opened") && log.contains("ask answered"), "{log}");
    for secret in ["hns_", "the secret", "secret-path", "cargo test"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}
