//! Integers that every JSON reader holds exactly. Fractions and exponents are refused, also where they name an integer.
use serde::{Deserialize, Serialize};

use crate::limit::MAX_SAFE;

/// The number is outside what its place allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an integer from {min} to 2^53-1")]
pub struct OutOfRange {
    min: i64,
}

/// A sequence number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Seq(u64);

/// A budget, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Positive(u64);

/// The last sequence number seen; on the wire -1 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Cursor(Option<Seq>);

impl Seq {
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Positive {
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Cursor {
    pub const NONE: Self = Self(None);

    #[must_use]
    pub fn seq(self) -> Option<Seq> {
        self.0
    }
}

impl TryFrom<u64> for Seq {
    type Error = OutOfRange;
    fn try_from(number: u64) -> Result<Self, OutOfRange> {
        if number <= MAX_SAFE { Ok(Self(number)) } else { Err(OutOfRange { min: 0 }) }
    }
}

impl From<Seq> for u64 {
    fn from(seq: Seq) -> Self {
        seq.0
    }
}

impl TryFrom<u64> for Positive {
    type Error = OutOfRange;
    fn try_from(number: u64) -> Result<Self, OutOfRange> {
        if (1..=MAX_SAFE).contains(&number) { Ok(Self(number)) } else { Err(OutOfRange { min: 1 }) }
    }
}

impl From<Positive> for u64 {
    fn from(number: Positive) -> Self {
        number.0
    }
}

impl From<Seq> for Cursor {
    fn from(seq: Seq) -> Self {
        Self(Some(seq))
    }
}

impl TryFrom<i64> for Cursor {
    type Error = OutOfRange;
    fn try_from(number: i64) -> Result<Self, OutOfRange> {
        match u64::try_from(number) {
            Ok(seq) => Seq::try_from(seq).map(Self::from).map_err(|_| OutOfRange { min: -1 }),
            Err(_) if number == -1 => Ok(Self::NONE),
            Err(_) => Err(OutOfRange { min: -1 }),
        }
    }
}

impl From<Cursor> for i64 {
    fn from(cursor: Cursor) -> Self {
        cursor.0.and_then(|seq| Self::try_from(seq.0).ok()).unwrap_or(-1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn only_safe_integers_are_read() {
        assert_eq!(read::<Seq>("0").map(Seq::get), Some(0));
        assert_eq!(read::<Seq>("9007199254740991").map(Seq::get), Some(MAX_SAFE));
        for bad in ["-1", "1.0", "1e3", "9007199254740992", "\"1\"", "null"] {
            assert_eq!(read::<Seq>(bad), None, "{bad}");
        }
        assert_eq!(read::<Positive>("0"), None);
        assert_eq!(read::<Positive>("1").map(Positive::get), Some(1));
    }

    #[test]
    fn a_cursor_before_the_first_event_is_minus_one() {
        assert_eq!(read::<Cursor>("-1"), Some(Cursor::NONE));
        assert_eq!(read::<Cursor>("-2"), None);
        assert_eq!(read::<Cursor>("7").and_then(Cursor::seq).map(Seq::get), Some(7));
        assert_eq!(serde_json::to_string(&Cursor::NONE).ok(), Some("-1".to_owned()));
    }
}
