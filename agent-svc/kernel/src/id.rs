//! Names, digests and times as the kernel sees them: opaque values that the shell mints and reads.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Serialize};

/// What a text had to be to stand for an id, a digest or a reason, and is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct Malformed(&'static str);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:x})"), self.0)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = Malformed;

            fn try_from(text: String) -> Result<Self, Malformed> {
                lower_hex(&text, 32)
                    .and_then(|hex| u128::from_str_radix(hex, 16).ok())
                    .map(Self)
                    .ok_or(Malformed("an id of 32 lower-case hex digits"))
            }
        }
    };
}

id! {
    /// One prompt until its terminal event.
    RunId
}
id! {
    /// One call of a model or of a tool. A model call has a new id for every attempt, a tool call keeps its own.
    CallId
}
id! {
    /// One ask and its answer.
    PermissionId
}

/// An id that nothing has borne before. An input brings one along; it names the one model call or permission
/// that the input may bring into being, and is otherwise forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fresh(pub u128);

/// A SHA-256 digest that someone else computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        const WHAT: Malformed = Malformed("a digest of the form sha256:<64 hex digits>");
        let hex = text.strip_prefix("sha256:").and_then(|hex| lower_hex(hex, 64)).ok_or(WHAT)?;
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = hex.get(2 * at..2 * at + 2).ok_or(WHAT)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| WHAT)?;
        }
        Ok(Self(bytes))
    }
}

/// The text, if it is `length` lower-case hex digits and so the only way to write its value.
fn lower_hex(text: &str, length: usize) -> Option<&str> {
    let plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == length && plain).then_some(text)
}

/// A moment: milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

impl Time {
    pub(crate) fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    pub(crate) fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// A span of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Millis(pub u64);

/// Who did something: the stable name of a person or client, as the gateway vouched for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject(pub String);

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A stable reason such as `MODEL_TIMEOUT`: at most 64 of `A-Z`, `0-9` and `_`, so it cannot carry content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Reason(Cow<'static, str>);

impl Reason {
    /// The model call was lost more often than it may be tried again.
    pub const MODEL_LOST: Self = Self::of("MODEL_LOST");
    /// The model's answer was cut off by a limit that is not the run's own.
    pub const MODEL_TRUNCATED: Self = Self::of("MODEL_TRUNCATED");
    /// The provider ended its answer with an error.
    pub const MODEL_ERROR: Self = Self::of("MODEL_ERROR");
    /// The model wanted to call tools and named none.
    pub const MODEL_NO_CALLS: Self = Self::of("MODEL_NO_CALLS");
    /// The model asked for more than [`crate::MAX_CALLS_PER_TURN`] calls in one turn.
    pub const MODEL_TOO_MANY_CALLS: Self = Self::of("MODEL_TOO_MANY_CALLS");
    /// An operator ended a run whose call had an unknown outcome.
    pub const ABORTED_BY_OPERATOR: Self = Self::of("ABORTED_BY_OPERATOR");

    /// A reason that stands in the source.
    pub const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A reason that a peer gave.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let plain = text.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
        match text.len() {
            1..=64 if plain => Ok(Self(Cow::Owned(text.to_owned()))),
            _ => Err(Malformed("a reason of 1 to 64 characters of A-Z, 0-9 and _")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0.into_owned()
    }
}

impl TryFrom<String> for Reason {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}
