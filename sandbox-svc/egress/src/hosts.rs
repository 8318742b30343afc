//! What a caller may name: a host by its DNS name and a port, and the patterns that cover such targets. It knows one
//! spelling of a name and no spelling of an address.

use std::fmt;
use std::str::FromStr;

const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A lower-case DNS name and a port, written `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    host: String,
    port: u16,
}

/// Why a text names no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadTarget {
    #[error("it is not written host:port")]
    Form,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("it is an address; only names are connected to")]
    Address,
    #[error("the host is not a name of labels of a-z, 0-9 and -, joined by dots")]
    Name,
}

impl Target {
    /// Of bytes as they came: one trailing dot and upper case are other spellings of a name, nothing else is.
    pub fn parse(authority: &[u8]) -> Result<Self, BadTarget> {
        // First, so that no rule below ever sees another script's look-alikes or a control character.
        if !authority.iter().all(u8::is_ascii_graphic) {
            return Err(BadTarget::Name);
        }
        let text = std::str::from_utf8(authority).map_err(|_| BadTarget::Name)?;
        let (host, port) = split(text)?;
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        check_name(&host)?;
        Ok(Self { host, port: number(port)? })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        write!(f, "{host}:{port}")
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        Self::parse(text.as_bytes())
    }
}

/// Targets by one host, by everything below a domain (and not the domain), or all; on one port or on any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    name: Name,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    One(String),
    Below(String),
    Any,
}

impl Pattern {
    pub fn covers(&self, target: &Target) -> bool {
        let name = match &self.name {
            Name::One(host) => *host == target.host,
            Name::Below(domain) => target
                .host
                .strip_suffix(domain.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            Name::Any => true,
        };
        name && self.port.is_none_or(|port| port == target.port)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = BadTarget;

    /// Strict: a pattern has one spelling.
    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let (host, port) = split(text)?;
        let port = if port == "*" { None } else { Some(number(port)?) };
        let checked = |name: &str| check_name(name).map(|()| name.to_owned());
        let name = match host.strip_prefix("*.") {
            Some(domain) => Name::Below(checked(domain)?),
            None if host == "*" => Name::Any,
            None => Name::One(checked(host)?),
        };
        Ok(Self { text: text.to_owned(), name, port })
    }
}

/// At the only colon: what has more is an address, or means to be taken for two hosts.
fn split(text: &str) -> Result<(&str, &str), BadTarget> {
    let address = text.contains(['[', ']']) || text.matches(':').count() > 1;
    if address && !text.contains(['@', '/']) {
        return Err(BadTarget::Address);
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host, port)),
        Some(_) | None => Err(BadTarget::Form),
    }
}

fn number(port: &str) -> Result<u16, BadTarget> {
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    if plain { port.parse().map_err(|_| BadTarget::Port) } else { Err(BadTarget::Port) }
}

/// Of lower case.
fn check_name(host: &str) -> Result<(), BadTarget> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(letter)
    };
    if host.is_empty() || host.len() > MAX_NAME || !host.split('.').all(label) {
        return Err(BadTarget::Name);
    }
    // A resolver takes a final label that begins like a number, in any base, for part of an address. No domain ends
    // in one: a top level is letters, or xn-- and what follows.
    let last = host.rsplit('.').next().unwrap_or(host);
    if last.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(BadTarget::Address);
    }
    Ok(())
}
