//! The only encoding that is hashed: JSON in key order without blanks, texts and integers within ±(2^53−1) as the only scalars.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::hash::Hash;

/// What a reader with floating-point numbers still sees exactly.
pub(crate) const MAX_INTEGER: u64 = (1 << 53) - 1;
/// An envelope nests three levels deep.
const MAX_DEPTH: usize = 4;

/// The bytes are not the canonical form of what they should be; which member is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not in canonical form ({})", self.0)
    }
}

impl core::error::Error for Malformed {}

/// Writes one object; members come in key order.
pub(crate) struct Object {
    out: String,
    last: &'static str,
}

impl Object {
    pub(crate) fn new() -> Self {
        Self { out: String::from("{"), last: "" }
    }

    pub(crate) fn raw(&mut self, key: &'static str, value: &str) {
        debug_assert!(self.last < key, "members come in key order");
        if !self.last.is_empty() {
            self.out.push(',');
        }
        self.last = key;
        self.out.push_str(&text(key));
        self.out.push(':');
        self.out.push_str(value);
    }

    pub(crate) fn text(&mut self, key: &'static str, value: &str) {
        self.raw(key, &text(value));
    }

    pub(crate) fn optional(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(crate) fn hash(&mut self, key: &'static str, value: &Hash) {
        self.text(key, &value.to_base64());
    }

    pub(crate) fn number(&mut self, key: &'static str, value: impl Into<i128>) {
        self.raw(key, &value.into().to_string());
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push('}');
        self.out
    }
}

/// Values, already encoded, as a list.
pub(crate) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

/// A text with the escapes of RFC 8785.
pub(crate) fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for char in value.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => out.push(char),
        }
    }
    out.push('"');
    out
}

/// One value as read. Who reads also writes it again and compares: a second spelling never passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    List(Vec<Value>),
    Object(Members),
}

/// The members of an object; each is taken once, and none may be left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Members(BTreeMap<String, Value>);

impl Members {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = core::str::from_utf8(bytes).map_err(|_| Malformed("UTF-8"))?;
        let mut reader = Reader { text, at: 0 };
        match reader.value(0) {
            Some(Value::Object(members)) if reader.at == text.len() => Ok(members),
            _ => Err(Malformed("JSON")),
        }
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    pub(crate) fn optional(&mut self, key: &'static str) -> Result<Option<String>, Malformed> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Malformed(key)),
        }
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Result<String, Malformed> {
        self.optional(key)?.ok_or(Malformed(key))
    }

    pub(crate) fn hash(&mut self, key: &'static str) -> Result<Hash, Malformed> {
        Hash::from_base64(&self.text(key)?).map_err(|_| Malformed(key))
    }

    pub(crate) fn integer(&mut self, key: &'static str) -> Result<i64, Malformed> {
        match self.take(key) {
            Some(Value::Number(number)) => Ok(number),
            _ => Err(Malformed(key)),
        }
    }

    pub(crate) fn count(&mut self, key: &'static str) -> Result<u64, Malformed> {
        u64::try_from(self.integer(key)?).map_err(|_| Malformed(key))
    }

    pub(crate) fn list(&mut self, key: &'static str) -> Result<Option<Vec<Value>>, Malformed> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::List(values)) => Ok(Some(values)),
            Some(_) => Err(Malformed(key)),
        }
    }

    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a member that nobody knows")) }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'[' => self.list(depth + 1),
            b'{' => self.object(depth + 1),
            _ => self.number(),
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        self.take(b'[')?;
        let mut values = Vec::new();
        if self.take(b']').is_some() {
            return Some(Value::List(values));
        }
        loop {
            values.push(self.value(depth)?);
            if self.take(b']').is_some() {
                return Some(Value::List(values));
            }
            self.take(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.take(b'{')?;
        let mut members = BTreeMap::new();
        if self.take(b'}').is_some() {
            return Some(Value::Object(Members(members)));
        }
        loop {
            let key = self.string()?;
            self.take(b':')?;
            let value = self.value(depth)?;
            if members.insert(key, value).is_some() {
                return None;
            }
            if self.take(b'}').is_some() {
                return Some(Value::Object(Members(members)));
            }
            self.take(b',')?;
        }
    }

    fn string(&mut self) -> Option<String> {
        self.take(b'"')?;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            out.push_str(self.text.get(start..self.at)?);
            if self.take(b'"').is_some() {
                return Some(out);
            }
            self.take(b'\\')?;
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' => char::from(byte),
            b'b' => '\u{8}',
            b't' => '\t',
            b'n' => '\n',
            b'f' => '\u{c}',
            b'r' => '\r',
            b'u' => {
                let code = u32::from_str_radix(self.text.get(self.at..self.at + 4)?, 16).ok()?;
                self.at += 4;
                char::from_u32(code)?
            }
            _ => return None,
        })
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            self.at += 1;
        }
        let number: i64 = self.text[start..self.at].parse().ok()?;
        (number.unsigned_abs() <= MAX_INTEGER).then_some(Value::Number(number))
    }
}
