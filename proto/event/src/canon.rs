//! Canonical JSON: RFC 8785 with integers within ±(2^53−1) as the only numbers, one byte form per value.
//! Reading is bounded and strict; neither direction knows what an event is.

mod parse;

use serde_json::{Map, Value};

pub use parse::{ParseError, parse, parse_untrusted};

#[cfg(any(test, fuzzing))]
pub use parse::fuzz_parse;

/// How deep objects and arrays may nest.
pub const MAX_DEPTH: usize = 64;
/// How many values one document may hold, containers included.
pub const MAX_NODES: usize = 10_000;
/// How many bytes one document may have.
pub const MAX_BYTES: usize = 1 << 20;
/// 2^53 − 1: beyond it a reader with floating-point numbers sees another integer.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

/// The value has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    #[error("a number is not an integer within ±(2^53−1)")]
    Number,
    #[error("the value nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("the value has more than {MAX_NODES} nodes")]
    TooManyNodes,
    #[error("the value is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("a member has no JSON form")]
    NoForm,
}

/// The canonical bytes of the value, within the same limits as [`parse`].
pub fn to_bytes(value: &Value) -> Result<Vec<u8>, NotCanonical> {
    let mut writer = Writer { out: String::new(), nodes: 0 };
    writer.value(value, 0)?;
    Ok(writer.out.into_bytes())
}

/// Whether these bytes are the one form of the value they hold.
pub fn is_canonical(bytes: &[u8]) -> bool {
    parse(bytes).is_ok_and(|value| to_bytes(&value).is_ok_and(|again| again == bytes))
}

struct Writer {
    out: String,
    nodes: usize,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), NotCanonical> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(NotCanonical::TooManyNodes);
        }
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Number(number) => {
                let number = number.as_i64().ok_or(NotCanonical::Number)?;
                if !(-MAX_INTEGER..=MAX_INTEGER).contains(&number) {
                    return Err(NotCanonical::Number);
                }
                self.out.push_str(&number.to_string());
            }
            Value::String(text) => self.string(text),
            Value::Array(items) => self.array(items, deeper(depth)?)?,
            Value::Object(map) => self.object(map, deeper(depth)?)?,
        }
        if self.out.len() > MAX_BYTES { Err(NotCanonical::TooLarge) } else { Ok(()) }
    }

    fn array(&mut self, items: &[Value], depth: usize) -> Result<(), NotCanonical> {
        self.out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.value(item, depth)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, map: &Map<String, Value>, depth: usize) -> Result<(), NotCanonical> {
        let mut members: Vec<(&String, &Value)> = map.iter().collect();
        // By UTF-16 code units: neither the map's own order nor that of UTF-8 will do.
        members.sort_unstable_by(|(one, _), (two, _)| one.encode_utf16().cmp(two.encode_utf16()));
        self.out.push('{');
        for (index, (key, value)) in members.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.string(key);
            self.out.push(':');
            self.value(value, depth)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for char in text.chars() {
            match char {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\u{8}' => self.out.push_str("\\b"),
                '\t' => self.out.push_str("\\t"),
                '\n' => self.out.push_str("\\n"),
                '\u{c}' => self.out.push_str("\\f"),
                '\r' => self.out.push_str("\\r"),
                '\0'..='\u{1f}' => self.out.push_str(&format!("\\u{:04x}", u32::from(char))),
                _ => self.out.push(char),
            }
        }
        self.out.push('"');
    }
}

fn deeper(depth: usize) -> Result<usize, NotCanonical> {
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(NotCanonical::TooDeep) }
}

#[cfg(test)]
mod tests;
