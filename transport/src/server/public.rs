//! The TLS listener for people: this process's certificate, no client certificate, HTTP/1.1; who they are is the caller's to find out.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::{Context, listener::Listener, room::Seat};

/// A bound listener for people.
#[derive(Debug)]
pub struct PublicListener {
    context: Context,
    listener: Listener,
}

impl PublicListener {
    /// Takes the address.
    pub async fn bind(context: &Context, addr: SocketAddr) -> Result<Self, Error> {
        Ok(Self { context: context.clone(), listener: Listener::bind("listen", addr).await? })
    }

    /// The real address.
    pub fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Runs `each` on the context's tracker for every connection after its handshake, until `shutdown`. Open connections
    /// are the caller's to end, and nobody is known yet: `each` leaves the seat when it knows who is there, and ends the
    /// connection when the seat is lost.
    pub async fn serve<F, Fut>(self, shutdown: CancellationToken, each: F)
    where
        F: Fn(TlsStream<TcpStream>, SocketAddr, Seat) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let Self { context, listener } = self;
        let config = || Some(context.material.public_server());
        listener.run(config, context.tracker.clone(), shutdown, each).await;
    }
}
