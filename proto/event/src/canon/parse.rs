//! Reads JSON text within limits: UTF-8, no duplicate keys, nothing after the value; never guesses at a number.

use serde_json::{Map, Value};

use super::{MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MAX_NODES};

/// Where the text stops being acceptable JSON, as a byte offset; never what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("the text is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the text is not UTF-8 at byte {at}")]
    NotUtf8 { at: usize },
    #[error("the text is not JSON at byte {at}")]
    Syntax { at: usize },
    #[error("a string holds half a surrogate pair at byte {at}")]
    Surrogate { at: usize },
    #[error("an object has the same key twice at byte {at}")]
    DuplicateKey { at: usize },
    #[error("a number is not an integer within ±(2^53−1) at byte {at}")]
    Number { at: usize },
    #[error("the value nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("the value has more than {MAX_NODES} nodes")]
    TooManyNodes,
}

/// Reads one document whose numbers are all integers within ±(2^53−1).
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    document(bytes, |at, _| Err(ParseError::Number { at }))
}

/// Reads one document from outside: any other number becomes its source text, so that nothing is rounded.
pub fn parse_untrusted(bytes: &[u8]) -> Result<Value, ParseError> {
    document(bytes, |_, text| Ok(Value::String(text.to_owned())))
}

type OtherNumber = fn(usize, &str) -> Result<Value, ParseError>;

fn document(bytes: &[u8], other_number: OtherNumber) -> Result<Value, ParseError> {
    if bytes.len() > MAX_BYTES {
        return Err(ParseError::TooLarge);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| ParseError::NotUtf8 { at: error.valid_up_to() })?;
    let mut reader = Reader { text, at: 0, nodes: 0, other_number };
    let value = reader.value(0)?;
    reader.blank();
    if reader.at < text.len() { reader.syntax() } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nodes: usize,
    other_number: OtherNumber,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn syntax<T>(&self) -> Result<T, ParseError> {
        Err(ParseError::Syntax { at: self.at })
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(ParseError::TooManyNodes);
        }
        self.blank();
        match self.peek() {
            Some(b'{') => self.object(deeper(depth)?),
            Some(b'[') => self.array(deeper(depth)?),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.syntax(),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        if !self.text[self.at..].starts_with(word) {
            return self.syntax();
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.at += 1;
        let mut items = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.blank();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return self.syntax();
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.at += 1;
        let mut members = Map::new();
        self.blank();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.blank();
            let at = self.at;
            if self.peek() != Some(b'"') {
                return self.syntax();
            }
            let key = self.string()?;
            self.blank();
            if !self.take(b':') {
                return self.syntax();
            }
            let value = self.value(depth)?;
            if members.insert(key, value).is_some() {
                return Err(ParseError::DuplicateKey { at });
            }
            self.blank();
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return self.syntax();
            }
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            if self.take(b'"') {
                return Ok(out);
            }
            if !self.take(b'\\') {
                return self.syntax();
            }
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let Some(byte) = self.peek() else { return self.syntax() };
        let char = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return self.syntax(),
        };
        self.at += 1;
        Ok(char)
    }

    fn unicode(&mut self) -> Result<char, ParseError> {
        let at = self.at - 1;
        let first = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            if !self.text[self.at..].starts_with("\\u") {
                return Err(ParseError::Surrogate { at });
            }
            self.at += 1;
            let second = self.hex4()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(ParseError::Surrogate { at });
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or(ParseError::Surrogate { at })
    }

    /// Four hex digits after the `u` at which the reader stands.
    fn hex4(&mut self) -> Result<u32, ParseError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return self.syntax() };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        match text.parse::<i64>() {
            // Minus zero is a second spelling of zero, which only a float can hold.
            Ok(number)
                if whole && (-MAX_INTEGER..=MAX_INTEGER).contains(&number) && text != "-0" =>
            {
                Ok(number.into())
            }
            _ => (self.other_number)(start, text),
        }
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.syntax();
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }
}

fn deeper(depth: usize) -> Result<usize, ParseError> {
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(ParseError::TooDeep) }
}

/// Any bytes: no panic, and what reads back has one form.
#[cfg(any(test, fuzzing))]
pub fn fuzz_parse(bytes: &[u8]) {
    for value in [parse(bytes), parse_untrusted(bytes)].into_iter().flatten() {
        if let Ok(canonical) = super::to_bytes(&value) {
            assert!(super::is_canonical(&canonical));
        }
    }
}
