//! One form per value, as an independent implementation has it; strict reading by example and by property.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// RFC 8785's own example for key order, and escapes.
#[test]
fn keys_are_ordered_by_utf_16_and_strings_escaped_as_the_rfc_says() {
    let value = json!({
        "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis",
        "": "\u{8}\t\n\u{c}\r\"\\/\u{1}\u{1f}\u{7f}",
    });
    let expected = concat!(
        r#"{"":"\b\t\n\f\r\"\\/\u0001\u001f"#,
        "\u{7f}\",",
        r#""\r":"Carriage Return","1":"One","#,
        "\"\u{80}\":\"Control\",\"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",",
        "\"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
    );
    assert_eq!(String::from_utf8(to_bytes(&value).unwrap()).unwrap(), expected);
    assert!(is_canonical(expected.as_bytes()));
}

#[test]
fn only_integers_that_every_reader_sees_alike_are_numbers() {
    assert_eq!(
        to_bytes(&json!([MAX_INTEGER, -MAX_INTEGER, 0])).unwrap(),
        b"[9007199254740991,-9007199254740991,0]"
    );
    for number in [
        json!(MAX_INTEGER + 1),
        json!(-MAX_INTEGER - 1),
        json!(u64::MAX),
        json!(1.5),
        json!(1.0),
        json!(-0.0),
    ] {
        assert_eq!(to_bytes(&number), Err(NotCanonical::Number), "{number}");
    }
}

#[test]
fn a_number_from_outside_keeps_its_spelling() {
    let text = br#"[1, -7, 9007199254740991, 9007199254740992, -0, 0.10, 1e3, 1E+2, 123456789012345678901234567890]"#;
    assert_eq!(
        parse_untrusted(text).unwrap(),
        json!([
            1,
            -7,
            9_007_199_254_740_991_i64,
            "9007199254740992",
            "-0",
            "0.10",
            "1e3",
            "1E+2",
            "123456789012345678901234567890"
        ])
    );
    assert_eq!(parse(text), Err(ParseError::Number { at: 26 }));
}

#[test]
fn what_is_not_one_bounded_document_is_refused() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(deep(MAX_DEPTH).as_bytes()).is_ok());
    let wide = format!("[{}]", vec!["0"; MAX_NODES].join(","));
    let long = format!("\"{}\"", "a".repeat(MAX_BYTES));
    for (text, error) in [
        (deep(MAX_DEPTH + 1).as_str(), ParseError::TooDeep),
        (wide.as_str(), ParseError::TooManyNodes),
        (long.as_str(), ParseError::TooLarge),
        ("", ParseError::Syntax { at: 0 }),
        ("{} {}", ParseError::Syntax { at: 3 }),
        ("{\"a\":1,\"a\":2}", ParseError::DuplicateKey { at: 7 }),
        ("{\"a\":1,\"\\u0061\":2}", ParseError::DuplicateKey { at: 7 }),
        ("[1,]", ParseError::Syntax { at: 3 }),
        ("{\"a\":1,}", ParseError::Syntax { at: 7 }),
        ("{a:1}", ParseError::Syntax { at: 1 }),
        ("01", ParseError::Syntax { at: 1 }),
        ("+1", ParseError::Syntax { at: 0 }),
        ("1.", ParseError::Syntax { at: 2 }),
        ("-", ParseError::Syntax { at: 1 }),
        ("NaN", ParseError::Syntax { at: 0 }),
        ("'a'", ParseError::Syntax { at: 0 }),
        ("\"a\nb\"", ParseError::Syntax { at: 2 }),
        ("\"\\x\"", ParseError::Syntax { at: 2 }),
        ("\"\\ud800\"", ParseError::Surrogate { at: 1 }),
        ("\"\\udc00\"", ParseError::Surrogate { at: 1 }),
        ("\"\\ud800\\u0041\"", ParseError::Surrogate { at: 1 }),
        ("\u{feff}1", ParseError::Syntax { at: 0 }),
    ] {
        assert_eq!(parse(text.as_bytes()), Err(error), "{text:.40}");
    }
    assert_eq!(parse(b"\"\xff\""), Err(ParseError::NotUtf8 { at: 1 }));
}

#[test]
fn other_spellings_of_a_value_are_not_canonical() {
    assert!(is_canonical(br#"{"a":[1,"x"],"b":null}"#));
    for text in
        [r#"{"b":null,"a":1}"#, r#"{"a": 1}"#, "[1]\n", r#""\u0041""#, r#""\/""#, "-0", "1.0"]
    {
        assert!(!is_canonical(text.as_bytes()), "{text}");
    }
}

/// Values with a canonical form; keys and texts from every plane.
fn value() -> impl Strategy<Value = Value> {
    let text = proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-MAX_INTEGER..=MAX_INTEGER).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(text.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn an_independent_implementation_agrees(value in value()) {
        prop_assert_eq!(to_bytes(&value).unwrap(), serde_json_canonicalizer::to_vec(&value).unwrap());
    }

    #[test]
    fn canonical_bytes_read_back_to_themselves(value in value()) {
        let bytes = to_bytes(&value).unwrap();
        prop_assert_eq!(parse(&bytes), Ok(value.clone()));
        prop_assert_eq!(parse_untrusted(&bytes), Ok(value));
        prop_assert!(is_canonical(&bytes));
    }

    #[test]
    fn any_other_spelling_reads_as_the_same_value(value in value()) {
        let spaced = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(parse(spaced.as_bytes()), Ok(value));
    }

    /// Texts near to JSON: what this parser takes, another one takes too, and reads alike.
    #[test]
    fn nothing_is_read_that_others_would_not_read(text in r#"[\[\]{}:,"\\0-9eE+.\-u a-ftrn]{0,24}"#) {
        let other = serde_json::from_str::<Value>(&text);
        match parse(text.as_bytes()) {
            Ok(value) => prop_assert_eq!(Some(value), other.ok()),
            Err(ParseError::Syntax { .. } | ParseError::Surrogate { .. }) => prop_assert!(other.is_err(), "{text}"),
            Err(_) => {}
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_parse(&bytes);
    }

    #[test]
    fn any_near_json_is_survived(text in r#"[\[\]{}:,"\\0-9eE+.\-u a-ftrn]{0,64}"#) {
        fuzz_parse(text.as_bytes());
    }
}
