//! Arbitrary bytes through every decoder, and the properties that must hold of what comes out.
use crate::{
    Call, Inbound, SessionEvent, decode_inbound, decode_request, encode_event, token::Token,
};

/// Decodes the bytes as everything that a peer may send. Whatever is accepted must survive being written again.
pub fn fuzz_decode(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse(text) {
        assert_eq!(token.reveal(), text);
    }
    match decode_request(text) {
        Ok(request) => {
            for sessions in [false, true] {
                let first = Call::decode(&request.method, request.params.as_deref(), sessions);
                let again = Call::decode(&request.method, request.params.as_deref(), sessions);
                assert_eq!(first, again);
            }
        }
        Err(refusal) => assert!(refusal.failure.message().len() <= 4096),
    }
    if let Ok(Inbound::Event(event)) = decode_inbound(text) {
        verbatim(&event);
    }
}

fn verbatim(event: &SessionEvent) {
    let again = encode_event(event).ok().and_then(|text| decode_inbound(&text).ok());
    let Some(Inbound::Event(again)) = again else {
        unreachable!("what was decoded can be written and decoded again")
    };
    assert_eq!(
        (again.session_id, again.seq, again.event.get()),
        (event.session_id, event.seq, event.event.get())
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Failure, RequestId, encode_failure, encode_request, encode_success};
    use proptest::prelude::*;

    /// JSON that is near enough to the dialect to reach every branch.
    fn near() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(r#"{"jsonrpc":"2.0","#.to_owned()),
            Just(r#""id":1,"#.to_owned()),
            Just(r#""id":null,"#.to_owned()),
            Just(r#""method":"session/event","#.to_owned()),
            Just(r#""method":"permission/respond","#.to_owned()),
            Just(r#""params":{"sessionId":"018f0000-0000-7000-8000-000000000000","seq":0,"event":{"a":1.0}}"#.to_owned()),
            Just(r#""params":{"sessionId":"s","permissionId":"p","decision":"allow"}"#.to_owned()),
            Just(r#""method":"grant/revoke","#.to_owned()),
            Just(format!(
                r#""params":{{"sessionId":"s","permissionId":"p","decision":"allow","approval":{{"payload":"e30=","signature":"{}","keyId":"{}"}}}}"#,
                "0f".repeat(64),
                event::Digest::of(b"key")
            )),
            Just(r#""params":{"sessionId":"s","receiptId":"r"}"#.to_owned()),
            Just(r#""result":{}"#.to_owned()),
            Just(r#""error":{"code":-32600,"message":"m","data":{"code":"ACP_INVALID_REQUEST"}}"#.to_owned()),
            Just("}".to_owned()),
            Just("[".repeat(200)),
            "[\\x00-\\x7f]{0,12}",
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn no_bytes_break_a_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            fuzz_decode(&bytes);
        }

        #[test]
        fn nothing_near_the_dialect_breaks_a_decoder(text in near()) {
            fuzz_decode(text.as_bytes());
        }

        #[test]
        fn ids_come_back_as_they_were(number in -(1_i64 << 53) + 1..(1_i64 << 53), text in ".{0,64}") {
            for id in [RequestId::Number(number), RequestId::Text(text.clone())] {
                let request = encode_request(&id, "session/cancel", &()).expect("encodes");
                prop_assert_eq!(decode_request(&request).map(|request| request.id).ok(), Some(id.clone()));
                let answer = encode_success(&id, &()).expect("encodes");
                match decode_inbound(&answer).expect("decodes") {
                    Inbound::Answer { id: found, result: Ok(result) } => {
                        prop_assert_eq!((found, result.get()), (id, "null"));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn an_event_keeps_its_bytes_spaces_and_number_forms_included() {
        let raw = r#"{ "b":1.00e2 ,"a":"\u00e9é" , "z":18446744073709551616}"#;
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"session/event","params":{{"sessionId":"018f0000-0000-7000-8000-000000000000","seq":3,"event":{raw}}}}}"#
        );
        match decode_inbound(&text).expect("decodes") {
            Inbound::Event(event) => {
                assert_eq!(event.event.get(), raw);
                assert_eq!(encode_event(&event).expect("encodes"), text);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_failure_comes_back_as_it_was() {
        for code in Code::all() {
            let failure = Failure::new(code, "é".repeat(3_000));
            assert_eq!(failure.message().len(), 4096);
            let text = encode_failure(Some(&RequestId::Number(1)), &failure).expect("encodes");
            match decode_inbound(&text).expect("decodes") {
                Inbound::Answer { id: RequestId::Number(1), result: Err(found) } => {
                    assert_eq!(found, failure);
                }
                other => panic!("{other:?}"),
            }
            let text = encode_failure(None, &failure).expect("encodes");
            assert!(matches!(decode_inbound(&text), Ok(Inbound::Stray(found)) if found == failure));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_under_the_id_it_names() {
        let refused = |text: &str| {
            let refusal = decode_request(text).expect_err(text);
            (refusal.id, refusal.failure.code)
        };
        let one = Some(RequestId::Number(1));
        assert_eq!(refused("{"), (None, Code::Parse));
        assert_eq!(refused(""), (None, Code::Parse));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#), (None, Code::Parse));
        assert_eq!(refused("[]"), (None, Code::InvalidRequest));
        assert_eq!(
            refused(r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#),
            (None, Code::InvalidRequest)
        );
        assert_eq!(
            refused(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#),
            (one.clone(), Code::InvalidRequest)
        );
        assert_eq!(refused(r#"{"id":1,"method":"x"}"#), (one.clone(), Code::InvalidRequest));
        assert_eq!(
            refused(r#"{"jsonrpc":"2.0","id":1,"method":"x","extra":0}"#),
            (one.clone(), Code::InvalidRequest)
        );
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), (one, Code::InvalidRequest));
        for id in ["null", "1.5", "9007199254740992", "true", "{}"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
            assert_eq!(refused(&text), (None, Code::InvalidRequest), "{id}");
        }
        assert_eq!(refused(r#"{"jsonrpc":"2.0","method":"x"}"#), (None, Code::InvalidRequest));
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "i".repeat(257));
        assert_eq!(refused(&long), (None, Code::InvalidRequest));
    }
}
