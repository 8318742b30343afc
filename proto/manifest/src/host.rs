//! Where a command may connect to: `host:port` by name. Addresses are refused, since a name that is allowed
//! must not be a way to write one that is not.

use std::fmt;

const MAX_HOST: usize = 253;
const MAX_LABEL: usize = 63;

/// A lower-case host name and a port, written `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// Why a text names no host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadHost {
    #[error("there is no port; write host:port")]
    NoPort,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("the host is an address; write its name")]
    Address,
    #[error("the host is not a name of labels of a-z, 0-9, - and _ joined by dots")]
    Name,
    #[error("the host is not in lower case")]
    Case,
    #[error("a * stands for the whole host or for what comes before a domain, as in *.pkg.test")]
    Wildcard,
}

impl HostPort {
    /// Upper case is another spelling of the same host.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let (host, port) = split(text)?;
        let host = host.to_ascii_lowercase();
        check_name(&host)?;
        Ok(Self { host, port: port_number(port)? })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        write!(f, "{host}:{port}")
    }
}

/// Hosts that a pattern covers. Two patterns have in common what a third covers, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hosts {
    name: Name,
    /// Absent for every port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Any,
    Below(String),
    One(String),
}

impl Hosts {
    pub(crate) fn parse(pattern: &str) -> Result<Self, BadHost> {
        check_pattern(pattern)?;
        let (host, port) = split(pattern)?;
        let port = if port == "*" { None } else { Some(port_number(port)?) };
        let name = match host.strip_prefix("*.") {
            Some(domain) => Name::Below(domain.to_owned()),
            None if host == "*" => Name::Any,
            None => Name::One(host.to_owned()),
        };
        Ok(Self { name, port })
    }

    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let port = match (self.port, other.port) {
            (Some(one), Some(another)) if one != another => return None,
            (one, another) => one.or(another),
        };
        Some(Self { name: self.name.meet(&other.name)?, port })
    }
}

impl Name {
    fn meet(&self, other: &Self) -> Option<Self> {
        let narrower = match (self, other) {
            (Self::Any, name) | (name, Self::Any) => name,
            (Self::One(one), Self::One(another)) => (one == another).then_some(self)?,
            (one @ Self::One(host), Self::Below(domain))
            | (Self::Below(domain), one @ Self::One(host)) => {
                is_below(host, domain).then_some(one)?
            }
            (Self::Below(one), Self::Below(another)) if one == another => self,
            (Self::Below(one), Self::Below(another)) if is_below(one, another) => self,
            (Self::Below(one), Self::Below(another)) => is_below(another, one).then_some(other)?,
        };
        Some(narrower.clone())
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Any => f.write_str("*")?,
            Name::Below(domain) => write!(f, "*.{domain}")?,
            Name::One(host) => f.write_str(host)?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => f.write_str(":*"),
        }
    }
}

/// A pattern of a rule about `network`: `host:port`, `*.domain:port` for what is below the domain and not the
/// domain itself, `*:port` for every host; the port may be `*`.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), BadHost> {
    let (host, port) = split(pattern)?;
    if port != "*" {
        port_number(port)?;
    }
    if host.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(BadHost::Case);
    }
    match host.strip_prefix("*.") {
        Some(domain) if domain.contains('*') => Err(BadHost::Wildcard),
        Some(domain) => check_name(domain),
        None if host == "*" => Ok(()),
        None if host.contains(['*', '?']) => Err(BadHost::Wildcard),
        None => check_name(host),
    }
}

fn split(text: &str) -> Result<(&str, &str), BadHost> {
    if text.starts_with('[') || text.matches(':').count() > 1 {
        return Err(BadHost::Address);
    }
    text.split_once(':').ok_or(BadHost::NoPort)
}

fn port_number(port: &str) -> Result<u16, BadHost> {
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    if plain { port.parse().map_err(|_| BadHost::Port) } else { Err(BadHost::Port) }
}

fn check_name(host: &str) -> Result<(), BadHost> {
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    if host.len() > MAX_HOST || !host.split('.').all(label) {
        return Err(BadHost::Name);
    }
    // A resolver reads a final label that is a number as part of an address, in any base.
    let last = host.rsplit('.').next().unwrap_or(host);
    let number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if number { Err(BadHost::Address) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{BadHost, HostPort, check_pattern};

    #[test]
    fn an_address_is_no_name_in_any_notation() {
        for text in [
            "10.0.0.5:443",
            "127.1:80",
            "2130706433:80",
            "0x7f000001:80",
            "0x7f.1:80",
            "[::1]:443",
            "::1:443",
            "1.2.3.0x4:80",
        ] {
            assert_eq!(HostPort::parse(text), Err(BadHost::Address), "{text}");
            assert_eq!(check_pattern(text), Err(BadHost::Address), "{text}");
        }
    }

    #[test]
    fn a_host_without_a_port_or_with_a_strange_one_is_refused() {
        assert_eq!(HostPort::parse("registry.test"), Err(BadHost::NoPort));
        for text in ["a.test:0", "a.test:65536", "a.test:", "a.test:+1", "a.test:0443", "a.test:x"]
        {
            assert_eq!(HostPort::parse(text), Err(BadHost::Port), "{text}");
        }
        for text in ["a..test:1", ".test:1", "a.test.:1", "-a.test:1", "ä.test:1", ":1", "a b:1"] {
            assert_eq!(HostPort::parse(text), Err(BadHost::Name), "{text}");
        }
    }

    #[test]
    fn patterns_are_names_or_what_is_below_a_domain() {
        for pattern in ["registry.test:443", "*.pkg.test:443", "*:443", "a.test:*", "*:*"] {
            assert_eq!(check_pattern(pattern), Ok(()), "{pattern}");
        }
        for (pattern, expected) in [
            ("Registry.test:443", BadHost::Case),
            ("*pkg.test:443", BadHost::Wildcard),
            ("a.*.test:443", BadHost::Wildcard),
            ("*.*:443", BadHost::Wildcard),
            ("?.test:443", BadHost::Wildcard),
            ("**", BadHost::NoPort),
            ("a.test:44*", BadHost::Port),
        ] {
            assert_eq!(check_pattern(pattern), Err(expected), "{pattern}");
        }
        assert_eq!(HostPort::parse("A.Test:443").unwrap().to_string(), "a.test:443");
    }
}
