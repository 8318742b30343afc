//! Takes the connections of one socket, each in a task of its own, and says what was decided. It ends when it is told
//! to, or when what it says cannot be heard.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Limits};
use crate::line::Line;
use crate::meter::Meter;
use crate::rules::Rules;
use crate::world::World;

/// How long a line may wait to be read.
const TELL: Duration = Duration::from_secs(5);
/// How long an accept that failed waits for the next try.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// One broker: its rules, its counts, and where it says what it decided.
pub struct Broker<W> {
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    pub(crate) world: W,
    pub(crate) stop: CancellationToken,
    ears: Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl<W: World> Broker<W> {
    pub fn new(
        config: &Config,
        world: W,
        ears: impl AsyncWrite + Send + Unpin + 'static,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            rules: Rules::of(config),
            limits: config.limits,
            meter: Meter::new(config.limits),
            world,
            stop,
            ears: Mutex::new(Box::new(ears)),
        })
    }

    /// Until it is stopped; every connection has ended when this returns.
    pub async fn run(self: Arc<Self>, listener: UnixListener) {
        let tasks = TaskTracker::new();
        let slots = usize::try_from(self.limits.connections).unwrap_or(usize::MAX);
        let slots = Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)));
        // One more is told that there are too many; others wait in the listener's own queue.
        let door = Arc::new(Semaphore::new(1));
        if self.tell(&Line::Ready {}).await {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = self.stop.cancelled() => break,
                };
                let Ok((client, _)) = accepted else {
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                };
                let broker = self.clone();
                if let Ok(slot) = slots.clone().try_acquire_owned() {
                    tasks.spawn(async move {
                        broker.serve(client).await;
                        drop(slot);
                    });
                } else if let Ok(turn) = door.clone().acquire_owned().await {
                    tasks.spawn(async move {
                        broker.turn_away(client).await;
                        drop(turn);
                    });
                }
            }
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
        let requests = self.meter.untold();
        if requests > 0 {
            self.tell(&Line::Untold { requests }).await;
        }
    }

    /// Whether it was heard. What nobody hears is not decided: the broker ends.
    pub(crate) async fn tell(&self, line: &Line) -> bool {
        let told = tokio::time::timeout(TELL, async {
            let bytes = line.to_bytes().map_err(io::Error::other)?;
            let mut ears = self.ears.lock().await;
            ears.write_all(&bytes).await?;
            ears.flush().await
        });
        let heard = matches!(told.await, Ok(Ok(())));
        if !heard {
            self.stop.cancel();
        }
        heard
    }
}

impl<W> std::fmt::Debug for Broker<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("limits", &self.limits).finish_non_exhaustive()
    }
}
