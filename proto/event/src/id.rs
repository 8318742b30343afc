//! Names of things that are referred to across services: UUIDs in their one lower-case form, one type per kind of thing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// The text is not a UUID in lower-case hyphenated form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID in lower-case hyphenated form")]
pub struct NotAnId;

fn parse(text: &str) -> Result<Uuid, NotAnId> {
    let id = Uuid::try_parse(text).map_err(|_| NotAnId)?;
    // try_parse also takes braces, URNs and capitals; an id has exactly one spelling.
    if id.as_hyphenated().to_string() == text { Ok(id) } else { Err(NotAnId) }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        #[expect(clippy::new_without_default, reason = "each call makes another id: that is no default")]
        impl $name {
            /// A new id, ordered by time (UUIDv7).
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The id of nothing: all zeros.
            pub const fn nil() -> Self {
                Self(Uuid::nil())
            }

            pub const fn is_nil(&self) -> bool {
                self.0.is_nil()
            }

            pub fn parse(text: &str) -> Result<Self, NotAnId> {
                parse(text).map(Self)
            }

            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                Self::parse(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

ids! {
    /// One conversation, bound to one manifest and workspace.
    SessionId,
    /// One prompt until its terminal event.
    RunId,
    /// One tool call.
    CallId,
    /// One ask and its answer.
    PermissionId,
    /// One event, wherever it is repeated.
    EventId,
    /// One signed answer.
    ReceiptId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let text = "0198f000-0000-7000-8000-000000000001";
        assert_eq!(SessionId::parse(text).map(|id| id.to_string()), Ok(text.to_owned()));
        for other in [
            "0198F000-0000-7000-8000-00000000000A",
            "0198f000000070008000000000000001",
            "{0198f000-0000-7000-8000-000000000001}",
            "urn:uuid:0198f000-0000-7000-8000-000000000001",
            "0198f000-0000-7000-8000-000000000001 ",
            "",
        ] {
            assert_eq!(SessionId::parse(other), Err(NotAnId), "{other:?}");
        }
    }

    #[test]
    fn new_ids_are_version_7_and_differ() {
        let (one, two) = (EventId::new(), EventId::new());
        assert_ne!(one, two);
        assert_eq!((one.as_uuid().get_version_num(), one.is_nil()), (7, false));
        assert!(EventId::nil().is_nil());
    }
}
