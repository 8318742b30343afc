//! Whether the other services can be reached, as readiness tells it. Nothing waits for it.

use std::time::Duration;

use transport::{Context, PeerChannel};

const PROBE: Duration = Duration::from_secs(2);
const WHEN_WELL: Duration = Duration::from_secs(10);
const WHEN_NOT: Duration = Duration::from_millis(250);

/// Keeps the condition of a peer as it is, until the process stops.
pub(crate) fn look_after(context: &Context, peer: PeerChannel) {
    let (ready, shutdown) = (context.ready.clone(), context.shutdown.clone());
    let name = peer.expects().as_str();
    ready.set(name, false);
    context.tracker.spawn(shutdown.run_until_cancelled_owned(async move {
        loop {
            let well = peer.probe(PROBE).await.is_ok();
            ready.set(name, well);
            tokio::time::sleep(if well { WHEN_WELL } else { WHEN_NOT }).await;
        }
    }));
}
