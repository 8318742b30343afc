//! Reading back: by page, by stream, with proofs, as evidence.

use event::id::SessionId;
use ledger::{Hash, verify_bundle, verify_inclusion};
use proto::audit::v1::{
    ExportRequest, ProveRequest, ProveResponse, QueryRequest, ReadStreamRequest, prove_request::Key,
};
use transport::{Code, Fault, Service};

use crate::fixture::{Client, Ledger, TENANT, append, collect, entry, finished, note};

/// Two sessions, `entries` of agent-svc in the first and some of others.
async fn filled(entries: u64) -> (Ledger, SessionId) {
    let ledger = Ledger::start().await;
    let (session, other) = (SessionId::new(), SessionId::new());
    let (agent, sandbox) = (ledger.client(Service::AgentSvc), ledger.client(Service::SandboxSvc));
    append(&agent, vec![entry(other, 0, &note("other"))]).await.unwrap();
    for start in (0..entries).step_by(200) {
        let batch =
            (start..entries.min(start + 200)).map(|seq| entry(session, seq, &note("a"))).collect();
        append(&agent, batch).await.unwrap();
        append(&sandbox, vec![entry(session, start / 200, &finished())]).await.unwrap();
    }
    append(&agent, vec![entry(other, 1, &note("other"))]).await.unwrap();
    (ledger, session)
}

async fn queried(client: &Client, query: QueryRequest) -> Vec<u64> {
    let stored = collect(client.clone().query(query).await.unwrap().into_inner()).await;
    stored.iter().map(|stored| stored.log_index).collect()
}

#[tokio::test]
async fn a_session_is_read_page_by_page() {
    let (ledger, session) = filled(150).await;
    let auditor = ledger.auditor();
    let page = |after, limit| QueryRequest {
        session_id: session.to_string(),
        after_log_index: after,
        limit,
        ..QueryRequest::default()
    };
    assert_eq!(queried(&auditor, page(None, 100)).await, (1..101).collect::<Vec<_>>());
    assert_eq!(queried(&auditor, page(Some(100), 100)).await, (101..152).collect::<Vec<_>>());
    assert_eq!(queried(&auditor, page(Some(151), 0)).await, Vec::<u64>::new());
    assert_eq!(queried(&auditor, page(None, 0)).await.len(), 151);

    let by = |query: QueryRequest| QueryRequest { session_id: session.to_string(), ..query };
    let writer = by(QueryRequest { writer: "sandbox-svc".to_owned(), ..QueryRequest::default() });
    assert_eq!(queried(&auditor, writer).await, [151]);
    let kind = by(QueryRequest { r#type: "call.finished".to_owned(), ..QueryRequest::default() });
    assert_eq!(queried(&auditor, kind).await, [151]);
    let tenant = by(QueryRequest { tenant: "t-2".to_owned(), ..QueryRequest::default() });
    assert_eq!(queried(&auditor, tenant).await, Vec::<u64>::new());

    let wrong = QueryRequest { writer: "nobody".to_owned(), ..QueryRequest::default() };
    let fault = Fault::from(auditor.clone().query(wrong).await.unwrap_err());
    assert_eq!((fault.code, fault.reason.as_str()), (Code::InvalidArgument, "REQUEST_MALFORMED"));
}

#[tokio::test]
async fn a_writer_reads_its_own_stream_back() {
    let (ledger, session) = filled(150).await;
    let read = |after_seq, tenant: &str| ReadStreamRequest {
        tenant: tenant.to_owned(),
        session_id: session.to_string(),
        after_seq,
    };
    let mut agent = ledger.client(Service::AgentSvc);
    let mut sequence = async |request| {
        let stored = collect(agent.read_stream(request).await.unwrap().into_inner()).await;
        stored.iter().map(|stored| stored.seq).collect::<Vec<_>>()
    };
    assert_eq!(sequence(read(None, TENANT)).await, (0..150).collect::<Vec<_>>());
    assert_eq!(sequence(read(Some(147), TENANT)).await, [148, 149]);
    assert_eq!(sequence(read(Some(149), TENANT)).await, Vec::<u64>::new());
    assert_eq!(sequence(read(None, "t-2")).await, Vec::<u64>::new());

    let own = collect(
        ledger
            .client(Service::SandboxSvc)
            .read_stream(read(None, TENANT))
            .await
            .unwrap()
            .into_inner(),
    )
    .await;
    assert_eq!(
        own.iter().map(|stored| stored.writer.as_str()).collect::<Vec<_>>(),
        ["sandbox-svc"]
    );
    let fault = Fault::from(
        ledger.client(Service::ModelSvc).read_stream(read(None, TENANT)).await.unwrap_err(),
    );
    assert_eq!(fault.code, Code::PermissionDenied);
}

#[tokio::test]
async fn every_entry_can_be_proven() {
    let (ledger, session) = filled(600).await;
    let (head, mut auditor) = (ledger.head().await, ledger.auditor());
    assert_eq!(head.size, 605);
    let prove = |key| ProveRequest { key: Some(key) };
    for index in [0, 1, 255, 256, 257, 511, 512, 603, 604] {
        let proof = auditor.prove(prove(Key::LogIndex(index))).await.unwrap().into_inner();
        let ProveResponse { envelope, log_index, tree_size, path, root, .. } = proof;
        let path: Vec<Hash> = path.iter().map(|hash| Hash::from_slice(hash).unwrap()).collect();
        assert_eq!(
            (log_index, tree_size, root.as_slice()),
            (index, head.size, head.root.as_bytes().as_slice())
        );
        assert!(
            verify_inclusion(&ledger::leaf_hash(&envelope), index, tree_size, &path, &head.root),
            "{index}"
        );
    }

    let query =
        QueryRequest { session_id: session.to_string(), limit: 1, ..QueryRequest::default() };
    let first = collect(auditor.query(query).await.unwrap().into_inner()).await.remove(0);
    let envelope = ledger::Envelope::parse(&first.envelope).unwrap();
    let by_id = auditor.prove(prove(Key::EventId(envelope.event_id))).await.unwrap().into_inner();
    assert_eq!(
        (by_id.log_index, by_id.envelope, by_id.salt),
        (first.log_index, first.envelope, first.salt)
    );

    for (key, reason) in [
        (Some(Key::LogIndex(605)), "ENTRY_NOT_FOUND"),
        (Some(Key::LogIndex(u64::MAX)), "REQUEST_MALFORMED"),
        (Some(Key::EventId(SessionId::new().to_string())), "ENTRY_NOT_FOUND"),
        (Some(Key::EventId("x".to_owned())), "REQUEST_MALFORMED"),
        (None, "REQUEST_MALFORMED"),
    ] {
        let fault = Fault::from(auditor.prove(ProveRequest { key }).await.unwrap_err());
        assert_eq!(fault.reason, reason);
    }
}

#[tokio::test]
async fn an_export_verifies_without_the_service() {
    let (ledger, session) = filled(600).await;
    let request = ExportRequest { tenant: String::new(), session_id: session.to_string() };
    let chunks = collect(ledger.auditor().export(request).await.unwrap().into_inner()).await;
    let lines: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.chunk).collect();
    let summary = verify_bundle(&lines).unwrap();
    assert_eq!((summary.entries, summary.streams, summary.head), (603, 2, ledger.head().await));

    let text = String::from_utf8(lines).unwrap();
    assert!(
        verify_bundle(text.replacen("\\\"index\\\":0", "\\\"index\\\":1", 1).as_bytes()).is_err()
    );
    assert!(verify_bundle(&text.as_bytes()[..text.len() / 2]).is_err());

    let nothing = ExportRequest { tenant: "t-2".to_owned(), session_id: session.to_string() };
    let chunks = collect(ledger.auditor().export(nothing).await.unwrap().into_inner()).await;
    let lines: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.chunk).collect();
    assert_eq!(verify_bundle(&lines).map(|summary| summary.entries), Ok(0));
}
