//! What is on disk: it survives, it cannot be changed through SQL, and a change past SQL stops the start.

use std::error::Error as _;
use transport::state_dir::Unusable;

use event::id::SessionId;
use ledger::{Fault, Finding};
use transport::Service;

use crate::fixture::{
    Ledger, ORIGIN, append, config, database, entry, execute, finished, note, pki, verified,
};

/// Drops what forbids changes, as somebody with the file would.
const UNLOCK: &str = "
    DROP TRIGGER events_stay; DROP TRIGGER events_remain; DROP TRIGGER payloads_stay; DROP TRIGGER payloads_remain;
    DROP TRIGGER hash_tiles_stay; DROP TRIGGER hash_tiles_remain; DROP TRIGGER log_head_grows; DROP TRIGGER log_head_remains;
    PRAGMA foreign_keys = OFF;";

async fn filled(entries: u64) -> Ledger {
    let ledger = Ledger::start().await;
    let session = SessionId::new();
    let agent = ledger.client(Service::AgentSvc);
    for start in (0..entries).step_by(200) {
        let batch =
            (start..entries.min(start + 200)).map(|seq| entry(session, seq, &note("a"))).collect();
        append(&agent, batch).await.unwrap();
    }
    append(&ledger.client(Service::ModelSvc), vec![entry(session, None, &finished())])
        .await
        .unwrap();
    ledger
}

#[tokio::test]
async fn a_restart_keeps_the_head_and_goes_on_where_it_was() {
    let ledger = filled(300).await;
    let before = ledger.head().await;
    let ledger = ledger.restart().await;
    assert_eq!(ledger.head().await, before);
    let session = SessionId::parse(&ledger.all().await[0].session_id).unwrap();
    let acks = append(&ledger.client(Service::AgentSvc), vec![entry(session, 300, &note("b"))])
        .await
        .unwrap();
    assert_eq!(acks[0].log_index, 301);
    let ledger = ledger.restart().await;
    assert_eq!(
        verified(&ledger.all().await, &ledger.head().await).map(|summary| summary.entries),
        Ok(302)
    );
}

#[tokio::test]
async fn sql_can_add_and_never_change() {
    let ledger = filled(300).await;
    let mut database = ledger.database().await;
    for (sql, answer) in [
        ("UPDATE events SET tenant = 't-2'", "entries are never changed"),
        ("DELETE FROM events WHERE log_index = 3", "entries are never deleted"),
        ("UPDATE payloads SET payload = x'00'", "payloads are never changed"),
        ("DELETE FROM payloads", "payloads are never deleted"),
        ("UPDATE hash_tiles SET idx = 7", "tiles are never changed"),
        ("DELETE FROM hash_tiles", "tiles are never deleted"),
        ("UPDATE log_head SET size = 1", "the head only grows"),
        ("UPDATE log_head SET origin = 'x', size = size + 1", "the head only grows"),
        ("DELETE FROM log_head", "the head is never deleted"),
    ] {
        let error = execute(&mut database, sql).await.unwrap_err();
        assert!(error.contains(answer), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_row_that_was_changed_on_disk_stops_the_start() {
    let (sound, pki) = filled(300).await.stop().await;
    let at = |index, fault| Some(Finding { index: Some(index), fault });
    let changes = [
        (
            "UPDATE payloads SET payload = CAST(payload || ' ' AS BLOB) WHERE log_index = 7",
            at(7, Fault::Payload),
        ),
        ("UPDATE payloads SET salt = zeroblob(32) WHERE log_index = 7", at(7, Fault::Payload)),
        ("DELETE FROM payloads WHERE log_index = 7", at(7, Fault::Payload)),
        ("UPDATE events SET leaf_hash = zeroblob(32) WHERE log_index = 7", at(7, Fault::Leaf)),
        (
            "UPDATE events SET envelope = CAST(replace(CAST(envelope AS TEXT), 't-1', 't-2') AS BLOB) WHERE log_index = 7",
            at(7, Fault::Leaf),
        ),
        ("UPDATE events SET tenant = 't-2' WHERE log_index = 7", at(7, Fault::Column("tenant"))),
        ("UPDATE events SET session = 'x' WHERE log_index = 7", at(7, Fault::Column("session"))),
        (
            "UPDATE events SET writer = 'gateway' WHERE log_index = 7",
            at(7, Fault::Column("writer")),
        ),
        ("UPDATE events SET seq = 1000 WHERE log_index = 7", at(7, Fault::Column("seq"))),
        ("UPDATE events SET event_id = 'x' WHERE log_index = 7", at(7, Fault::Column("event_id"))),
        ("UPDATE events SET type = 'tool.call' WHERE log_index = 7", at(7, Fault::Column("type"))),
        (
            "UPDATE events SET actor_kind = 'system' WHERE log_index = 7",
            at(7, Fault::Column("actor_kind")),
        ),
        ("UPDATE events SET actor_id = 'x' WHERE log_index = 7", at(7, Fault::Column("actor_id"))),
        ("UPDATE events SET tool = 'x' WHERE log_index = 7", at(7, Fault::Column("tool"))),
        (
            "UPDATE events SET decision = 'allow' WHERE log_index = 7",
            at(7, Fault::Column("decision")),
        ),
        (
            "UPDATE events SET occurred_us = 1 WHERE log_index = 7",
            at(7, Fault::Column("occurred_us")),
        ),
        (
            "UPDATE events SET recorded_us = 1 WHERE log_index = 7",
            at(7, Fault::Column("recorded_us")),
        ),
        ("DELETE FROM events WHERE log_index = 7", at(7, Fault::LogIndex { expected: 7 })),
        ("DELETE FROM events WHERE log_index = 300", at(300, Fault::Size { expected: 301 })),
        (
            "UPDATE log_head SET size = 300, frontier = zeroblob(32 * 4)",
            at(300, Fault::Size { expected: 300 }),
        ),
        (
            "UPDATE log_head SET frontier = zeroblob(32 * 5)",
            Some(Finding { index: None, fault: Fault::Root }),
        ),
        ("UPDATE log_head SET frontier = x'00'", None),
        ("UPDATE log_head SET last_recorded_us = 1", None),
        ("UPDATE hash_tiles SET hashes = zeroblob(8192)", None),
        ("DELETE FROM hash_tiles", None),
    ];
    for (sql, finding) in changes {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(sound.path().join("ledger.db"), dir.path().join("ledger.db")).unwrap();
        let mut database = database(dir.path()).await;
        execute(&mut database, UNLOCK).await.unwrap();
        execute(&mut database, sql).await.unwrap();
        drop(database);

        let context = pki.context(Service::AuditSvc).unwrap();
        let error = audit_svc::bind(config(dir.path(), ORIGIN), context).await.unwrap_err();
        assert!(matches!(error, audit_svc::Error::Integrity(_)), "{sql}: {error}");
        if let Some(finding) = finding {
            assert_eq!(error.source().unwrap().to_string(), finding.to_string(), "{sql}");
        }
    }
}

#[tokio::test]
async fn a_ledger_has_one_owner_and_one_name() {
    let ledger = Ledger::start().await;
    let context = || ledger.pki.context(Service::AuditSvc).unwrap();
    let error = audit_svc::bind(config(ledger.dir.path(), ORIGIN), context()).await.unwrap_err();
    assert!(matches!(error, audit_svc::Error::StateDir(Unusable::Owned { .. })), "{error}");
    let (dir, _) = ledger.stop().await;
    let context = pki().context(Service::AuditSvc).unwrap();
    let error = audit_svc::bind(config(dir.path(), "ledger.test/2"), context).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the ledger belongs to the log ledger.test/1; set origin to it or use another state directory"
    );
}

#[tokio::test]
async fn a_state_directory_that_is_a_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    std::fs::write(&path, "").unwrap();
    let context = pki().context(Service::AuditSvc).unwrap();
    let error = audit_svc::bind(config(&path, ORIGIN), context).await.unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}
