//! One form per envelope, bounded.

use ledger::{Actor, Envelope, Hash, MAX_ENVELOPE, Malformed, Redaction, TooLong, verify_bundle};
use proptest::prelude::*;

use crate::sample::{bundle, envelope, log};

fn full() -> Envelope {
    Envelope {
        seq: 42,
        prev: Hash::new([1; 32]),
        actor: Some(Actor { kind: "agent".to_owned(), id: Some("agent-7".to_owned()) }),
        on_behalf_of: Some("pseud:9c1e".to_owned()),
        tool: Some("process.exec".to_owned()),
        decision: Some("allow".to_owned()),
        policy_rev: Some("sha256:00".to_owned()),
        payload_key: Some("dek-1".to_owned()),
        payload_len: 812,
        redactions: vec![Redaction {
            path: "/args/env/T\"~1".to_owned(),
            rule: "key".to_owned(),
            n: 1,
        }],
        redactions_omitted: 3,
        ..envelope()
    }
}

#[test]
fn the_bytes_are_as_documented() {
    let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let one = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let expected = format!(
        concat!(
            r#"{{"actor":{{"id":"agent-7","kind":"agent"}},"decision":"allow","event_id":"0198f000-0000-7000-8000-00000000000e","#,
            r#""log":"log.test/1","occurred_us":1755771072123456,"on_behalf_of":"pseud:9c1e","payload_commit":"{}","#,
            r#""payload_key":"dek-1","payload_len":812,"policy_rev":"sha256:00","prev":"{}","recorded_us":1755771072123999,"#,
            r#""redactions":[{{"n":1,"path":"/args/env/T\"~1","rule":"key"}}],"redactions_omitted":3,"redactor":"r1","seq":42,"#,
            r#""session":"0198f000-0000-7000-8000-000000000001","tenant":"t-1","tool":"process.exec","type":"tool.result","#,
            r#""v":1,"writer":"agent-svc"}}"#
        ),
        zero, one
    );
    assert_eq!(String::from_utf8(full().to_bytes().unwrap()).unwrap(), expected);
    let least = String::from_utf8(envelope().to_bytes().unwrap()).unwrap();
    assert!(
        !least.contains("null") && !least.contains("\"actor\"") && !least.contains("redactions"),
        "{least}"
    );
}

#[test]
fn other_spellings_and_other_members_are_refused() {
    let text = String::from_utf8(full().to_bytes().unwrap()).unwrap();
    for (from, to, member) in [
        ("\"v\":1", "\"v\":2", "v"),
        ("\"v\":1", "\"v\":01", "a second spelling"),
        ("\"v\":1", "\"v\": 1", "JSON"),
        ("\"v\":1", "\"v\":1,\"w\":1", "a member that nobody knows"),
        ("\"seq\":42", "\"seq\":-1", "seq"),
        ("\"seq\":42", "\"seq\":9007199254740992", "JSON"),
        ("\"seq\":42", "\"seq\":42,\"seq\":42", "JSON"),
        ("\"seq\":42,", "", "seq"),
        ("\"tool\":\"process.exec\"", "\"tool\":null", "JSON"),
        ("process.exec", "process\\u002eexec", "a second spelling"),
        ("\"redactions_omitted\":3", "\"redactions_omitted\":0", "a second spelling"),
        ("AAAA=", "AAAB=", "payload_commit"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(Envelope::parse(changed.as_bytes()), Err(Malformed(member)), "{changed}");
    }
}

#[test]
fn an_envelope_is_bounded() {
    let tool = |length| Envelope { tool: Some("x".repeat(length)), ..envelope() };
    let room = MAX_ENVELOPE - tool(0).to_bytes().unwrap().len();
    assert!(tool(room).to_bytes().is_ok());
    assert_eq!(tool(room + 1).to_bytes(), Err(TooLong));
    assert_eq!(Envelope { seq: 1 << 53, ..envelope() }.to_bytes(), Err(TooLong));
}

proptest! {
    #[test]
    fn an_envelope_reads_back_as_written(
        texts in proptest::collection::vec(proptest::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter), 4),
        seq in 0_u64..1 << 53, occurred_us in -(1_i64 << 52)..1 << 52, n in any::<u32>(), omitted in 0_u64..3,
    ) {
        let [tenant, id, tool, path] = <[String; 4]>::try_from(texts).unwrap();
        let given = Envelope {
            tenant, seq, occurred_us,
            actor: Some(Actor { kind: "operator".to_owned(), id: Some(id) }),
            tool: Some(tool),
            redactions: vec![Redaction { path, rule: "key".to_owned(), n }],
            redactions_omitted: omitted,
            ..envelope()
        };
        let bytes = given.to_bytes().unwrap();
        prop_assert_eq!(Envelope::parse(&bytes), Ok(given));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in r#"[\[\]{}:,"\\0-9\-u a-f\n]{0,64}"#) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            prop_assert!(Envelope::parse(bytes).is_err());
            prop_assert!(verify_bundle(bytes).is_err());
        }
    }

    #[test]
    fn a_changed_byte_reads_differently_or_not_at_all(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let given = full().to_bytes().unwrap();
        let mut bytes = given.clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        prop_assert!(bytes == given || Envelope::parse(&bytes) != Ok(full()));
        if let Ok(envelope) = Envelope::parse(&bytes) {
            prop_assert_eq!(envelope.to_bytes(), Ok(bytes));
        }
        let (stored, head) = log(7);
        let mut text = bundle(&stored, &head).join("\n").into_bytes();
        let at = at.min(text.len() - 1);
        let before = std::mem::replace(&mut text[at], byte);
        prop_assert_eq!(verify_bundle(&text).is_ok(), before == byte);
    }
}
