//! YAML as a small tree in which every key and value knows its place; anchors are few, duplicate keys and
//! merge keys are refused. It does not know what a manifest is.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{DefaultMessageFormatter, Error, Location, MessageFormatter as _, Spanned};

/// Line and column, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl Place {
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(u64),
    /// A negative or fractional number, as text.
    OtherNumber(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) key: String,
    pub(crate) value: Node,
}

impl Value {
    /// For messages: what the value is, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::OtherNumber(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Why there is no tree.
#[derive(Debug)]
pub(crate) struct NotYaml {
    pub(crate) place: Place,
    pub(crate) what: String,
}

pub(crate) fn parse(text: &str) -> Result<Node, NotYaml> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 40_000,
            max_nodes: 20_000,
            max_depth: 16,
            max_aliases: 32,
            max_anchors: 32,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 2_000,
            max_replay_stack_depth: 4,
            max_alias_expansions_per_anchor: 32,
        },
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options).map(Node::from).map_err(
        |error| NotYaml {
            place: error.location().map_or(Place::START, Place::from),
            what: what(&error),
        },
    )
}

/// The library's words without its place, except where they would not say what to do.
fn what(error: &Error) -> String {
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key {key}; remove one")
        }
        Error::MergeKeyNotAllowed { .. } => {
            "merge keys are not taken; write the keys out".to_owned()
        }
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "more than one document; keep one".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "too deep, too many values or too many anchors; write it more plainly".to_owned()
        }
        Error::AliasError { error, .. } => what(error),
        other => DefaultMessageFormatter.format_message(other).into_owned(),
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self { line: location.line().max(1), column: location.column().max(1) }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { place: spanned.referenced.into(), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value)
            .map_or_else(|_| Value::OtherNumber(value.to_string()), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::OtherNumber(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Value>>()? {
            list.push(item.into());
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((key, value)) = members.next_entry::<Spanned<String>, Spanned<Value>>()? {
            // The parser compares keys as YAML values; two spellings of one text are caught here.
            if entries.iter().any(|entry| entry.key == key.value) {
                return Err(A::Error::custom(format!("duplicate key {}; remove one", key.value)));
            }
            entries.push(Entry {
                place: key.referenced.into(),
                key: key.value,
                value: value.into(),
            });
        }
        Ok(Value::Map(entries))
    }
}
