//! What is not sealed, not opened and not admitted, each with its reason.

use super::*;

#[test]
fn what_has_no_canonical_form_is_not_sealed() {
    assert_eq!(seal(&call(json!({"n": 1.5}))), Err(SealError::Canonical(NotCanonical::Number)));
    assert_eq!(
        seal(&call(json!({"n": 1_u64 << 53}))),
        Err(SealError::Canonical(NotCanonical::Number))
    );
    assert_eq!(
        seal(&call(json!({"n": "a".repeat(canon::MAX_BYTES)}))),
        Err(SealError::Canonical(NotCanonical::TooLarge))
    );
    assert!(matches!(
        seal(&call(json!([]))),
        Err(SealError::Schema(OpenError::Data { kind: "tool.call", .. }))
    ));
}

#[test]
fn gates_stand_in_order_and_never_tell_what_they_found() {
    let sealed = seal(&call(json!({}))).unwrap().bytes;
    let text = String::from_utf8(sealed).unwrap();
    let data = |detail: &str| OpenError::Data { kind: "tool.call", detail: detail.to_owned() };
    for (from, to, error) in [
        ("{\"at\"", "{at", OpenError::Json(ParseError::Syntax { at: 1 })),
        ("\"v\":1", "\"v\":2", OpenError::Version),
        ("\"v\":1", "\"v\":\"1\"", OpenError::Version),
        ("tool.call", "tool.s3cret", OpenError::Type),
        ("\"tool\"", "\"s3cret\"", data("expected one of `callId`, `tool`, `input`")),
        ("\"input\":{}", "\"input\":\"s3cret\"", data("expected input to be an object")),
        ("\"input\":{},", "", data("missing field `input`")),
        (",\"v\":1", ",\"v\":1,\"w\":1", data("expected one of `eventId`, `at`, `actor`")),
        ("15:22:00.123456Z", "15:22:00Z", data("a member has the wrong form")),
        ("{\"at\"", "{\"actor\":null,\"at\"", data("a member is not in its one form")),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        assert_eq!(open(changed.as_bytes()), Err(error), "{changed}");
    }
}

#[test]
fn other_spellings_of_an_event_are_not_admitted() {
    let text = String::from_utf8(seal(&call(json!({}))).unwrap().bytes).unwrap();
    for changed in [
        text.replace(":1}", ": 1}"),
        format!("{text}\n"),
        text.replace("tool.call", "tool\\u002ecall"),
    ] {
        assert_eq!(
            admit(changed.as_bytes(), Writer::AgentSvc),
            Err(Refusal::NotCanonical),
            "{changed}"
        );
    }
}

#[test]
fn refusals_have_stable_reasons() {
    assert_eq!(
        [
            Refusal::NotCanonical.reason(),
            Refusal::Schema(OpenError::Type).reason(),
            Refusal::WriterNotAllowed { writer: Writer::Gateway, kind: "error" }.reason(),
            Refusal::Redaction(RedactionFailed::TooDeep).reason(),
            Refusal::Unredacted { rule: "key" }.reason(),
        ],
        [
            "EVENT_NOT_CANONICAL",
            "EVENT_SCHEMA",
            "WRITER_NOT_ALLOWED",
            "EVENT_REDACTION_FAILED",
            "EVENT_REDACTION_FAILED"
        ]
    );
}

#[test]
fn sums_and_counts_are_checked() {
    let usage = Usage { prompt_tokens: 1, completion_tokens: 1, total_tokens: 3 };
    let response = ModelResponse {
        request_id: "r".into(),
        model: "m".into(),
        finish_reason: FinishReason::Stop,
        usage,
        text: None,
    };
    let counted = |have, need| {
        let (permission_id, session_id) = (PermissionId::nil(), SessionId::nil());
        PermissionCounted { permission_id, session_id, by: "a".into(), have, need }.into()
    };
    for data in [
        Data::from(response),
        ModelRequest { request_id: "r".into(), model: "m".into(), message_count: 0 }.into(),
        counted(0, 0),
        counted(2, 2),
        ToolResult {
            call_id: CallId::nil(),
            tool: "t".into(),
            ok: true,
            output: None,
            error: Some(ToolError { code: "c".into(), message: "m".into() }),
            duration_ms: None,
        }
        .into(),
    ] {
        assert!(matches!(seal(&event(data)), Err(SealError::Schema(OpenError::Data { .. }))));
    }
}

proptest! {
    #[test]
    fn sealed_bytes_are_admitted_and_sealed_alike_again(key in ".{0,12}", text in ".{0,40}", number in any::<i32>()) {
        let sealed = seal(&call(json!({ key: [text, number] }))).unwrap();
        let event = admit(&sealed.bytes, Writer::AgentSvc).unwrap();
        prop_assert_eq!(seal(&event).unwrap().bytes, sealed.bytes);
    }

    #[test]
    fn a_changed_byte_never_panics(at in 0_usize..200, byte in any::<u8>()) {
        let mut bytes = seal(&call(json!({"a": "b"}))).unwrap().bytes;
        let at = at % bytes.len();
        bytes[at] = byte;
        fuzz_open(&bytes);
    }
}
