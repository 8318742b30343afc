//! What callers are told when the writer does not keep up.

use event::id::{EventId, SessionId};
use event::{Data, Event, MessageDelta, Writer};
use proto::audit::v1::NewEntry;
use transport::Service;
use transport::issue::DevPki;

use super::*;

fn entries() -> Vec<Entry> {
    let data =
        Data::from(MessageDelta { request_id: "r".to_owned(), index: 0, text: "a".to_owned() });
    let event =
        Event { id: EventId::new(), at: time::OffsetDateTime::UNIX_EPOCH, actor: None, data };
    let entry = NewEntry {
        tenant: "t-1".to_owned(),
        session_id: SessionId::new().to_string(),
        seq: Some(0),
        event: event::seal(&event).unwrap().bytes,
        redactor: event::redact::REVISION.to_owned(),
        ..NewEntry::default()
    };
    vec![Entry::parse(0, Writer::AgentSvc, "log.test", entry).unwrap()]
}

/// An appender whose queue nobody empties.
fn stuck(room: usize) -> (Appender, mpsc::Receiver<Request>, watch::Sender<ledger::Head>) {
    let (requests, queue) = mpsc::channel(8);
    let (publish, head) = watch::channel(ledger::Head { size: 0, root: ledger::Hash::ZERO });
    let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
    let ready = pki.context(Service::AuditSvc).unwrap().ready;
    ready.set(READY, true);
    let room = Arc::new(Semaphore::new(room));
    (Appender { requests, room, head, ready, halted: CancellationToken::new() }, queue, publish)
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_back_pressure_after_its_deadline() {
    let (appender, _queue, _publish) = stuck(ENTRY_UNITS - 1);
    let started = tokio::time::Instant::now();
    assert!(matches!(appender.append(entries()).await, Err(Refused::Backpressure)));
    assert_eq!(started.elapsed(), QUEUE_WAIT);
    assert!(appender.ready.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_does_not_come_is_a_failure_and_ends_readiness() {
    let (appender, _queue, _publish) = stuck(QUEUE_UNITS);
    assert!(matches!(appender.append(entries()).await, Err(Refused::Persistence)));
    assert_eq!(appender.ready.missing(), [READY]);
}

#[tokio::test]
async fn after_the_writer_is_gone_nothing_is_taken() {
    let (appender, queue, _publish) = stuck(QUEUE_UNITS);
    drop(queue);
    assert!(matches!(appender.append(entries()).await, Err(Refused::Stopping)));
    appender.halted.cancel();
    assert!(matches!(appender.append(entries()).await, Err(Refused::Halted)));
}
