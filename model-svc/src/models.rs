//! The models that this installation offers, from one file: names to providers. A caller can name one of them and nothing
//! else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::key::{self, ProviderKey};
use crate::provider::{
    Endpoint, MaxTokensField, NoScript, NotAnEndpoint, OpenAi, Provider, Scripted, Settings,
};

const MAX_BYTES: u64 = 256 * 1024;
const MAX_ID: usize = 256;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(1_800);
const DEFAULT_OUTPUT: u64 = 8_192;

#[derive(Debug)]
pub(crate) struct Models(BTreeMap<String, Provider>);

/// One thing that is wrong with the models file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("models file {}: cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("models file {}: larger than {MAX_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("models file {}: {what}", path.display())]
    Toml { path: PathBuf, what: String },
    #[error("models file: no [[model]]; add one")]
    Empty,
    #[error("model {id}: listed twice; remove one")]
    Twice { id: String },
    #[error("a model has no id of 1 to {MAX_ID} printable characters")]
    Id,
    #[error("model {id}: timeout must be between 1ms and {}s", LONGEST_TIMEOUT.as_secs())]
    Timeout { id: String },
    #[error("model {id}: max_output_tokens must be positive")]
    MaxOutputTokens { id: String },
    #[error("model {id}: no such endpoint can be used")]
    Endpoint { id: String, source: NotAnEndpoint },
    #[error("model {id}: no key")]
    Key { id: String, source: key::Unusable },
    #[error("model {id}: no script")]
    Script { id: String, source: NoScript },
    #[error("model {id}: no HTTP client can be made for it")]
    Client {
        id: String,
        #[source]
        source: reqwest::Error,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(tag = "provider", rename_all = "kebab-case", deny_unknown_fields)]
enum Entry {
    Scripted {
        id: String,
        script: PathBuf,
    },
    OpenaiCompatible {
        id: String,
        base_url: String,
        key_file: Option<PathBuf>,
        upstream_model: String,
        #[serde(default, deserialize_with = "duration")]
        timeout: Option<Duration>,
        max_output_tokens: Option<u64>,
        #[serde(default)]
        max_tokens_field: MaxTokensField,
    },
}

impl Entry {
    fn id(&self) -> &str {
        match self {
            Self::Scripted { id, .. } | Self::OpenaiCompatible { id, .. } => id,
        }
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    transport::config::duration(&text).map(Some).map_err(serde::de::Error::custom)
}

impl Models {
    /// Reads the file, every key and every script; tells everything that is wrong. Names in it are relative to it.
    pub(crate) fn read(path: &Path) -> Result<Self, Vec<Fault>> {
        let entries = entries(path).map_err(|fault| vec![fault])?;
        let base = path.parent().unwrap_or_else(|| Path::new(""));
        let mut models = BTreeMap::new();
        let mut faults = Vec::new();
        for entry in entries {
            let id = entry.id().to_owned();
            if !(1..=MAX_ID).contains(&id.len()) || id.chars().any(|c| c.is_control() || c == ' ') {
                faults.push(Fault::Id);
                continue;
            }
            match provider(entry, base) {
                Ok(_) if models.contains_key(&id) => faults.push(Fault::Twice { id }),
                Ok(provider) => {
                    models.insert(id, provider);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if models.is_empty() && faults.is_empty() {
            faults.push(Fault::Empty);
        }
        if faults.is_empty() { Ok(Self(models)) } else { Err(faults) }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Provider> {
        self.0.get(id)
    }
}

fn entries(path: &Path) -> Result<Vec<Entry>, Fault> {
    let read = |source| Fault::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(read)?.len() > MAX_BYTES {
        return Err(Fault::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    toml::from_str::<File>(&text)
        .map(|file| file.model)
        // The library's message quotes the line, and a line might hold what someone put there by mistake.
        .map_err(|error| Fault::Toml { path: path.to_owned(), what: error.message().to_owned() })
}

fn provider(entry: Entry, base: &Path) -> Result<Provider, Fault> {
    match entry {
        Entry::Scripted { id, script } => Scripted::read(&base.join(script))
            .map(Provider::Scripted)
            .map_err(|source| Fault::Script { id, source }),
        Entry::OpenaiCompatible {
            id,
            base_url,
            key_file,
            upstream_model,
            timeout,
            max_output_tokens,
            max_tokens_field,
        } => {
            let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
            if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
                return Err(Fault::Timeout { id });
            }
            let max_output_tokens = max_output_tokens.unwrap_or(DEFAULT_OUTPUT);
            if max_output_tokens == 0 {
                return Err(Fault::MaxOutputTokens { id });
            }
            let endpoint = match base_url.parse::<Endpoint>() {
                Ok(endpoint) => endpoint,
                Err(source) => return Err(Fault::Endpoint { id, source }),
            };
            let key = match key_file.map(|file| ProviderKey::read(&base.join(file))).transpose() {
                Ok(key) => key,
                Err(source) => return Err(Fault::Key { id, source }),
            };
            OpenAi::new(Settings {
                endpoint,
                key,
                upstream_model,
                timeout,
                max_output_tokens,
                max_tokens_field,
            })
            .map(Provider::OpenAi)
            .map_err(|source| Fault::Client { id, source })
        }
    }
}

#[cfg(test)]
mod tests;
