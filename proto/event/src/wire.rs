//! One event as JSON: `{v, type, eventId, at, actor?, data}`. Reads strictly and writes in one form; never canonical bytes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::data::{self, Data};
use crate::id::EventId;
use crate::seal::OpenError;
use crate::stamp;

/// What happened, when, and on whose account. `at` holds microseconds; what is finer is dropped on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub at: OffsetDateTime,
    pub actor: Option<Actor>,
    pub data: Data,
}

/// On whose account an event happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    pub kind: ActorKind,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    Operator,
    Kernel,
    Agent,
    System,
    Service,
}

impl ActorKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Kernel => "kernel",
            Self::Agent => "agent",
            Self::System => "system",
            Self::Service => "service",
        }
    }
}

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    event_id: EventId,
    #[serde(with = "stamp")]
    at: OffsetDateTime,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    actor: Option<Actor>,
}

impl Event {
    /// The event as JSON, not yet redacted.
    pub fn to_value(&self) -> Result<Value, data::NotJson> {
        let Self { id, at, actor, data } = self;
        let head = Head { event_id: *id, at: *at, actor: actor.clone() };
        let Value::Object(mut map) = data::to_json(&head)? else { return Err(data::NotJson) };
        map.insert("v".into(), VERSION.into());
        map.insert("type".into(), data.kind().into());
        map.insert("data".into(), data.to_value()?);
        Ok(Value::Object(map))
    }

    /// Gates in the order v, type, data; members nobody knows and second spellings of known ones are refused.
    pub(crate) fn from_value(value: &Value) -> Result<Self, OpenError> {
        let mut map: Map<String, Value> = value.as_object().ok_or(OpenError::Version)?.clone();
        if map.remove("v").as_ref().and_then(Value::as_u64) != Some(VERSION) {
            return Err(OpenError::Version);
        }
        let kind = map.remove("type");
        let kind = kind.as_ref().and_then(Value::as_str).ok_or(OpenError::Type)?;
        let kind = *Data::KINDS.iter().find(|known| **known == kind).ok_or(OpenError::Type)?;
        let schema = |detail: String| OpenError::Data { kind, detail };

        let data = map.remove("data").ok_or_else(|| schema("missing field `data`".to_owned()))?;
        let data = Data::from_value(kind, &data)?;
        let Head { event_id, at, actor } = serde_json::from_value(Value::Object(map))
            .map_err(|error| schema(data::detail(&error)))?;
        let event = Self { id: event_id, at, actor, data };
        match event.to_value() {
            Ok(again) if again == *value => Ok(event),
            Ok(_) | Err(data::NotJson) => Err(schema("a member is not in its one form".to_owned())),
        }
    }
}
