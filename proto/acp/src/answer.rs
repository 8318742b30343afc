//! What the gateway answers: the result of every method, as strict for the client as parameters are for the gateway.
use event::id::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limit::{MAX_MODELS, MAX_SAFE};
use crate::number::{Cursor, Seq};
use crate::strict::{self, Object};
use crate::text::{ClientName, FinalText, ModelName, ProtocolVersion, Version};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitializeAnswer {
    pub protocol_version: ProtocolVersion,
    pub agent_name: ClientName,
    #[serde(
        default,
        deserialize_with = "strict::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_version: Option<Version>,
    #[serde(deserialize_with = "strict::object")]
    pub capabilities: AgentCapabilities,
    #[serde(deserialize_with = "models")]
    pub models: Vec<ModelName>,
}

/// What the gateway does on this connection. `sessions` repeats the client's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentCapabilities {
    #[serde(deserialize_with = "strict::yes", serialize_with = "strict::write_yes")]
    pub streaming: (),
    #[serde(deserialize_with = "strict::yes", serialize_with = "strict::write_yes")]
    pub permissioning: (),
    pub sessions: bool,
}

fn models<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<ModelName>, D::Error> {
    let models = Vec::deserialize(source)?;
    match models.len() <= MAX_MODELS {
        true => Ok(models),
        false => Err(serde::de::Error::custom("more models than may be listed")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewAnswer {
    pub session_id: SessionId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromptAnswer {
    pub status: PromptStatus,
    /// Events are sent as they happen, so the list in the answer stays empty.
    #[serde(deserialize_with = "none", serialize_with = "write_none")]
    pub events: (),
    pub final_text: FinalText,
    #[serde(deserialize_with = "strict::object")]
    pub usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptStatus {
    Completed,
    Failed,
}

fn none<'de, D: serde::Deserializer<'de>>(source: D) -> Result<(), D::Error> {
    let events: Vec<serde::de::IgnoredAny> = Vec::deserialize(source)?;
    match events.is_empty() {
        true => Ok(()),
        false => Err(serde::de::Error::custom("must be empty")),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn write_none<S: serde::Serializer>((): &(), out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(std::iter::empty::<()>())
}

/// Tokens of a run; the total is the sum of both, by construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UsageMembers", into = "UsageMembers")]
pub struct Usage {
    prompt: u64,
    completion: u64,
}

impl Usage {
    /// `None` when the sum is no longer a safe integer.
    #[must_use]
    pub fn new(prompt: u64, completion: u64) -> Option<Self> {
        prompt
            .checked_add(completion)
            .filter(|total| *total <= MAX_SAFE)
            .map(|_| Self { prompt, completion })
    }

    #[must_use]
    pub fn prompt(self) -> u64 {
        self.prompt
    }

    #[must_use]
    pub fn completion(self) -> u64 {
        self.completion
    }

    #[must_use]
    pub fn total(self) -> u64 {
        self.prompt + self.completion
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UsageMembers {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl TryFrom<UsageMembers> for Usage {
    type Error = &'static str;
    fn try_from(members: UsageMembers) -> Result<Self, Self::Error> {
        let UsageMembers { prompt_tokens, completion_tokens, total_tokens } = members;
        Self::new(prompt_tokens, completion_tokens)
            .filter(|usage| usage.total() == total_tokens)
            .ok_or("totalTokens must be the sum of both and a safe integer")
    }
}

impl From<Usage> for UsageMembers {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            total_tokens: usage.total(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RespondAnswer {
    #[serde(deserialize_with = "strict::yes", serialize_with = "strict::write_yes")]
    pub accepted: (),
    /// An allow that is not yet enough; absent where the ask is settled.
    #[serde(default, deserialize_with = "counted", skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// Of what the plan asks of people, the part that lacks most has `have` of `need`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Counted {
    pub have: u32,
    pub need: u32,
}

fn counted<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Counted>, D::Error> {
    let counted: Counted = strict::object(source)?;
    match counted.have < counted.need {
        true => Ok(Some(counted)),
        false => Err(serde::de::Error::custom("have must be below need")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelAnswer {
    /// False when the session had already ended.
    pub canceled: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachAnswer {
    /// The last event that is recorded now; those after the client's own cursor follow as `session/event`.
    pub through_seq: Cursor,
    #[serde(deserialize_with = "open")]
    pub open: Vec<OpenAsk>,
}

/// The original `permission.requested` event of an ask that is still open, byte for byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenAsk {
    pub seq: Seq,
    pub event: Box<RawValue>,
}

fn open<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<OpenAsk>, D::Error> {
    let asks: Vec<Object<OpenAsk>> = Vec::deserialize(source)?;
    Ok(asks.into_iter().map(|Object(ask)| ask).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_only_counts_says_how_far_it_is() {
        let read = |text: &str| {
            serde_json::from_str::<Object<RespondAnswer>>(text).map(|Object(answer)| answer)
        };
        let text = r#"{"accepted":true,"counted":{"have":1,"need":2}}"#;
        let answer = read(text).expect("an answer");
        assert_eq!(answer.counted, Some(Counted { have: 1, need: 2 }));
        assert_eq!(serde_json::to_string(&answer).expect("JSON"), text);
        let plain = read(r#"{"accepted":true}"#).expect("an answer");
        assert_eq!(plain, RespondAnswer { accepted: (), counted: None });
        for bad in [
            r#"{"accepted":true,"counted":null}"#,
            r#"{"accepted":true,"counted":[1,2]}"#,
            r#"{"accepted":true,"counted":{"have":2,"need":2}}"#,
            r#"{"accepted":true,"counted":{"have":-1,"need":2}}"#,
            r#"{"accepted":true,"counted":{"have":1}}"#,
            r#"{"accepted":true,"counted":{"have":1,"need":2,"by":"a"}}"#,
            r#"{"counted":{"have":1,"need":2}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
