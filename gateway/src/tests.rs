//! The gateway over real TLS and WebSocket, between a client that may be wrong and fake peers behind real mTLS.
mod agent;
mod approvals;
mod audit;
mod closing;
mod dialect;
mod discreet;
mod doors;
mod events;
mod mesh;
mod patches;
mod people;
mod sessions;
mod standing;
mod start;
mod wire;

use std::time::Duration;

/// Nothing here waits longer than this; what is waited for happens at once or never.
const LIMIT: Duration = Duration::from_secs(20);

async fn within<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(LIMIT, what).await.expect("in time")
}
