//! Text that is usually UTF-8 but need not be, such as a path: one spelling for each byte string.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path or subject: a JSON string, or `{"b64": …}` when its bytes are not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathText(Inner);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Inner {
    Text(String),
    /// Never valid UTF-8, so that each byte string has one form.
    Bytes(Vec<u8>),
}

impl PathText {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(match std::str::from_utf8(bytes) {
            Ok(text) => Inner::Text(text.to_owned()),
            Err(_) => Inner::Bytes(bytes.to_vec()),
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Inner::Text(text) => text.as_bytes(),
            Inner::Bytes(bytes) => bytes,
        }
    }

    /// The text, unless the bytes are not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Inner::Text(text) => Some(text),
            Inner::Bytes(_) => None,
        }
    }
}

impl From<&str> for PathText {
    fn from(text: &str) -> Self {
        Self(Inner::Text(text.to_owned()))
    }
}

impl From<String> for PathText {
    fn from(text: String) -> Self {
        Self(Inner::Text(text))
    }
}

/// For people: bytes that are not UTF-8 appear as `b64:…`.
impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Text(text) => f.write_str(text),
            Inner::Bytes(bytes) => write!(f, "b64:{}", STANDARD.encode(bytes)),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Bytes(Base64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base64 {
    b64: String,
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Inner::Text(text) => serializer.serialize_str(text),
            Inner::Bytes(bytes) => Base64 { b64: STANDARD.encode(bytes) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wire::deserialize(deserializer)? {
            Wire::Text(text) => Ok(Self(Inner::Text(text))),
            Wire::Bytes(Base64 { b64 }) => {
                let bytes =
                    STANDARD.decode(b64).map_err(|_| D::Error::custom("b64 is not base64"))?;
                match String::from_utf8(bytes) {
                    Ok(_) => Err(D::Error::custom("b64 holds text that is UTF-8")),
                    Err(error) => Ok(Self(Inner::Bytes(error.into_bytes()))),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PathText;

    #[test]
    fn utf8_is_a_string_and_other_bytes_are_base64() {
        let text = PathText::from_bytes("src/ä.rs".as_bytes());
        let bytes = PathText::from_bytes(&[b'a', 0xff]);
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""src/ä.rs""#);
        assert_eq!(serde_json::to_string(&bytes).unwrap(), r#"{"b64":"Yf8="}"#);
        assert_eq!(serde_json::from_str::<PathText>(r#"{"b64":"Yf8="}"#).unwrap(), bytes);
        assert_eq!((text.to_string(), bytes.to_string()), ("src/ä.rs".into(), "b64:Yf8=".into()));
    }

    #[test]
    fn a_second_spelling_of_the_same_path_is_refused() {
        for text in [r#"{"b64":"YQ=="}"#, r#"{"b64":"Yf8"}"#, r#"{"b64":"Yf8=","x":1}"#, "1"] {
            assert!(serde_json::from_str::<PathText>(text).is_err(), "{text}");
        }
    }
}
