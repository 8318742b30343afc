//! Origins of web pages. A page may connect only from an origin that is listed, compared as a whole.
use std::fmt;
use std::str::FromStr;

use http::Uri;

/// `https://host` or `https://host:port`, as browsers write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// The text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an origin; write scheme and host in lower case, and the port unless it is the scheme's own"
)]
pub struct NotOrigin;

impl FromStr for Origin {
    type Err = NotOrigin;
    fn from_str(text: &str) -> Result<Self, NotOrigin> {
        let uri = Uri::from_str(text).map_err(|_| NotOrigin)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(NotOrigin);
        };
        let own_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(NotOrigin),
        };
        // What browsers never send could never match.
        let sent = format!("{scheme}://{authority}");
        let fits = text == sent
            && !text.contains('@')
            && authority.port_u16() != Some(own_port)
            && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        if fits { Ok(Self(sent)) } else { Err(NotOrigin) }
    }
}

impl Origin {
    pub(crate) fn is(&self, header: &[u8]) -> bool {
        self.0.as_bytes() == header
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_browser_sends_is_an_origin() {
        for text in
            ["https://console.example", "https://console.example:8443", "http://127.0.0.1:3000"]
        {
            assert_eq!(
                text.parse::<Origin>().map(|origin| origin.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "null",
            "*",
            "console.example",
            "https://a/",
            "https://a:443",
            "https://A",
            "ftp://a",
            "https://u@a",
        ] {
            assert_eq!(text.parse::<Origin>(), Err(NotOrigin), "{text}");
        }
    }
}
