//! Where a client may connect: `wss` anywhere, `ws` to this machine only, and never with a credential in the address.
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

use crate::token::Token;

/// A gateway's address. A path that is absent or `/` means the dialect's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

/// The address is not one to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointRefused {
    #[error("not an address; give wss://HOST:PORT")]
    Form,
    #[error("only wss:// and ws:// addresses can be used")]
    Scheme,
    #[error("plain ws:// is for this machine only; use wss://")]
    Plain,
    #[error("credentials do not belong in an address; give the token in its own file or option")]
    Credential,
    #[error("the address has a query; nothing is passed in it")]
    Query,
}

impl FromStr for Endpoint {
    type Err = EndpointRefused;
    fn from_str(text: &str) -> Result<Self, EndpointRefused> {
        if text.contains("hns_") {
            return Err(EndpointRefused::Credential);
        }
        let uri = Uri::from_str(text).map_err(|_| EndpointRefused::Form)?;
        let authority = uri.authority().ok_or(EndpointRefused::Form)?;
        if authority.as_str().contains('@') {
            return Err(EndpointRefused::Credential);
        }
        if let Some(query) = uri.query() {
            return Err(if names_credential(query) {
                EndpointRefused::Credential
            } else {
                EndpointRefused::Query
            });
        }
        if text.contains('#') {
            return Err(EndpointRefused::Form);
        }
        let tls = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            _ => return Err(EndpointRefused::Scheme),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(EndpointRefused::Form);
        }
        if !tls && !is_loopback(&host) {
            return Err(EndpointRefused::Plain);
        }
        // A port that is written but is none (":", ":99999") must not turn into the default.
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str().ends_with(authority.host()) => {
                if tls {
                    443
                } else {
                    80
                }
            }
            None => return Err(EndpointRefused::Form),
        };
        let path = match uri.path() {
            "" | "/" => crate::PATH,
            path => path,
        };
        Ok(Self { tls, host, port, path: path.to_owned() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "wss" } else { "ws" };
        write!(out, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl Endpoint {
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn names_credential(query: &str) -> bool {
    const NAMES: [&str; 5] = ["token", "access_token", "ticket", "key", "auth"];
    query.split(['&', ';']).any(|pair| {
        let name = pair.split('=').next().unwrap_or(pair);
        NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
    })
}

/// What authenticates the person, for the `Authorization` header and nowhere else.
#[derive(Clone)]
pub struct Bearer(http::HeaderValue);

/// The text cannot be a bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a bearer token: it must be printable and without spaces")]
pub struct NotBearer;

impl Bearer {
    pub fn new(text: &str) -> Result<Self, NotBearer> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NotBearer);
        }
        let mut value =
            http::HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| NotBearer)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(super) fn header(&self) -> http::HeaderValue {
        self.0.clone()
    }
}

impl From<&Token> for Bearer {
    fn from(token: &Token) -> Self {
        let mut value = http::HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
            .unwrap_or_else(|_| http::HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        Self(value)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Bearer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_path_mean_the_dialects_own() {
        for (text, shown) in [
            ("wss://gateway.example", "wss://gateway.example:443/harness"),
            ("wss://127.0.0.1:8443/", "wss://127.0.0.1:8443/harness"),
            ("wss://[::1]:8443/other", "wss://[::1]:8443/other"),
            ("ws://localhost:8080", "ws://localhost:8080/harness"),
            ("ws://127.9.9.9", "ws://127.9.9.9:80/harness"),
        ] {
            assert_eq!(
                text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()),
                Ok(shown.to_owned())
            );
        }
    }

    #[test]
    fn what_must_not_be_connected_to_is_refused_by_reason() {
        for (text, reason) in [
            ("", EndpointRefused::Form),
            ("gateway", EndpointRefused::Scheme),
            ("https://gateway", EndpointRefused::Scheme),
            ("ws://gateway", EndpointRefused::Plain),
            ("ws://localhost.evil.example", EndpointRefused::Plain),
            ("ws://10.0.0.1", EndpointRefused::Plain),
            ("wss://me:secret@gateway", EndpointRefused::Credential),
            ("wss://me@gateway", EndpointRefused::Credential),
            ("wss://gateway/?token=x", EndpointRefused::Credential),
            ("wss://gateway/harness?a=1&Access_Token=x", EndpointRefused::Credential),
            ("wss://gateway/harness?key", EndpointRefused::Credential),
            ("wss://gateway/hns_abc", EndpointRefused::Credential),
            ("wss://gateway/?a=1", EndpointRefused::Query),
            ("wss://gateway:99999", EndpointRefused::Form),
            ("wss://gateway:", EndpointRefused::Form),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(reason), "{text}");
        }
    }

    #[test]
    fn a_bearer_is_never_shown() {
        let bearer = Bearer::new("hns_x").expect("printable");
        assert_eq!(format!("{bearer:?} {:?}", bearer.header()), "Bearer Sensitive");
        for bad in ["", "a b", "a\n", "é"] {
            assert_eq!(Bearer::new(bad).map(|_| ()), Err(NotBearer), "{bad:?}");
        }
    }
}
