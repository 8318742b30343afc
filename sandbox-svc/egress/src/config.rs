//! What a broker is told once, before it takes its first connection: one strict JSON document. Nothing in it has a
//! default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hosts::{BadTarget, Pattern, Target};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Every one must allow a target.
    pub layers: Vec<Layer>,
    /// Hosts whose addresses may be private: the administrator's list.
    pub private: Vec<Host<Target>>,
    pub limits: Limits,
}

/// The rules of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Denied whatever else is written.
    pub never: Vec<Rule>,
    /// The longest that covers a target decides; of equal length, a deny.
    pub rules: Vec<Rule>,
    pub otherwise: Otherwise,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub hosts: Host<Pattern>,
    pub effect: Effect,
    /// What decisions call it.
    pub rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Otherwise {
    pub effect: Effect,
    /// The only port that it allows; absent for a file that merely narrows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub head_ms: u64,
    pub resolve_ms: u64,
    pub connect_ms: u64,
    pub hello_ms: u64,
    pub idle_ms: u64,
    /// In all connections together.
    pub upload_bytes: u64,
    pub download_bytes: u64,
    /// At one time.
    pub connections: u32,
    /// In the broker's life; each is one decision.
    pub requests: u32,
}

impl Limits {
    /// What a command has where nobody says less.
    pub const COMMAND: Self = Self {
        head_ms: 5_000,
        resolve_ms: 5_000,
        connect_ms: 10_000,
        hello_ms: 10_000,
        idle_ms: 60_000,
        upload_bytes: 8 << 20,
        download_bytes: 256 << 20,
        connections: 64,
        requests: 1024,
    };

    pub(crate) fn head(&self) -> Duration {
        Duration::from_millis(self.head_ms)
    }

    pub(crate) fn resolve(&self) -> Duration {
        Duration::from_millis(self.resolve_ms)
    }

    pub(crate) fn connect(&self) -> Duration {
        Duration::from_millis(self.connect_ms)
    }

    pub(crate) fn hello(&self) -> Duration {
        Duration::from_millis(self.hello_ms)
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

/// A target or pattern in its text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host<T>(pub T);

impl Serialize for Host<Pattern> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl Serialize for Host<Target> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: std::str::FromStr<Err = BadTarget>> Deserialize<'de> for Host<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    #[error("the configuration is not the document that a broker takes")]
    Form(#[source] serde_json::Error),
    #[error("nothing in the configuration narrows what may be reached")]
    Open,
    #[error("a limit is zero")]
    Zero,
}

impl Config {
    pub fn parse(bytes: &[u8]) -> Result<Self, BadConfig> {
        let config: Self = serde_json::from_slice(bytes).map_err(BadConfig::Form)?;
        // Without a layer everything would be allowed by nobody.
        if config.layers.is_empty() {
            return Err(BadConfig::Open);
        }
        let Limits {
            head_ms,
            resolve_ms,
            connect_ms,
            hello_ms,
            idle_ms,
            upload_bytes,
            download_bytes,
            connections,
            requests,
        } = config.limits;
        let times = [head_ms, resolve_ms, connect_ms, hello_ms, idle_ms];
        let amounts = [upload_bytes, download_bytes, u64::from(connections), u64::from(requests)];
        if times.into_iter().chain(amounts).any(|amount| amount == 0) {
            return Err(BadConfig::Zero);
        }
        Ok(config)
    }
}
