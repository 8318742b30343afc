//! The address of a peer, parsed once; it never resolves a name.

use std::{fmt, net::SocketAddr, str::FromStr};

use rustls_pki_types::{IpAddr, ServerName};

/// Where a service listens: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: ServerName<'static>,
    port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host {
            ServerName::IpAddress(IpAddr::V6(_)) => write!(f, "[{}]:{port}", host.to_str()),
            _ => write!(f, "{}:{port}", host.to_str()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let (host, port) = text.rsplit_once(':').ok_or(NotAnEndpoint(()))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.contains(':') != (bare.len() < host.len()) {
            return Err(NotAnEndpoint(()));
        }
        let host = ServerName::try_from(bare.to_owned()).map_err(|_| NotAnEndpoint(()))?;
        match port.parse() {
            Ok(port) if port > 0 => Ok(Self { host, port }),
            _ => Err(NotAnEndpoint(())),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self { host: ServerName::from(addr.ip()), port: addr.port() }
    }
}

/// A text that is no `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not host:port, such as 127.0.0.1:7001 or [::1]:7001")]
pub struct NotAnEndpoint(());

impl Endpoint {
    /// What TLS announces; the peer's certificate is not compared with it.
    pub(crate) fn server_name(&self) -> ServerName<'static> {
        self.host.clone()
    }

    pub(crate) async fn dial(&self) -> std::io::Result<tokio::net::TcpStream> {
        tokio::net::TcpStream::connect((self.host.to_str().as_ref(), self.port)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port_and_prints_as_it_was_written() {
        for text in ["127.0.0.1:7001", "[::1]:7001", "audit.internal:443", "localhost:1"] {
            assert_eq!(text.parse::<Endpoint>().map(|it| it.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "",
            "host",
            "host:",
            ":1",
            "host:0",
            "host:65536",
            "::1:7001",
            "[host]:1",
            "http://host:1",
            "a b:1",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(NotAnEndpoint(())), "{text}");
        }
    }

    #[test]
    fn a_socket_address_is_the_same_endpoint_as_its_text() {
        for text in ["127.0.0.1:7001", "[::1]:7001"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(Endpoint::from(addr), text.parse().unwrap());
        }
    }
}
