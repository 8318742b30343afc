//! Where a provider is: an absolute URL that is parsed once. Nothing a caller says can add to it.

use std::str::FromStr;

use reqwest::Url;

const MAX_URL: usize = 2_048;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    completions: Url,
    plaintext: bool,
}

/// Why a base URL is not taken; it is not repeated, since it may hold what should not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAnEndpoint {
    #[error("base_url is not an absolute URL of at most {MAX_URL} characters")]
    Url,
    #[error(
        "base_url must begin with https://, or with http:// and a loopback address such as 127.0.0.1"
    )]
    Scheme,
    #[error("base_url holds a user name or password; put the key into key_file")]
    UserInfo,
    #[error("base_url holds a query or a fragment; remove it")]
    Query,
    #[error("base_url ends in /chat/completions; leave that off")]
    Completions,
}

impl Endpoint {
    pub(super) fn completions(&self) -> Url {
        self.completions.clone()
    }

    /// Only ever on loopback.
    pub(super) fn is_plaintext(&self) -> bool {
        self.plaintext
    }
}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        if text.len() > MAX_URL {
            return Err(NotAnEndpoint::Url);
        }
        let mut url = Url::parse(text).map_err(|_| NotAnEndpoint::Url)?;
        let plaintext = match url.scheme() {
            "https" => false,
            "http" if is_loopback(&url) => true,
            _ => return Err(NotAnEndpoint::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotAnEndpoint::UserInfo);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(NotAnEndpoint::Query);
        }
        if url.path().trim_end_matches('/').ends_with("/chat/completions") {
            return Err(NotAnEndpoint::Completions);
        }
        url.path_segments_mut()
            .map_err(|()| NotAnEndpoint::Url)?
            .pop_if_empty()
            .extend(["chat", "completions"]);
        Ok(Self { completions: url, plaintext })
    }
}

/// A literal address: a name could be made to point elsewhere.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, NotAnEndpoint};

    fn parse(text: &str) -> Result<String, NotAnEndpoint> {
        text.parse::<Endpoint>().map(|endpoint| endpoint.completions.to_string())
    }

    #[test]
    fn the_path_is_joined_by_segments() {
        let whole = Ok("https://api.example.test/v1/chat/completions".to_owned());
        assert_eq!(parse("https://api.example.test/v1"), whole);
        assert_eq!(parse("https://api.example.test/v1/"), whole);
        let local = Ok("http://127.0.0.1:8080/chat/completions".to_owned());
        assert_eq!(parse("http://127.0.0.1:8080"), local);
        assert_eq!(parse("http://[::1]:1/"), Ok("http://[::1]:1/chat/completions".to_owned()));
    }

    #[test]
    fn what_could_lead_a_key_astray_is_refused() {
        for (text, expected) in [
            ("", NotAnEndpoint::Url),
            ("/v1", NotAnEndpoint::Url),
            ("ftp://example.test", NotAnEndpoint::Scheme),
            ("file:///etc/passwd", NotAnEndpoint::Scheme),
            ("http://api.example.test/v1", NotAnEndpoint::Scheme),
            ("http://localhost:8080", NotAnEndpoint::Scheme),
            ("http://127.0.0.1.example.test", NotAnEndpoint::Scheme),
            ("http://0.0.0.0", NotAnEndpoint::Scheme),
            ("https://user@example.test", NotAnEndpoint::UserInfo),
            ("https://user:word@example.test", NotAnEndpoint::UserInfo),
            ("https://example.test/v1?key=a", NotAnEndpoint::Query),
            ("https://example.test/v1#a", NotAnEndpoint::Query),
            ("https://example.test/v1/chat/completions/", NotAnEndpoint::Completions),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        assert_eq!(
            parse(&format!("https://example.test/{}", "a".repeat(2_048))),
            Err(NotAnEndpoint::Url)
        );
    }
}
