//! The one way in and out of canonical JSON: what is read must be byte for byte what would be written.
//! It never repairs, fills in or ignores.

use event::canon;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that are not exactly one canonical value of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("larger than {limit} bytes")]
    TooLong { limit: usize },
    #[error("not strict JSON")]
    Json,
    #[error("members do not fit: {0}")]
    Shape(String),
    #[error("not the canonical form of its value")]
    NotCanonical,
    #[error("a number is outside what canonical JSON can carry")]
    Number,
    #[error("the effect is not the strictest of its parts")]
    Effect,
    #[error("asks for nobody's approval, or spells out what goes without saying")]
    Requirement,
    #[error("valid for no time, or for longer than its kind allows")]
    Lifetime,
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Malformed> {
    let tree = serde_json::to_value(value).map_err(|error| Malformed::Shape(error.to_string()))?;
    canon::to_bytes(&tree).map_err(|_| Malformed::Number)
}

/// Reads a `T` and writes it again: unknown members, nulls, other spellings and trailing bytes all
/// make the two differ, so none of them needs a rule of its own.
pub(crate) fn decode<T: Serialize + DeserializeOwned>(
    bytes: &[u8],
    limit: usize,
) -> Result<T, Malformed> {
    if bytes.len() > limit {
        return Err(Malformed::TooLong { limit });
    }
    let tree = canon::parse(bytes).map_err(|_| Malformed::Json)?;
    let value: T =
        serde_json::from_value(tree).map_err(|error| Malformed::Shape(error.to_string()))?;
    if encode(&value)? != bytes {
        return Err(Malformed::NotCanonical);
    }
    Ok(value)
}
