//! Answers from a file, turn by turn, for demonstrations and tests: no network, no key. What it says passes the same
//! judgement as a real provider's answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Need;
use crate::finalize::{self, Raw, RawCall, RawFinish, RawUsage};
use crate::turn::{Answer, Failure, Kind, Message, Turn, Usage};

const MAX_BYTES: u64 = 1024 * 1024;
/// What a turn costs that says nothing of it: by the number of things, not by their length, so that it is the same
/// wherever it runs.
const PER_ITEM: u64 = 10;

/// Turns by the number of the step.
#[derive(Debug)]
pub(crate) struct Scripted {
    turns: Vec<ScriptedTurn>,
    /// The turns of a conversation that begins with just these words.
    asked: BTreeMap<String, Vec<ScriptedTurn>>,
}

/// Why a file is no script.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoScript {
    #[error("script {}: cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("script {}: larger than {MAX_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("script {}: {what}", path.display())]
    Yaml { path: PathBuf, what: String },
}

/// A scenario of the first seed has more members; they are for its runner.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    script: Vec<ScriptedTurn>,
    #[serde(default)]
    asked: BTreeMap<String, Vec<ScriptedTurn>>,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "uses_tasks")]
    _uses_tasks: IgnoredAny,
    #[serde(default, rename = "expect")]
    _expect: IgnoredAny,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptedTurn {
    content: Option<String>,
    finish_reason: Option<FinishReason>,
    #[serde(default)]
    tool_calls: Vec<ScriptedCall>,
    usage: Option<ScriptedUsage>,
    /// How long the answer takes.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FinishReason {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    id: String,
    name: String,
    arguments: Arguments,
}

/// An object, or the text of one as a provider would send it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Arguments {
    Text(String),
    Object(serde_json::Map<String, serde_json::Value>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptedUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: Option<u64>,
}

impl Scripted {
    pub(crate) fn read(path: &Path) -> Result<Self, NoScript> {
        let read = |source| NoScript::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(read)?.len() > MAX_BYTES {
            return Err(NoScript::TooLarge { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(&text).map_err(|what| NoScript::Yaml { path: path.to_owned(), what })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options::<File>(text, options)
            .map(|File { script, asked, .. }| Self { turns: script, asked })
            .map_err(|error| error.to_string())
    }

    /// The script knows what the turn will cost.
    pub(super) fn need(&self, turn: &Turn) -> Need {
        match self.turn(turn) {
            Some(scripted) => {
                let Usage { prompt, completion, estimated: _ } = scripted.cost(turn);
                Need { input: prompt, least: completion, most: completion }
            }
            None => Need { input: 0, least: 0, most: 0 },
        }
    }

    pub(super) async fn complete(&self, turn: &Turn) -> Result<Answer, Failure> {
        let scripted = self.turn(turn).ok_or_else(|| Failure::new(Kind::InvalidRequest))?;
        if scripted.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(scripted.delay_ms)).await;
        }
        finalize::finalize(scripted.raw(turn), scripted.cost(turn))
    }

    fn turn(&self, turn: &Turn) -> Option<&ScriptedTurn> {
        let first = turn.messages.iter().find_map(|message| match message {
            Message::User(text) => Some(text),
            Message::System(_) | Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        let asked = first.and_then(|first| self.asked.get(first));
        asked.unwrap_or(&self.turns).get(usize::try_from(turn.step).ok()?)
    }
}

impl ScriptedTurn {
    fn cost(&self, turn: &Turn) -> Usage {
        let items =
            |count: usize| PER_ITEM.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX));
        let (prompt, completion) = match self.usage {
            Some(ScriptedUsage { prompt_tokens, completion_tokens, total_tokens: _ }) => {
                (prompt_tokens, completion_tokens)
            }
            None => (items(turn.messages.len()), items(1 + self.tool_calls.len())),
        };
        Usage { prompt, completion, estimated: false }
    }

    fn raw(&self, turn: &Turn) -> Raw {
        let finish = match self.finish_reason {
            Some(FinishReason::Stop) => RawFinish::Stop,
            Some(FinishReason::ToolCalls) => RawFinish::ToolCalls,
            Some(FinishReason::Length) => RawFinish::Length,
            Some(FinishReason::ContentFilter) => RawFinish::ContentFilter,
            None if self.tool_calls.is_empty() => RawFinish::Stop,
            None => RawFinish::ToolCalls,
        };
        let Usage { prompt, completion, estimated: _ } = self.cost(turn);
        let total = self.usage.and_then(|usage| usage.total_tokens);
        Raw {
            model: turn.model.clone(),
            request_id: None,
            finish,
            text: self.content.clone().unwrap_or_default(),
            calls: self.tool_calls.iter().map(ScriptedCall::raw).collect(),
            usage: RawUsage::Counted { prompt, completion, total },
        }
    }
}

impl ScriptedCall {
    fn raw(&self) -> RawCall {
        let arguments = match &self.arguments {
            Arguments::Text(text) => text.clone(),
            Arguments::Object(object) => serde_json::Value::Object(object.clone()).to_string(),
        };
        RawCall {
            id: Some(self.id.clone()),
            name: Some(self.name.clone()),
            arguments: Some(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scripted;

    #[test]
    fn a_scenario_of_the_first_seed_is_a_script() {
        let text = "\
id: golden
uses_tasks: [demo]
script:
  - {content: one, finishReason: length}
  - toolCalls:
      - {id: a, name: process.exec, arguments: {argv: [ls, 'on'], timeoutSeconds: 5}}
      - {id: b, name: read_file, arguments: '{\"path\":'}
    usage: {promptTokens: 1, completionTokens: 2, totalTokens: 3}
    delayMs: 5
expect: {run: {status: completed}}
asked:
  'look around': [{content: seen}]
";
        let script = Scripted::parse(text).unwrap();
        let arguments: Vec<_> =
            script.turns[1].tool_calls.iter().map(|call| call.raw().arguments.unwrap()).collect();
        assert_eq!(script.asked["look around"][0].content.as_deref(), Some("seen"));
        assert_eq!(arguments, [r#"{"argv":["ls","on"],"timeoutSeconds":5}"#, r#"{"path":"#]);
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_place() {
        for text in [
            "",
            "script: {}",
            "turns: []",
            "script: [{contents: a}]",
            "script: [{finishReason: done}]",
            "script: [{toolCalls: [{id: a, name: x}]}]",
            "script: [{toolCalls: [{id: a, name: x, arguments: 5}]}]",
            "script: []\nscript: []",
        ] {
            let refused = Scripted::parse(text).err();
            assert!(refused.is_some_and(|what| text.is_empty() || what.contains("line")), "{text}");
        }
    }
}
