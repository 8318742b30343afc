//! Assignments in text: `name = value`, `name: value`, `--name value`, quoted or not, whose name announces a credential.
//! References, calls and type names are not values.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::key;
use super::rules::{Span, compiled, is_placeholder};

/// A name and what assigns to it; the value is read by hand, so that no text is read twice.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(
        r#"([A-Za-z_][0-9A-Za-z_.\-]*)(?:\\?["'])?[ \t]*(?:=>|:=|=|:)[ \t]*|--([A-Za-z][0-9A-Za-z\-]*)[ \t]+"#,
    )
});

/// What stands for a value without being one.
const NOT_VALUES: &[&str] = &[
    "string",
    "str",
    "bool",
    "boolean",
    "null",
    "none",
    "nil",
    "undefined",
    "true",
    "false",
    "any",
    "number",
    "int",
    "object",
    "unknown",
    "void",
    "optional",
    "required",
    "bearer",
    "basic",
    "token",
    "digest",
];
const REFERENCES: &[&str] = &[
    "$",
    "{{",
    "%(",
    "<",
    "process.env",
    "os.environ",
    "std::env",
    "env.",
    "env[",
    "/run/secrets/",
];

pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    let Some(named) = NAMED.as_ref() else {
        return spans.push(Span { at: 0..text.len(), rule: "assignment" });
    };
    let mut from = 0;
    while let Some(found) = named.captures_at(text, from) {
        let Some(whole) = found.get(0) else { return };
        from = whole.end();
        let Some(name) = found.get(1).or_else(|| found.get(2)).map(|name| name.as_str()) else {
            continue;
        };
        if !key::is_sensitive(name) || is_header(name) {
            continue;
        }
        if let Some(at) = value(text, whole.end())
            && is_value(&text[at.clone()])
            && !is_same(&text[at.clone()], name)
            && !(found.get(2).is_some() && text[at.clone()].starts_with('-'))
        {
            from = at.end;
            spans.push(Span { at, rule: "assignment" });
        }
    }
}

/// Headers have a rule of their own: their values hold spaces.
fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// `api_key=api_key` passes a value on; it does not show one.
fn is_same(value: &str, name: &str) -> bool {
    value.eq_ignore_ascii_case(name)
}

/// Whether the text is a value at all, and not yet redacted.
pub(super) fn is_value(text: &str) -> bool {
    let text = text.trim();
    let called = text.split_once(['(', '[']).is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':'))
    });
    !text.is_empty()
        && !is_placeholder(text)
        && !called
        && text.bytes().any(|byte| byte != b'*' && byte != b'.')
        && !REFERENCES.iter().any(|reference| text.starts_with(reference))
        && !NOT_VALUES.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The value that begins here: to its closing quote, or to where a bare word ends.
fn value(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = &text.as_bytes()[at..];
    match rest {
        [b'\\', quote @ (b'"' | b'\''), ..] => {
            let inner = &rest[2..];
            let end = (0..inner.len().saturating_sub(1)).find(|index| {
                inner[*index] == b'\\'
                    && inner[index + 1] == *quote
                    && (*index == 0 || inner[index - 1] != b'\\')
            })?;
            Some(at + 2..at + 2 + end)
        }
        [quote @ (b'"' | b'\'' | b'`'), inner @ ..] => {
            let mut escaped = false;
            let end = inner.iter().position(|byte| {
                let closes = byte == quote && !escaped;
                escaped = *byte == b'\\' && !escaped;
                closes
            })?;
            Some(at + 1..at + 1 + end)
        }
        bare => {
            let end = bare.iter().enumerate().position(|(index, byte)| match byte {
                b'"' | b'\'' | b'`' | b',' | b';' | b'&' | b'<' | b'}' | b')' => true,
                b'\\' => bare
                    .get(index + 1)
                    .is_none_or(|next| matches!(next, b'"' | b'\'' | b'n' | b'r' | b't')),
                other => other.is_ascii_whitespace(),
            });
            Some(at..at + end.unwrap_or(bare.len()))
        }
    }
}
