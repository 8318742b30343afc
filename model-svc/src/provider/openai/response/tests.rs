//! Answers that no provider should give, and how they are read.
use proptest::prelude::*;

use super::{Read, estimate, fuzz_parse, parse};
use crate::finalize::{Raw, RawCall, RawFinish, RawUsage};
use crate::turn::Usage;

const PLAIN: &str = r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}}"#;

fn answer(body: &str) -> Raw {
    match parse("m", body.as_bytes()) {
        Read::Answer(raw) => raw,
        Read::Error(_) | Read::Invalid => panic!("no answer: {body}"),
    }
}

fn is_invalid(body: &str) -> bool {
    matches!(parse("m", body.as_bytes()), Read::Invalid)
}

#[test]
fn a_plain_answer_is_read() {
    let expected = Raw {
        model: "m".into(),
        request_id: None,
        finish: RawFinish::Stop,
        text: "Hi".into(),
        calls: vec![],
        usage: RawUsage::Counted { prompt: 20, completion: 5, total: Some(25) },
    };
    assert!(answer(PLAIN) == expected);
}

#[test]
fn null_is_absent() {
    let body = r#"{"choices":[{"message":{"content":null,"refusal":null,"function_call":null,
        "tool_calls":[{"type":"function","function":{"name":"x","arguments":"{}"},"id":"a"}]},
        "finish_reason":"tool_calls"}],"usage":null}"#;
    let expected = Raw {
        model: "m".into(),
        request_id: None,
        finish: RawFinish::ToolCalls,
        text: String::new(),
        calls: vec![RawCall {
            id: Some("a".into()),
            name: Some("x".into()),
            arguments: Some("{}".into()),
        }],
        usage: RawUsage::Missing,
    };
    assert!(answer(body) == expected);
}

#[test]
fn text_parts_are_joined_and_a_refusal_is_text() {
    let with = |content: &str, refusal: &str| {
        answer(&format!(
            r#"{{"choices":[{{"message":{{"content":{content},"refusal":{refusal}}},"finish_reason":"stop"}}]}}"#
        ))
        .text
    };
    let parts = r#"[{"type":"thinking","text":"hm"},{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
    assert_eq!(with(parts, "null"), "ab");
    assert_eq!(with("null", r#""I will not.""#), "I will not.");
    assert_eq!(with(r#""a""#, r#""""#), "a");
}

#[test]
fn exactly_one_choice_at_index_0_is_an_answer() {
    let choice = r#"{"message":{"content":"a"},"finish_reason":"stop"}"#;
    let usage = r#""usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}"#;
    let none = |choices: &str| {
        let expected =
            Raw { finish: RawFinish::Unknown, text: String::new(), calls: vec![], ..answer(PLAIN) };
        answer(&format!(r#"{{"choices":{choices},{usage}}}"#)) == expected
    };
    assert!(none("[]"));
    assert!(none("null"));
    assert!(none(&format!("[{choice},{choice}]")));
    assert!(none(r#"[{"finish_reason":"stop"}]"#));
    assert!(none(r#"[{"index":1,"message":{"content":"a"},"finish_reason":"stop"}]"#));
}

#[test]
fn other_forms_are_told_apart() {
    let unsupported = r#"{"choices":[{"message":{"function_call":{"name":"x","arguments":"{}"}},"finish_reason":"stop"}]}"#;
    assert_eq!(answer(unsupported).finish, RawFinish::FunctionCall);
    let error = r#"{"choices":null,"error":{"code":429,"message":"no"}}"#;
    assert!(matches!(parse("m", error.as_bytes()), Read::Error(_)));
    for body in [
        "",
        "<html>",
        "[]",
        &format!("{PLAIN}{{}}"),
        &PLAIN.replace(
            r#""finish_reason":"stop""#,
            r#""finish_reason":"stop","finish_reason":"length""#,
        ),
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"x","arguments":{}}}]},"finish_reason":"tool_calls"}]}"#,
    ] {
        assert!(is_invalid(body), "{body}");
    }
}

#[test]
fn a_counter_that_is_no_count_is_told_from_one_that_is_missing() {
    let with = |usage: &str| {
        answer(&format!(
            r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        ))
        .usage
    };
    assert_eq!(with("{}"), RawUsage::Missing);
    assert_eq!(with(r#"{"prompt_tokens":null}"#), RawUsage::Missing);
    for counter in ["-1", "1.5", "\"5\"", "1e30", "[]"] {
        assert_eq!(
            with(&format!(r#"{{"prompt_tokens":{counter}}}"#)),
            RawUsage::Garbage,
            "{counter}"
        );
    }
    let half = RawUsage::Counted { prompt: 5, completion: 0, total: None };
    assert_eq!(with(r#"{"prompt_tokens":5}"#), half);
}

#[test]
fn an_estimate_lies_between_one_token_and_what_was_reserved() {
    let reserved = Usage { prompt: 9, completion: 4, estimated: true };
    let of =
        |text: &str| estimate(&Raw { text: text.into(), ..answer(PLAIN) }, reserved).completion;
    assert_eq!((of(""), of("abc"), of("abcdef")), (1, 3, 4));
}

proptest! {
    #[test]
    fn any_body_is_judged_without_a_panic_and_never_for_nothing(
        at in 0..PLAIN.len(),
        cut in 0usize..16,
        with in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut body = PLAIN.as_bytes().to_vec();
        let end = (at + cut).min(body.len());
        body.splice(at..end, with);
        fuzz_parse(&body);
    }
}
