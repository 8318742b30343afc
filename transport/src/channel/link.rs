//! The one connection of a channel: made when first needed, replaced when lost, shared by all its clones. A request that was
//! never sent goes out on the next connection; one that was sent is never sent again.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tonic::body::Body;
use tracing::debug;

use super::{
    What,
    dial::{Dialer, Refused, Undialed},
};
use crate::{Chain, tasks::Tasks};

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer may close a connection between our looking at it and our using it, and the next one as well.
const ATTEMPTS: usize = 3;

type Dialing = Shared<BoxFuture<'static, Result<Connected, Arc<Undialed>>>>;

#[derive(Clone)]
struct Connected {
    sender: SendRequest<Body>,
    refused: Refused,
}

pub(super) struct Link {
    dialer: Dialer,
    /// A connection ends by itself once its senders and its streams are gone.
    tasks: Tasks,
    /// The connection in use or in the making.
    slot: Mutex<Option<Dialing>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, tasks: Tasks::default(), slot: Mutex::new(None) }
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, What> {
        let mut request = request;
        let mut attempt = 1;
        loop {
            let Connected { mut sender, refused } =
                self.connection().await.map_err(|error| What::of(&*error))?;
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if refused.is_known() {
                return Err(What::RefusedUs(Chain(failed.error()).to_string()));
            }
            match failed.take_message() {
                Some(unsent) if attempt < ATTEMPTS => request = unsent,
                _ => return Err(What::of(&failed.into_error())),
            }
            attempt += 1;
        }
    }

    /// Callers that come while it is being made wait for the same attempt and share its failure.
    fn connection(&self) -> Dialing {
        // A panic elsewhere leaves nothing half done in it.
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.as_ref().filter(|dialing| is_usable(dialing)) {
            Some(dialing) => dialing.clone(),
            None => slot.insert(self.dial()).clone(),
        }
    }

    /// Dials as a task, so that it ends within its limit also when every caller has gone away.
    fn dial(&self) -> Dialing {
        let dialing = self.tasks.tracker.spawn(open(self.dialer.clone(), self.tasks.clone()));
        let dialed = async move {
            match dialing.await {
                Ok(dialed) => dialed.map_err(Arc::new),
                Err(_) => Err(Arc::new(Undialed::Ended)),
            }
        };
        dialed.boxed().shared()
    }
}

fn is_usable(dialing: &Dialing) -> bool {
    match dialing.peek() {
        None => true,
        Some(Ok(connected)) => !connected.sender.is_closed(),
        Some(Err(_)) => false,
    }
}

async fn open(dialer: Dialer, tasks: Tasks) -> Result<Connected, Undialed> {
    let stream = dialer.dial().await?;
    let refused = stream.refused();
    let opening = Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = opening.await.map_err(Undialed::Http)?;
    tasks.tracker.spawn(async move {
        if let Err(error) = connection.await {
            debug!(error = %Chain(&error), "connection lost");
        }
    });
    Ok(Connected { sender, refused })
}
