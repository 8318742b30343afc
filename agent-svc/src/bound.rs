//! What a tool or a model gave, made small enough to be recorded and shown: strings lose their middle, never their ends.

use serde_json::{Value, json};

/// What a model is told about one call, and what the stream holds of it.
pub(crate) const MAX_RESULT: usize = 256 * 1024;
/// Strings are not cut shorter than this; beyond it the value is told as cut text.
const MIN_TEXT: usize = 256;
/// What is left of the catalogue's limits for a value inside of an event.
const MAX_NODES: usize = 8_000;
const MAX_DEPTH: usize = 56;
/// Every character may need six when it is escaped.
const MAX_TOLD: usize = MAX_RESULT / 8;

/// JSON from outside, in bounds: other numbers as their text, long strings cut, and anything that is too large or no JSON
/// told as text.
pub(crate) fn json(bytes: &[u8]) -> Value {
    let Ok(value) = event::canon::parse_untrusted(bytes) else { return told(bytes) };
    let mut nodes = MAX_NODES;
    if !fits(&value, MAX_DEPTH, &mut nodes) {
        return told(bytes);
    }
    let mut limit = MAX_RESULT / 2;
    let mut fitted = value;
    while size(&fitted) > MAX_RESULT {
        if limit < MIN_TEXT {
            return told(bytes);
        }
        cut(&mut fitted, limit);
        limit /= 2;
    }
    fitted
}

fn told(bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    json!({ "truncated": text.len() > MAX_TOLD, "text": ends(&text, MAX_TOLD) })
}

fn fits(value: &Value, depth: usize, nodes: &mut usize) -> bool {
    let Some(left) = nodes.checked_sub(1) else { return false };
    *nodes = left;
    match (value, depth.checked_sub(1)) {
        (Value::Array(items), Some(depth)) => items.iter().all(|item| fits(item, depth, nodes)),
        (Value::Object(members), Some(depth)) => {
            members.values().all(|member| fits(member, depth, nodes))
        }
        (Value::Array(_) | Value::Object(_), None) => false,
        (Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_), _) => true,
    }
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

fn cut(value: &mut Value, limit: usize) {
    match value {
        Value::String(text) if text.len() > limit => *text = ends(text, limit),
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, limit)),
        Value::Object(members) => members.values_mut().for_each(|member| cut(member, limit)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// The text itself, or its first and last parts with the number of bytes between them.
pub(crate) fn ends(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = floor(text, limit / 2);
    let tail = ceil(text, text.len() - limit / 2);
    format!("{}\n[... {} bytes left out ...]\n{}", &text[..head], tail - head, &text[tail..])
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{MAX_RESULT, ends, json as bounded, size};

    #[test]
    fn a_small_value_is_left_alone() {
        assert_eq!(bounded(br#"{"a":[1,"x"],"b":1.5}"#), json!({"a": [1, "x"], "b": "1.5"}));
    }

    #[test]
    fn a_long_text_keeps_both_ends() {
        let text = format!("begin{}end", "x".repeat(2 * MAX_RESULT));
        let value = bounded(json!({ "out": text, "exitCode": 0 }).to_string().as_bytes());
        let out = value["out"].as_str().unwrap();
        assert!(out.starts_with("begin") && out.ends_with("end"));
        assert_eq!(value["exitCode"], 0);
        assert!(size(&value) <= MAX_RESULT);
    }

    #[test]
    fn what_is_no_json_or_has_too_many_nodes_is_told_as_text() {
        assert_eq!(bounded(b"\xff{"), json!({"truncated": false, "text": "\u{fffd}{"}));
        let many = format!("[{}1]", "1,".repeat(9_000));
        assert!(bounded(many.as_bytes())["text"].as_str().unwrap().starts_with("[1,1"));
        let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        assert_eq!(bounded(deep.as_bytes()), json!({"truncated": false, "text": deep}));
    }

    proptest! {
        #[test]
        fn any_bytes_are_brought_into_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert!(size(&bounded(&bytes)) <= MAX_RESULT);
        }

        #[test]
        fn a_cut_never_splits_a_character(text in "\\PC{0,200}", limit in 0usize..100) {
            let cut = ends(&text, limit);
            prop_assert!(text.len() > limit || cut == text);
        }
    }
}
