//! Requests that share a transaction: each whole or not at all, and each behind the one before.

use event::{Data, Event, MessageDelta};
use ledger::Envelope;
use proto::audit::v1::NewEntry;

use super::*;

const LOG: &str = "log.test";

fn entry(session: SessionId, seq: u64, id: EventId, text: &str) -> Entry {
    let data =
        Data::from(MessageDelta { request_id: "r".to_owned(), index: 0, text: text.to_owned() });
    let event = Event { id, at: time::OffsetDateTime::UNIX_EPOCH, actor: None, data };
    let entry = NewEntry {
        tenant: "t-1".to_owned(),
        session_id: session.to_string(),
        seq: Some(seq),
        event: event::seal(&event).unwrap().bytes,
        redactor: event::redact::REVISION.to_owned(),
        ..NewEntry::default()
    };
    Entry::parse(0, Writer::AgentSvc, LOG, entry).unwrap()
}

fn add(batch: &mut Batch<'_>, entries: Vec<Entry>) -> Result<Vec<Ack>, Refused> {
    let salts = entries.iter().map(|_| [7; 32]).collect();
    batch.add(entries, salts).unwrap()
}

fn batch() -> Batch<'static> {
    Batch::new(LOG, 1_000, Tree { recorded_us: 2_000, ..Tree::default() }, Facts::default())
}

#[test]
fn each_entry_names_the_one_before_it_in_its_stream_and_none_is_recorded_earlier() {
    let mut batch = batch();
    let (one, two) = (SessionId::new(), SessionId::new());
    let first = vec![entry(one, 0, EventId::new(), "a"), entry(two, 0, EventId::new(), "b")];
    let first = add(&mut batch, first).unwrap();
    let second = add(&mut batch, vec![entry(one, 1, EventId::new(), "c")]).unwrap();
    let envelopes: Vec<Envelope> =
        batch.rows.iter().map(|row| Envelope::parse(&row.envelope_bytes).unwrap()).collect();
    assert_eq!(
        envelopes.iter().map(|envelope| envelope.prev).collect::<Vec<_>>(),
        [Hash::ZERO, Hash::ZERO, first[0].leaf]
    );
    assert_eq!(
        envelopes.iter().map(|envelope| envelope.recorded_us).collect::<Vec<_>>(),
        [2_000; 3]
    );
    assert_eq!((second[0].log_index, second[0].seq, batch.tree.frontier.size()), (2, 1, 3));
}

#[test]
fn a_refused_request_leaves_the_others_as_they_were() {
    let mut batch = batch();
    let session = SessionId::new();
    let first = EventId::new();
    add(&mut batch, vec![entry(session, 0, first, "a")]).unwrap();
    let before = (batch.rows.clone(), batch.tree.frontier.clone());
    for (last, wrong) in [
        (entry(session, 3, EventId::new(), "gap"), "Sequence"),
        (entry(session, 2, first, "another"), "Event"),
    ] {
        let refused =
            add(&mut batch, vec![entry(session, 1, EventId::new(), "b"), last]).unwrap_err();
        assert!(format!("{refused:?}").starts_with(wrong), "{refused:?}");
        assert_eq!((batch.rows.clone(), batch.tree.frontier.clone()), before);
    }
    add(&mut batch, vec![entry(session, 1, EventId::new(), "c")]).unwrap();
    assert_eq!(batch.rows.len(), 2);
}

#[test]
fn the_same_entry_twice_is_one_entry() {
    let mut batch = batch();
    let (session, id) = (SessionId::new(), EventId::new());
    let twin = || entry(session, 0, id, "a");
    let acks = add(&mut batch, vec![twin(), twin()]).unwrap();
    assert_eq!(acks[0], acks[1]);
    assert_eq!(add(&mut batch, vec![twin()]).unwrap(), [acks[0]]);
    assert_eq!(batch.rows.len(), 1);
    let refused = add(
        &mut batch,
        vec![entry(SessionId::new(), 0, EventId::new(), "b"), entry(SessionId::new(), 0, id, "a")],
    );
    assert!(matches!(refused, Err(Refused::Event { at: 1 })), "{refused:?}");
}
