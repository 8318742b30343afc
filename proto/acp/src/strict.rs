//! What JSON leaves open and the dialect does not: objects are objects, and a member that is absent is not `null`.
//! It never reads past the value it is given.
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Decodes a struct from an object only; serde alone would take an array of its members as well.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<T, D::Error> {
    struct Only<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
        type Value = T;
        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    source.deserialize_map(Only(PhantomData))
}

/// A value that must be an object, for lists and for the top of a document.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        object(source).map(Self)
    }
}

/// An optional member that is either absent or has a value; `null` is neither.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(source).map(Some)
}

/// A member that can only be `true`.
pub(crate) fn yes<'de, D: Deserializer<'de>>(source: D) -> Result<(), D::Error> {
    match bool::deserialize(source)? {
        true => Ok(()),
        false => Err(serde::de::Error::custom("must be true")),
    }
}

/// Writes what [`yes`] reads.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(crate) fn write_yes<S: serde::Serializer>((): &(), out: S) -> Result<S::Ok, S::Error> {
    out.serialize_bool(true)
}
