//! Sessions as this process runs them: one driver each, one sender of its outbox, both for as long as it is not over.

mod content;
mod describe;
mod driver;
mod errand;
mod progress;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event::id::SessionId;
use manifest::Manifest;
use tokio::sync::mpsc;
use tracing::{error, info};
use transport::{CancellationToken, Chain};

use crate::feed::Flow;
use crate::live::{Command, Live};
use crate::peers::{Offers, Stream};
use crate::runtime::Runtime;
use crate::store::{self, Session, State};
use crate::terms::Terms;
use driver::{Broken, Driver, End};

pub(crate) use describe::{entry, operator};

const INBOX: usize = 64;
/// After a driver broke, its session is taken up again; later each time that it breaks soon.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(60);

/// The sessions that are not over.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Arc<Live>>>);

impl Sessions {
    pub(crate) fn get(&self, id: SessionId) -> Option<Arc<Live>> {
        self.lock().get(&id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Live>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to run a session, unless that was begun already. Without `offers` its executors have not been fenced yet.
pub(crate) fn start(runtime: &Arc<Runtime>, session: Session, offers: Option<Offers>) -> Arc<Live> {
    let id = session.owner.session;
    let (sender, inbox) = mpsc::channel(INBOX);
    let live = {
        let mut sessions = runtime.sessions.lock();
        if let Some(live) = sessions.get(&id) {
            return Arc::clone(live);
        }
        let now = runtime.clock.millis();
        let live = Live::new(stream(&session), sender, session.through_seq, session.attended, now);
        sessions.insert(id, Arc::clone(&live));
        live
    };
    let over = CancellationToken::new();
    runtime.tracker.spawn({
        let (runtime, live, over) = (Arc::clone(runtime), Arc::clone(&live), over.clone());
        async move {
            tokio::select! {
                () = crate::outbox::carry(&runtime, &live) => (),
                () = over.cancelled() => (),
                () = runtime.shutdown.cancelled() => (),
            }
        }
    });
    runtime.tracker.spawn({
        let (runtime, live) = (Arc::clone(runtime), Arc::clone(&live));
        async move {
            run(&runtime, &live, session, offers, inbox).await;
            runtime.sessions.lock().remove(&id);
            over.cancel();
        }
    });
    live
}

pub(crate) fn stream(session: &Session) -> Stream {
    Stream {
        tenant: session.tenant.clone(),
        session: session.owner.session,
        on_behalf_of: session.subject.clone(),
        policy_rev: session.policy_rev,
    }
}

/// Drives the session to its end. When a driver breaks, the next one starts from what is recorded, as after a restart.
async fn run(
    runtime: &Arc<Runtime>,
    live: &Arc<Live>,
    mut session: Session,
    mut offers: Option<Offers>,
    mut inbox: mpsc::Receiver<Command>,
) {
    let id = session.owner.session;
    let mut pause = PAUSE;
    loop {
        let began = tokio::time::Instant::now();
        match attempt(runtime, live, session, offers.take(), &mut inbox).await {
            Ok(End::Over) => return info!(session = %id, "session over"),
            Ok(End::Stopped) => return,
            Err(Broken::Store(store::Error::Fenced) | Broken::Stale) => {
                return error!(session = %id, "session belongs to another owner");
            }
            Err(cause) if cause.is_for_good() => {
                return park(runtime, live, inbox, &cause).await;
            }
            Err(cause) => error!(session = %id, error = %Chain(&cause), "session driver broke"),
        }
        if began.elapsed() > SOON {
            pause = PAUSE;
        }
        session = loop {
            tokio::select! {
                () = runtime.shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => (),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match runtime.store.take_over_one(id, runtime.node).await {
                Ok(session) => break session,
                Err(cause) if cause.is_damage() => {
                    return park(runtime, live, inbox, &cause).await;
                }
                Err(cause) => {
                    error!(session = %id, error = %Chain(&cause), "session cannot be taken up");
                }
            }
        };
    }
}

/// Nobody can drive the session as it is stored. It stays as it is for whoever mends it and for the process after this
/// one; until then it can be read as far as it is acknowledged, and nothing can be asked of it.
async fn park(
    runtime: &Runtime,
    live: &Live,
    inbox: mpsc::Receiver<Command>,
    cause: &(dyn std::error::Error + Send + Sync),
) {
    error!(session = %live.stream.session, error = %Chain(cause), "session is damaged and needs an operator");
    live.feed.park();
    drop(inbox);
    runtime.shutdown.cancelled().await;
}

async fn attempt(
    runtime: &Arc<Runtime>,
    live: &Arc<Live>,
    session: Session,
    offers: Option<Offers>,
    inbox: &mut mpsc::Receiver<Command>,
) -> Result<End, Broken> {
    if let (State::Done, Some(outcome)) = (session.state, &session.outcome) {
        live.feed.end(session.last_seq, outcome.clone());
        return Ok(drained(runtime, live, session.last_seq).await);
    }
    let manifest = runtime.store.manifest(session.owner.session).await.map_err(Broken::Store)?;
    let manifest = Manifest::parse(&manifest, &session.manifest_id).map_err(Broken::Manifest)?;
    let terms = Terms::of(&manifest, session.on_disconnect);
    let driver =
        Driver::recover(Arc::clone(runtime), Arc::clone(live), session, terms, offers).await?;
    Box::pin(driver.drive(inbox)).await
}

/// Nothing is left to do but to bring the last events to the ledger.
async fn drained(runtime: &Runtime, live: &Live, last: Option<u64>) -> End {
    let mut progress = live.feed.progress();
    let through =
        progress.wait_for(|progress| progress.through >= last || progress.flow == Flow::Frozen);
    tokio::select! {
        _ = through => End::Over,
        () = runtime.shutdown.cancelled() => End::Stopped,
    }
}
