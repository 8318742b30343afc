//! The calls that are under way in this process: who asks for one that is open attaches to it, and when nobody is attached
//! any more it is cancelled. What a call comes to is not decided here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event::Digest;
use event::id::CallId;
use tokio::sync::watch;
use transport::CancellationToken;

use crate::refusal::Refusal;
use crate::turn::Outcome;

#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<HashMap<CallId, Arc<Open>>>);

#[derive(Debug)]
struct Open {
    request: Digest,
    progress: watch::Sender<Progress>,
    attached: AtomicUsize,
    cancel: CancellationToken,
}

#[derive(Debug, Clone)]
enum Progress {
    /// Not yet recorded: it may still be refused.
    Beginning,
    Running,
    Ended(Ended),
}

/// How a call left this process.
pub(crate) type Ended = Result<Arc<Outcome>, Arc<Refusal>>;

pub(crate) enum Entered {
    /// Nobody runs it yet: whoever gets the runner must.
    First(Attachment, Runner),
    Joined(Attachment),
    OtherRequest,
}

impl Calls {
    pub(crate) fn enter(self: &Arc<Self>, call: CallId, request: Digest) -> Entered {
        let mut open = self.lock();
        match open.entry(call) {
            Entry::Occupied(present) if present.get().request != request => Entered::OtherRequest,
            Entry::Occupied(present) => Entered::Joined(Attachment::new(present.get())),
            Entry::Vacant(place) => {
                let fresh = place.insert(Arc::new(Open {
                    request,
                    progress: watch::Sender::new(Progress::Beginning),
                    attached: AtomicUsize::new(0),
                    cancel: CancellationToken::new(),
                }));
                let attachment = Attachment::new(fresh);
                let runner = Runner { calls: Arc::clone(self), call, open: Arc::clone(fresh) };
                Entered::First(attachment, runner)
            }
        }
    }

    pub(crate) fn is_open(&self, call: CallId) -> bool {
        self.lock().contains_key(&call)
    }

    /// A panic elsewhere leaves nothing half done in the map.
    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to bring a call to its end; dropped without one, the call is lost.
#[derive(Debug)]
pub(crate) struct Runner {
    calls: Arc<Calls>,
    call: CallId,
    open: Arc<Open>,
}

impl Runner {
    /// The call is recorded and will have an outcome.
    pub(crate) fn running(&self) {
        self.open.progress.send_replace(Progress::Running);
    }

    /// Cancelled when nobody waits for the call.
    pub(crate) fn cancel(&self) -> &CancellationToken {
        &self.open.cancel
    }

    pub(crate) fn end(self, ended: Ended) {
        self.open.progress.send_replace(Progress::Ended(ended));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.open.progress.send_if_modified(|progress| match progress {
            Progress::Ended(_) => false,
            Progress::Beginning | Progress::Running => {
                *progress = Progress::Ended(Err(Arc::new(Refusal::Lost)));
                true
            }
        });
        self.calls.lock().remove(&self.call);
    }
}

/// One of those who wait for a call.
#[derive(Debug)]
pub(crate) struct Attachment {
    open: Arc<Open>,
    progress: watch::Receiver<Progress>,
}

impl Attachment {
    fn new(open: &Arc<Open>) -> Self {
        open.attached.fetch_add(1, Ordering::AcqRel);
        Self { open: Arc::clone(open), progress: open.progress.subscribe() }
    }

    /// Returns once it is known whether the call is refused.
    pub(crate) async fn begun(&mut self) -> Result<(), Arc<Refusal>> {
        let begun = |progress: &Progress| !matches!(progress, Progress::Beginning);
        match self.progress.wait_for(begun).await.as_deref() {
            Ok(Progress::Ended(Err(refusal))) => Err(Arc::clone(refusal)),
            Ok(Progress::Beginning | Progress::Running | Progress::Ended(Ok(_))) => Ok(()),
            Err(_) => Err(Arc::new(Refusal::Lost)),
        }
    }

    pub(crate) async fn outcome(&mut self) -> Ended {
        let ended = |progress: &Progress| matches!(progress, Progress::Ended(_));
        match self.progress.wait_for(ended).await.as_deref() {
            Ok(Progress::Ended(ended)) => ended.clone(),
            Ok(Progress::Beginning | Progress::Running) | Err(_) => Err(Arc::new(Refusal::Lost)),
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.open.attached.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.open.cancel.cancel();
        }
    }
}
