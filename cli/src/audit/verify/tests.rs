//! Ledgers that were tampered with, cut short or never whole: what the verifier says of each.
use ledger::{Envelope, Frontier, leaf_hash, payload_commit};

use super::*;

const ORIGIN: &str = "test/ledger";

/// A log of one stream with `count` entries.
fn log(count: u64) -> Vec<Entry> {
    let mut prev = Hash::ZERO;
    (0..count)
        .map(|seq| {
            let (event, salt) = (format!("{{\"n\":{seq}}}").into_bytes(), [7; 32]);
            let envelope = Envelope {
                log: ORIGIN.to_owned(),
                tenant: "local".to_owned(),
                event_id: format!("e{seq}"),
                writer: "gateway".to_owned(),
                session: "s".to_owned(),
                seq,
                prev,
                kind: "grant.issued".to_owned(),
                actor: None,
                on_behalf_of: None,
                tool: None,
                decision: None,
                policy_rev: None,
                occurred_us: 1,
                recorded_us: 2,
                payload_commit: payload_commit(&salt, &event),
                payload_len: event.len() as u64,
                payload_key: None,
                redactor: "r1".to_owned(),
                redactions: Vec::new(),
                redactions_omitted: 0,
            };
            let envelope = envelope.to_bytes().unwrap();
            prev = leaf_hash(&envelope);
            Entry {
                log_index: seq,
                tenant: "local".to_owned(),
                writer: "gateway".to_owned(),
                session_id: "s".to_owned(),
                seq,
                event,
                envelope,
                salt: salt.to_vec(),
                leaf_hash: prev.as_bytes().to_vec(),
            }
        })
        .collect()
}

fn head(entries: &[Entry]) -> Head {
    let mut frontier = Frontier::default();
    for entry in entries {
        frontier.append(leaf_hash(&entry.envelope));
    }
    Head { size: entries.len() as u64, root: frontier.root() }
}

fn verdict(entries: &[Entry], head: Head, known: Option<Head>) -> (Verdict, Option<u64>) {
    let mut check = Check::new(ORIGIN, head, known);
    for entry in entries {
        check.take(entry);
    }
    let verification = check.finish();
    (verification.verdict, verification.index)
}

#[test]
fn a_whole_log_is_sound_and_what_came_later_does_not_matter() {
    let entries = log(5);
    assert_eq!(verdict(&entries, head(&entries), None), (Verdict::Sound, None));
    assert_eq!(
        verdict(&entries, head(&entries[..3]), Some(head(&entries[..2]))),
        (Verdict::Sound, None)
    );
    assert_eq!(verdict(&[], head(&[]), None), (Verdict::Sound, None));
}

#[test]
fn a_changed_entry_is_tampering_and_is_named() {
    let good = log(4);
    let changes: [fn(&mut Entry); 5] = [
        |entry| entry.event[0] ^= 1,
        |entry| entry.envelope[9] ^= 1,
        |entry| entry.leaf_hash[0] ^= 1,
        |entry| entry.writer = "agent-svc".to_owned(),
        |entry| entry.salt[0] ^= 1,
    ];
    for change in changes {
        let mut entries = good.clone();
        change(&mut entries[2]);
        assert_eq!(verdict(&entries, head(&good), None), (Verdict::Tampered, Some(2)));
    }
    let mut swapped = good.clone();
    swapped.swap(1, 2);
    assert_ne!(verdict(&swapped, head(&good), None).0, Verdict::Sound);
}

#[test]
fn a_missing_entry_makes_it_incomplete() {
    let good = log(4);
    assert_eq!(verdict(&good[..3], head(&good), None), (Verdict::Incomplete, Some(3)));
    let hole = [&good[..1], &good[2..]].concat();
    assert_eq!(verdict(&hole, head(&good), None), (Verdict::Incomplete, Some(1)));
}

#[test]
fn a_head_from_outside_uncovers_another_history() {
    let good = log(4);
    let other = Head { root: Hash::ZERO, ..head(&good[..3]) };
    assert_eq!(verdict(&good, head(&good), Some(other)), (Verdict::Tampered, None));
    let later = Head { size: 9, ..head(&good) };
    assert_eq!(verdict(&good, head(&good), Some(later)), (Verdict::Incomplete, Some(4)));
}

#[test]
fn the_exit_code_tells_the_verdict() {
    let good = log(2);
    let exit = |entries: &[Entry]| {
        let mut check = Check::new(ORIGIN, head(&good), None);
        entries.iter().for_each(|entry| check.take(entry));
        check.finish().failure().map(|failure| failure.exit().code())
    };
    let mut tampered = good.clone();
    tampered[0].event[0] ^= 1;
    assert_eq!((exit(&good), exit(&tampered), exit(&good[..1])), (None, Some(1), Some(4)));
    assert_eq!(Unusable::Head.exit().code(), 5);
}

#[test]
fn a_head_is_read_as_it_is_printed() {
    let shown = ShownHead(head(&log(3))).to_string();
    assert_eq!(shown.parse::<KnownHead>().unwrap(), KnownHead(head(&log(3))));
    for wrong in ["", "3", "x:y", "3:y", ":"] {
        assert!(wrong.parse::<KnownHead>().is_err(), "{wrong}");
    }
}
