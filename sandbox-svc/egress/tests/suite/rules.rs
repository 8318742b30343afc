//! The one decision: every layer must allow, the longest pattern decides, nothing is allowed by default.

use egress::{Config, Effect, Rules};
use serde_json::{Value, json};

pub(crate) fn limits() -> Value {
    serde_json::to_value(egress::Limits::COMMAND).unwrap()
}

fn config(layers: &Value) -> Value {
    json!({ "layers": layers, "private": [], "limits": limits() })
}

fn parse(document: &Value) -> Result<Config, egress::BadConfig> {
    Config::parse(document.to_string().as_bytes())
}

fn layer(rules: &[(&str, &str)], otherwise: &str, port: Option<u16>) -> Value {
    let rules: Vec<_> = rules
        .iter()
        .map(|(hosts, effect)| json!({ "hosts": hosts, "effect": effect, "rule": hosts }))
        .collect();
    let mut otherwise = json!({ "effect": otherwise, "rule": "otherwise" });
    if let Some(port) = port {
        otherwise["port"] = port.into();
    }
    json!({ "never": [], "rules": rules, "otherwise": otherwise })
}

fn decide(layers: &Value, target: &str) -> (Effect, String) {
    let rules = Rules::of(&parse(&config(layers)).unwrap());
    let verdict = rules.decide(&target.parse().unwrap());
    (verdict.effect, verdict.rule.to_owned())
}

#[test]
fn what_no_rule_covers_is_denied() {
    let layers = json!([layer(
        &[("registry.test:443", "allow"), ("*.pkg.test:443", "allow")],
        "deny",
        None
    )]);
    for (target, effect, rule) in [
        ("registry.test:443", Effect::Allow, "registry.test:443"),
        ("a.pkg.test:443", Effect::Allow, "*.pkg.test:443"),
        ("pkg.test:443", Effect::Deny, "otherwise"),
        ("registry.test:22", Effect::Deny, "otherwise"),
        ("registry.test.evil.test:443", Effect::Deny, "otherwise"),
        ("evil.test:443", Effect::Deny, "otherwise"),
    ] {
        assert_eq!(decide(&layers, target), (effect, rule.to_owned()), "{target}");
    }
}

#[test]
fn the_longest_pattern_decides_and_of_equals_the_deny() {
    let rules =
        [("*.pkg.test:443", "deny"), ("good.pkg.test:443", "allow"), ("*.test:443", "allow")];
    let layers = json!([layer(&rules, "deny", None)]);
    assert_eq!(decide(&layers, "good.pkg.test:443").0, Effect::Allow);
    assert_eq!(decide(&layers, "bad.pkg.test:443").0, Effect::Deny);
    assert_eq!(decide(&layers, "other.test:443").0, Effect::Allow);
    let equal = json!([layer(&[("a.test:443", "allow"), ("*.test:443", "deny")], "allow", None)]);
    assert_eq!(decide(&equal, "a.test:443").0, Effect::Deny);
}

#[test]
fn an_allow_for_everything_is_for_one_port() {
    let layers = json!([layer(&[], "allow", Some(443))]);
    assert_eq!(decide(&layers, "any.test:443").0, Effect::Allow);
    assert_eq!(decide(&layers, "any.test:80").0, Effect::Deny);
}

#[test]
fn every_layer_must_allow_and_never_means_never() {
    let mut ceiling = layer(&[("bad.test:443", "deny")], "allow", None);
    ceiling["never"] = json!([{ "hosts": "*.evil.test:*", "effect": "deny", "rule": "hard" }]);
    let own = layer(
        &[("x.evil.test:443", "allow"), ("bad.test:443", "allow"), ("a.test:22", "allow")],
        "deny",
        None,
    );
    let layers = json!([ceiling, own]);
    assert_eq!(decide(&layers, "x.evil.test:443"), (Effect::Deny, "hard".to_owned()));
    assert_eq!(decide(&layers, "bad.test:443"), (Effect::Deny, "bad.test:443".to_owned()));
    assert_eq!(decide(&layers, "a.test:22"), (Effect::Allow, "a.test:22".to_owned()));
    assert_eq!(decide(&layers, "other.test:443").0, Effect::Deny);
}

#[test]
fn a_document_that_is_not_exactly_one_is_refused() {
    let good = config(&json!([layer(&[("a.test:443", "allow")], "deny", None)]));
    assert!(parse(&good).is_ok());
    let mut more = good.clone();
    more["proxy"] = "x".into();
    let mut nothing = good.clone();
    nothing["layers"] = json!([]);
    let mut zero = good.clone();
    zero["limits"]["connections"] = 0.into();
    let mut missing = good.clone();
    missing["limits"].as_object_mut().unwrap().remove("idle_ms");
    let mut address = good.clone();
    address["layers"][0]["rules"][0]["hosts"] = "10.0.0.1:443".into();
    let mut wide = good.clone();
    wide["private"] = json!(["*.corp.test:443"]);
    let mut word = good.clone();
    word["layers"][0]["otherwise"]["effect"] = "ask".into();
    for document in [more, nothing, zero, missing, address, wide, word] {
        assert!(parse(&document).is_err(), "{document}");
    }
}
