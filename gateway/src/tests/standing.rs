//! Standing allows through the gateway: listed for whoever may watch, taken back by whoever may act, recorded first.
use event::Data;
use event::id::{ReceiptId, RunId, SessionId};
use proto::agent::v1 as wire;
use serde_json::{Value, json};

use super::mesh::Mesh;
use super::wire::{Raw, code};

fn grant(receipt: ReceiptId, run: RunId) -> wire::RunGrant {
    wire::RunGrant {
        receipt_id: receipt.to_string(),
        run_id: run.to_string(),
        action: "process.exec".to_owned(),
        subject: Some("x".repeat(600)),
        by: "ada".to_owned(),
        at_ms: 1_800_000_000_123,
        expires_at_ms: 1_800_000_060_000,
        uses: 2,
    }
}

struct Granted {
    ada: Raw,
    session: SessionId,
    receipt: ReceiptId,
    run: RunId,
}

async fn granted(mesh: &Mesh) -> Granted {
    let mut ada = Raw::open(mesh, "ada").await;
    ada.initialize(true).await;
    let session = SessionId::parse(&ada.new_session(1).await).expect("an id");
    let (receipt, run) = (ReceiptId::new(), RunId::new());
    mesh.agent.state().grants = vec![grant(receipt, run)];
    Granted { ada, session, receipt, run }
}

fn about(session: SessionId, receipt: impl serde::Serialize) -> Value {
    json!({ "sessionId": session, "receiptId": receipt })
}

#[tokio::test]
async fn a_viewer_may_list_and_not_revoke() {
    let mesh = Mesh::start().await;
    let Granted { session, receipt, .. } = granted(&mesh).await;
    let mut vera = Raw::open(&mesh, "vera").await;
    vera.initialize(true).await;
    let list = json!({ "sessionId": session });
    let unknown = vera.call(1, "grant/list", list.clone()).await;
    assert_eq!(code(&unknown), (-32010, "ACP_SESSION_NOT_FOUND"), "only what is attached here");
    vera.call(2, "session/attach", list.clone()).await;
    let listed = vera.call(3, "grant/list", list).await;
    assert_eq!(
        listed["result"],
        json!({ "grants": [{
            "receiptId": receipt,
            "action": "process.exec",
            "subject": "x".repeat(512),
            "by": "ada",
            "at": "2027-01-15T08:00:00.123000Z",
            "expiresAt": "2027-01-15T08:01:00.000000Z",
            "uses": 2,
        }] })
    );
    let refused = vera.call(4, "grant/revoke", about(session, receipt)).await;
    assert_eq!(code(&refused), (-32003, "ACP_FORBIDDEN"));
    assert_eq!(mesh.agent.state().revoked, []);
    assert_eq!(mesh.audit.kinds(), ["grant.issued"]);
}

#[tokio::test]
async fn without_our_extension_there_are_no_such_methods() {
    let mesh = Mesh::start().await;
    let mut ada = Raw::open(&mesh, "ada").await;
    ada.initialize(false).await;
    for method in ["grant/list", "grant/revoke"] {
        let answer = ada.call(1, method, json!({ "sessionId": SessionId::new() })).await;
        assert_eq!(code(&answer), (-32601, "ACP_METHOD_NOT_FOUND"), "{method}");
    }
}

#[tokio::test]
async fn a_revocation_is_in_the_ledger_before_agent_svc_hears_of_it() {
    let mesh = Mesh::start().await;
    let Granted { mut ada, session, receipt, run } = granted(&mesh).await;
    // Nothing is recorded of what does not stand, nor taken back of what cannot be recorded.
    for nothing in [json!(ReceiptId::new()), json!("no id")] {
        let answer = ada.call(2, "grant/revoke", about(session, nothing)).await;
        assert_eq!(answer["result"], json!({ "revoked": false }));
    }
    mesh.audit.go_down(true);
    let refused = ada.call(3, "grant/revoke", about(session, receipt)).await;
    assert_eq!(code(&refused), (-32004, "ACP_UNAVAILABLE"));
    assert_eq!(mesh.agent.state().revoked, []);
    mesh.audit.go_down(false);

    let answer = ada.call(4, "grant/revoke", about(session, receipt)).await;
    assert_eq!(answer["result"], json!({ "revoked": true }));
    assert_eq!(mesh.audit.kinds(), ["grant.issued", "receipt.revoked"]);
    assert_eq!(mesh.agent.state().revoked, [(receipt.to_string(), 2)], "two entries by then");
    let entries = mesh.audit.entries();
    let Data::ReceiptRevoked(recorded) = &entries[1].1.data else { panic!("{entries:?}") };
    let by = "ada".to_owned();
    let expected =
        event::ReceiptRevoked { receipt_id: receipt, session_id: session, run_id: run, by };
    assert_eq!(*recorded, expected);
    let again = ada.call(5, "grant/revoke", about(session, receipt)).await;
    assert_eq!(again["result"], json!({ "revoked": false }), "it stands no more");
}

#[tokio::test]
async fn a_revocation_that_the_executor_does_not_know_yet_says_so() {
    let mesh = Mesh::start().await;
    let Granted { mut ada, session, receipt, .. } = granted(&mesh).await;
    mesh.agent.state().pending = true;
    let answer = ada.call(2, "grant/revoke", about(session, receipt)).await;
    assert_eq!(answer["result"], json!({ "revoked": true, "pending": true }));
}
