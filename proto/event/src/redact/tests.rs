//! The rules by example, and what holds for every value.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A credential is put together at run time, so that no scanner takes the source for a leak.
fn made(prefix: &str, body: &str) -> String {
    format!("{prefix}{body}")
}

fn alnum(length: usize) -> String {
    "a1B2c3D4e5".chars().cycle().take(length).collect()
}

#[test]
fn tokens_go_by_their_shape_and_their_surroundings_stay() {
    for (prefix, body, rule) in [
        ("ghp_", alnum(36), "github"),
        ("glpat-", alnum(20), "gitlab"),
        ("AKIA", "QWERTYUIOPASDFGH".to_owned(), "aws"),
        ("sk-", alnum(20), "sk"),
        ("sk-proj-", alnum(20), "sk"),
        ("xoxb-", alnum(24), "slack"),
        ("AIza", alnum(35), "google"),
        ("eyJ", format!("{}.eyJ{}.{}", alnum(12), alnum(12), alnum(12)), "jwt"),
        ("hns_", format!("{}_{}_{}", alnum(8), alnum(43), alnum(6)), "harness"),
    ] {
        let token = made(prefix, &body);
        assert_eq!(
            text(&format!("see {token}, twice {token}")),
            format!("see [REDACTED:{rule}], twice [REDACTED:{rule}]")
        );
    }
}

#[test]
fn values_go_by_the_name_before_them() {
    for (given, safe) in [
        ("password=hunter2", "password=[REDACTED:assignment]"),
        ("api_key: 'it is long', x", "api_key: '[REDACTED:assignment]', x"),
        ("export OPENAI_KEY=abc123; ls", "export OPENAI_KEY=[REDACTED:assignment]; ls"),
        (
            r#"{\"client_secret\": \"a b\"} tail"#,
            r#"{\"client_secret\": \"[REDACTED:assignment]\"} tail"#,
        ),
        ("tool --token abc --fast", "tool --token [REDACTED:assignment] --fast"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [REDACTED:header]"),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: [REDACTED:header]\nHost: x"),
        (
            "curl -H 'Authorization: Bearer abcdef123456789'",
            "curl -H 'Authorization: Bearer [REDACTED:bearer]'",
        ),
        ("bearer abcdef123456789 sent", "bearer [REDACTED:bearer] sent"),
        ("postgres://app:hunter2@db/x", "postgres://app:[REDACTED:url]@db/x"),
        ("https://h/x?sig=abc%2Fdef&y=1", "https://h/x?sig=[REDACTED:query]&y=1"),
    ] {
        assert_eq!(text(given), safe);
    }
}

#[test]
fn a_private_key_goes_whole_even_without_its_end() {
    let (begin, end) =
        (made("-----BEGIN ", "PRIVATE KEY-----"), made("-----END ", "PRIVATE KEY-----"));
    assert_eq!(text(&format!("a\n{begin}\nMIIE\n\nabc\n{end}\nb")), "a\n[REDACTED:pem]\nb");
    assert_eq!(text(&format!("a\n{begin}\nMIIE")), "a\n[REDACTED:pem]");
}

#[test]
fn characters_that_show_nothing_hide_nothing() {
    let token = made("ghp_", &alnum(36));
    assert_eq!(
        text(&format!("x {}\u{200b}{} y", &token[..9], &token[9..])),
        "x [REDACTED:github] y"
    );
    assert_eq!(
        text(&format!("x {}\u{1b}[1m{} y", &token[..9], &token[9..])),
        "x [REDACTED:github] y"
    );
    assert_eq!(text("plain \u{1b}[1mbold\u{1b}[0m"), "plain \u{1b}[1mbold\u{1b}[0m");
}

#[test]
fn what_is_no_credential_stays() {
    let certificate = format!(
        "{}\nMIIBsk+AKIA{}/token==\n{}\n",
        made("-----BEGIN ", "CERTIFICATE-----"),
        "QWERTYUIOPASDFGH",
        made("-----END ", "CERTIFICATE-----")
    );
    for kept in [
        "0198f000-0000-7000-8000-000000000001",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "3045022100e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        certificate.as_str(),
        "token=$TOKEN password=${PASSWORD} secret: {{ secret }} api_key=api_key",
        "let token = next_token(input); password: string",
        "the bearer token and the bearer bond",
        "risk-adjusted task-level sk-SK",
        "git@host:repo user@host https://host/path@v1",
        "max_tokens: 4096, PASSWORD_FILE=/run/secrets/x",
        "[REDACTED:github] and [REDACTED]",
    ] {
        assert_eq!(text(kept), kept);
    }
}

#[test]
fn a_certificate_is_no_hiding_place() {
    let hidden = format!(
        "{}\npassword=hunter2\n{}",
        made("-----BEGIN ", "CERTIFICATE-----"),
        made("-----END ", "CERTIFICATE-----")
    );
    assert!(!text(&hidden).contains("hunter2"));
}

#[test]
fn under_a_sensitive_name_everything_goes_but_null_and_booleans() {
    let given = json!({
        "password": "x", "token": 5, "max_tokens": 4096,
        "credentials": {"user": "u", "list": ["a", 1, true, null]},
        "headers": [{"name": "X-Api-Key", "value": "v"}, {"name": "Accept", "value": "*/*"}],
        "argv": ["login", "--password", "x", "--verbose"],
    });
    let redacted = redact(&given).unwrap();
    assert_eq!(
        redacted.value,
        json!({
            "password": "[REDACTED:key]", "token": "[REDACTED:key]", "max_tokens": 4096,
            "credentials": {"user": "[REDACTED:key]", "list": ["[REDACTED:key]", "[REDACTED:key]", true, null]},
            "headers": [{"name": "X-Api-Key", "value": "[REDACTED:key]"}, {"name": "Accept", "value": "*/*"}],
            "argv": ["login", "--password", "[REDACTED:key]", "--verbose"],
        })
    );
    let mut paths: Vec<&str> =
        redacted.findings.iter().map(|finding| finding.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "/argv/2",
            "/credentials/list/0",
            "/credentials/list/1",
            "/credentials/user",
            "/headers/0/value",
            "/password",
            "/token"
        ]
    );
    assert!(holds_secret(&given) && !holds_secret(&redacted.value));
}

#[test]
fn names_are_read_too_and_no_member_is_lost() {
    let (one, two) = (made("ghp_", &alnum(36)), made("ghp_", &alnum(40)));
    let redacted = redact(&json!({ one: 1, two: 2 })).unwrap();
    assert_eq!(redacted.value, json!({"[REDACTED:github]": 1, "[REDACTED:github] 2": 2}));
    assert_eq!(redacted.findings.len(), 2);
}

#[test]
fn json_inside_a_string_stays_json() {
    let given = json!({"body": r#"{"password": "x", "n": 1}"#, "deep": r#"["{\"token\":\"x\"}"]"#, "same": "{\"n\": 1.50}"});
    assert_eq!(
        redact(&given).unwrap().value,
        json!({
            "body": r#"{"n":1,"password":"[REDACTED:key]"}"#,
            "deep": r#"["{\"token\":\"[REDACTED:key]\"}"]"#,
            "same": "{\"n\": 1.50}",
        })
    );
}

#[test]
fn every_pattern_compiles() {
    // A pattern that did not compile would withhold this.
    assert_eq!(text("nothing to see"), "nothing to see");
}

#[test]
fn limits_are_refusals() {
    let mut deep = json!(1);
    for _ in 0..=canon::MAX_DEPTH {
        deep = json!([deep]);
    }
    assert_eq!(redact(&deep), Err(RedactionFailed::TooDeep));
    assert_eq!(redact(&json!(vec![0; canon::MAX_NODES])), Err(RedactionFailed::TooManyNodes));
    assert_eq!(redact(&json!("a".repeat(canon::MAX_BYTES + 1))), Err(RedactionFailed::TooLarge));
}

/// Texts that are near to what the rules look for.
fn near() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("password".to_owned()),
        Just("token".to_owned()),
        Just("=".to_owned()),
        Just(": ".to_owned()),
        Just("\"".to_owned()),
        Just("\\\"".to_owned()),
        Just("'".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(" ".to_owned()),
        Just("\n".to_owned()),
        Just("--".to_owned()),
        Just("Bearer ".to_owned()),
        Just("Authorization: Basic ".to_owned()),
        Just("Cookie: ".to_owned()),
        Just("http://u:".to_owned()),
        Just("@h".to_owned()),
        Just("?sig=".to_owned()),
        Just("\u{200b}".to_owned()),
        Just("\u{1b}[1m".to_owned()),
        Just("[REDACTED:key]".to_owned()),
        Just("[REDACTED".to_owned()),
        Just(made("-----BEGIN ", "PRIVATE KEY-----")),
        Just(made("sk-", &alnum(14))),
        Just(made("ghp_", &alnum(36))),
        Just(made("eyJ", "abcdefgh.abcdefgh1.")),
        "[a-z0-9é]{0,6}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        near().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(near(), inner.clone(), 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            // JSON inside a string.
            inner.prop_map(|value| Value::from(value.to_string())),
        ]
    })
}

#[test]
fn headers_as_keys_that_become_one_placeholder_stay_apart_for_good() {
    let given = serde_json::json!({"Cookie: --": null, "Cookie: {": null, "Cookie: x": null});
    let once = redact(&given).unwrap().value;
    let expected = serde_json::json!({
        "Cookie: [REDACTED:header]": null,
        "2 Cookie: [REDACTED:header]": null,
        "3 Cookie: [REDACTED:header]": null,
    });
    assert_eq!(once, expected);
    assert_eq!(redact(&once).unwrap().value, once);
}

proptest! {
    #[test]
    fn a_redacted_value_is_a_fixpoint(given in value()) {
        let once = redact(&given).unwrap();
        let twice = redact(&once.value).unwrap();
        prop_assert_eq!(&twice.value, &once.value);
        prop_assert_eq!(twice.findings, vec![]);
        prop_assert_eq!(once.findings.is_empty(), once.value == given);
    }

    #[test]
    fn a_redacted_text_is_a_fixpoint(given in near()) {
        let once = text(&given);
        prop_assert_eq!(text(&once), once);
    }

    #[test]
    fn nothing_is_missing_but_what_was_redacted(given in "[a-zé \n{}\\[\\]\",.0-9]{0,200}") {
        prop_assert_eq!(text(&given), given);
    }

    #[test]
    fn any_bytes_are_survived(given in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz_redact(&given);
    }
}
