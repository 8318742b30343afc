//! Whatever is changed is found, and the first wrong entry is named.

use ledger::{Fault, Finding, Head, Summary, verify, verify_bundle};
use proptest::prelude::*;

use crate::sample::{LOG, Stored, bundle, log};

fn checked(stored: &[Stored], head: &Head) -> Result<Summary, Finding> {
    verify(LOG, stored.iter().map(Stored::entry), head)
}

fn at(index: u64, fault: Fault) -> Result<Summary, Finding> {
    Err(Finding { index: Some(index), fault })
}

#[test]
fn a_sound_log_is_sound() {
    let (stored, head) = log(12);
    assert_eq!(checked(&stored, &head), Ok(Summary { entries: 12, streams: 3, head }));
    let (none, empty) = log(0);
    assert_eq!(checked(&none, &empty), Ok(Summary { entries: 0, streams: 0, head: empty }));
    let text = bundle(&stored, &head).join("\n");
    assert_eq!(verify_bundle(text.as_bytes()), Ok(Summary { entries: 8, streams: 2, head }));
    assert_eq!(
        verify_bundle(format!("{text}\n").as_bytes()),
        Ok(Summary { entries: 8, streams: 2, head })
    );
}

#[test]
fn each_change_is_named_with_its_place() {
    let (sound, head) = log(12);
    let spoiled = |spoil: &dyn Fn(&mut Vec<Stored>)| {
        let mut stored = sound.clone();
        spoil(&mut stored);
        checked(&stored, &head)
    };
    assert_eq!(spoiled(&|log| log[4].event[2] ^= 1), at(4, Fault::Payload));
    assert_eq!(spoiled(&|log| log[4].event.push(b' ')), at(4, Fault::Payload));
    assert_eq!(spoiled(&|log| log[4].salt[0] ^= 1), at(4, Fault::Payload));
    assert_eq!(spoiled(&|log| log[4].salt.truncate(31)), at(4, Fault::Payload));
    assert_eq!(spoiled(&|log| log[4].envelope[9] ^= 1), at(4, Fault::Leaf));
    assert_eq!(spoiled(&|log| log[4].leaf_hash[9] ^= 1), at(4, Fault::Leaf));
    assert_eq!(spoiled(&|log| log[4].tenant.push('x')), at(4, Fault::Column("tenant")));
    assert_eq!(
        spoiled(&|log| log[4].writer = "model-svc".to_owned()),
        at(4, Fault::Column("writer"))
    );
    assert_eq!(spoiled(&|log| log[4].session.push('x')), at(4, Fault::Column("session")));
    assert_eq!(spoiled(&|log| log[4].seq += 1), at(4, Fault::Column("seq")));
    assert_eq!(spoiled(&|log| drop(log.remove(4))), at(4, Fault::LogIndex { expected: 4 }));
    assert_eq!(spoiled(&|log| log.swap(4, 5)), at(4, Fault::LogIndex { expected: 4 }));
    assert_eq!(
        spoiled(&|log| log.insert(4, log[3].clone())),
        at(4, Fault::LogIndex { expected: 4 })
    );
    assert_eq!(spoiled(&|log| drop(log.pop())), at(11, Fault::Size { expected: 12 }));
    assert_eq!(checked(&sound, &Head { size: 11, ..head }), at(11, Fault::Size { expected: 11 }));
    let other = Head { root: log(11).1.root, ..head };
    assert_eq!(checked(&sound, &other), Err(Finding { index: None, fault: Fault::Root }));
    assert_eq!(
        verify("another.log", sound.iter().map(Stored::entry), &head),
        at(0, Fault::OtherLog)
    );
}

/// Somebody who may write to the store closes the gap by renumbering; the chains and the root still tell.
#[test]
fn a_renumbered_log_breaks_its_streams() {
    let (mut stored, head) = log(12);
    stored.remove(3);
    for (index, entry) in (0..).zip(&mut stored) {
        entry.log_index = index;
    }
    assert_eq!(checked(&stored, &head), at(5, Fault::Sequence { expected: 1 }));
}

#[test]
fn a_bundle_with_a_line_missing_moved_or_added_is_found() {
    let (stored, head) = log(12);
    let lines = bundle(&stored, &head);
    let spoiled = |spoil: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        spoil(&mut lines);
        verify_bundle(lines.join("\n").as_bytes())
    };
    let whole = |fault| Err(Finding { index: None, fault });
    assert_eq!(spoiled(&|lines| drop(lines.remove(3))), at(6, Fault::Sequence { expected: 1 }));
    assert_eq!(spoiled(&|lines| lines.swap(3, 4)), at(3, Fault::LogIndex { expected: 5 }));
    assert_eq!(spoiled(&|lines| drop(lines.pop())), whole(Fault::Truncated));
    assert_eq!(spoiled(&Vec::clear), spoiled(&|lines| *lines = vec![String::new()]));
    assert_eq!(spoiled(&|lines| drop(lines.remove(8))), whole(Fault::Size { expected: 8 }));
    assert!(matches!(
        spoiled(&|lines| lines.push("x".to_owned())),
        Err(Finding { fault: Fault::Line { number: 11, .. }, .. })
    ));
    let another = log(13).1;
    assert_eq!(
        spoiled(
            &|lines| lines[0] = lines[0].replace(&head.root.to_base64(), &another.root.to_base64())
        ),
        at(0, Fault::Proof)
    );
}

proptest! {
    /// One bit, anywhere in what is kept of an entry.
    #[test]
    fn one_changed_bit_is_found_where_it_is(entry in 0_usize..9, field in 0..4, position in any::<prop::sample::Index>(), bit in 0..8) {
        let (mut stored, head) = log(9);
        let spoiled = &mut stored[entry];
        let bytes = match field {
            0 => &mut spoiled.event,
            1 => &mut spoiled.envelope,
            2 => &mut spoiled.salt,
            _ => &mut spoiled.leaf_hash,
        };
        let position = position.index(bytes.len());
        bytes[position] ^= 1_u8 << bit;
        let found = checked(&stored, &head).unwrap_err();
        prop_assert_eq!(found.index, Some(entry as u64));
    }

    /// Also when whoever changes the envelope makes the leaf fit again.
    #[test]
    fn a_rewritten_envelope_is_found(entry in 0_usize..9, position in any::<prop::sample::Index>(), bit in 0..8) {
        let (mut stored, head) = log(9);
        let spoiled = &mut stored[entry];
        let position = position.index(spoiled.envelope.len());
        spoiled.envelope[position] ^= 1_u8 << bit;
        spoiled.leaf_hash = ledger::leaf_hash(&spoiled.envelope).as_bytes().to_vec();
        prop_assert!(checked(&stored, &head).is_err());
    }

    #[test]
    fn any_other_order_is_found(one in 0_usize..9, two in 0_usize..9, renumber in any::<bool>()) {
        prop_assume!(one != two);
        let (mut stored, head) = log(9);
        stored.swap(one, two);
        if renumber {
            for (index, entry) in (0..).zip(&mut stored) {
                entry.log_index = index;
            }
        }
        prop_assert!(checked(&stored, &head).is_err());
    }
}
