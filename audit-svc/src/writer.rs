//! The one writer: takes what is queued, stores it in one transaction, and only then answers. Nothing is dropped silently;
//! whoever cannot be served in time is told so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, gauge, histogram};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{error, info, warn};
use transport::deadline::Deadline;
use transport::{CancellationToken, Chain, Readiness, TaskTracker};

use crate::READY;
use crate::entry::Entry;
use crate::refusal::Refused;
use crate::store::{Answer, Outcome, Store};

/// The largest request, in entries.
pub(crate) const MAX_ENTRIES: usize = 256;
const BATCH_ENTRIES: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// How long a request waits for room in the queue, and then for its commit.
const QUEUE_WAIT: Duration = Duration::from_secs(5);
const COMMIT_WAIT: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);

/// The queue is bounded in units of this many bytes; no entry is smaller than [`ENTRY_UNITS`] of them. So it never holds more
/// than 32 MiB nor more than 4,096 entries.
const UNIT: usize = 1024;
const ENTRY_UNITS: usize = 8;
const QUEUE_UNITS: usize = 32 * 1024;
const QUEUE_REQUESTS: usize = QUEUE_UNITS / ENTRY_UNITS;

/// Hands requests to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Appender {
    requests: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    head: watch::Receiver<ledger::Head>,
    ready: Readiness,
    halted: CancellationToken,
}

#[derive(Debug)]
struct Request {
    entries: Vec<Entry>,
    reply: oneshot::Sender<Answer>,
    /// Given back when the request has left the queue.
    _room: OwnedSemaphorePermit,
}

/// The writer's task.
#[derive(Debug)]
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) fn start(store: Store, ready: Readiness, tracker: &TaskTracker) -> (Appender, Running) {
    let (requests, queue) = mpsc::channel(QUEUE_REQUESTS);
    let (head, published) = watch::channel(store.head());
    let (stop, halted) = (CancellationToken::new(), CancellationToken::new());
    ready.set(READY, true);
    let appender = Appender {
        requests,
        room: Arc::new(Semaphore::new(QUEUE_UNITS)),
        head: published,
        ready: ready.clone(),
        halted: halted.clone(),
    };
    let worker = Worker { store, queue, held: None, head, ready, halted, stop: stop.clone() };
    (appender, Running { stop, task: tracker.spawn(worker.run()) })
}

impl Running {
    /// Stores what is queued, then ends.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            error!(error = %Chain(&error), "the writer did not end in good order");
        }
    }
}

impl Appender {
    pub(crate) fn head(&self) -> watch::Receiver<ledger::Head> {
        self.head.clone()
    }

    /// Stores the entries of one request, all or none, and answers once that is durable.
    pub(crate) async fn append(&self, entries: Vec<Entry>) -> Answer {
        let units: usize =
            entries.iter().map(|entry| entry.payload.len().div_ceil(UNIT).max(ENTRY_UNITS)).sum();
        let units = u32::try_from(units).map_err(|_| Refused::TooMany { entries: MAX_ENTRIES })?;
        let wait =
            Deadline::current().map_or(QUEUE_WAIT, |deadline| deadline.left().min(QUEUE_WAIT));
        let room = match timeout(wait, self.room.clone().acquire_many_owned(units)).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(self.ended()),
            Err(_) => return Err(Refused::Backpressure),
        };
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(Request { entries, reply, _room: room }).map_err(
            |error| match error {
                mpsc::error::TrySendError::Full(_) => Refused::Backpressure,
                mpsc::error::TrySendError::Closed(_) => self.ended(),
            },
        )?;
        match timeout(COMMIT_WAIT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.ended()),
            Err(_) => {
                self.ready.set(READY, false);
                Err(Refused::Persistence)
            }
        }
    }

    fn ended(&self) -> Refused {
        self.ready.set(READY, false);
        if self.halted.is_cancelled() { Refused::Halted } else { Refused::Stopping }
    }
}

struct Worker {
    store: Store,
    queue: mpsc::Receiver<Request>,
    /// Was taken and did not fit into the batch before.
    held: Option<Request>,
    head: watch::Sender<ledger::Head>,
    ready: Readiness,
    halted: CancellationToken,
    stop: CancellationToken,
}

impl Worker {
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            let (entries, replies) = self.batch(first);
            if !self.store(entries, replies).await {
                self.halt().await;
                break;
            }
        }
        self.store.close().await;
    }

    /// Refuses whatever waits and stays, so that the ledger can still be read and nobody else takes it for free.
    async fn halt(&mut self) {
        self.queue.close();
        while let Some(request) = self.queue.recv().await {
            drop(request);
        }
        self.stop.cancelled().await;
    }

    async fn next(&mut self) -> Option<Request> {
        if self.held.is_some() {
            return self.held.take();
        }
        tokio::select! {
            request = self.queue.recv() => return request,
            () = self.stop.cancelled() => {}
        }
        self.queue.close();
        self.queue.recv().await
    }

    /// Everything that waits, up to the limits of one transaction; no timer, so that nobody waits for company.
    fn batch(&mut self, first: Request) -> (Vec<Vec<Entry>>, Vec<oneshot::Sender<Answer>>) {
        let (mut count, mut bytes) = size(&first.entries);
        let mut batch = (vec![first.entries], vec![first.reply]);
        while let Ok(request) = self.queue.try_recv() {
            let (more, larger) = size(&request.entries);
            if count + more > BATCH_ENTRIES || bytes + larger > BATCH_BYTES {
                self.held = Some(request);
                break;
            }
            (count, bytes) = (count + more, bytes + larger);
            batch.0.push(request.entries);
            batch.1.push(request.reply);
        }
        batch
    }

    /// Whether the writer may go on.
    async fn store(
        &mut self,
        requests: Vec<Vec<Entry>>,
        replies: Vec<oneshot::Sender<Answer>>,
    ) -> bool {
        let (entries, _) = requests
            .iter()
            .map(|entries| size(entries))
            .fold((0, 0), |all, one| (all.0 + one.0, 0));
        let started = Instant::now();
        let mut answers = Vec::with_capacity(requests.len());
        let outcome = match self.store.append(requests, &mut answers).await {
            Ok(()) => Outcome::Stored,
            Err(error) => {
                error!(error = %Chain(&error), "entries were not stored");
                self.ready.set(READY, false);
                self.recover().await
            }
        };
        histogram!("harness_audit_commit_seconds").record(started.elapsed());
        match outcome {
            Outcome::Stored => {
                let head = self.store.head();
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a gauge is a floating-point number"
                )]
                gauge!("harness_audit_entries").set(head.size as f64);
                counter!("harness_audit_appended_total").increment(entries as u64);
                self.head.send_replace(head);
                self.ready.set(READY, true);
            }
            Outcome::NotStored => {
                answers = replies.iter().map(|_| Err(Refused::Persistence)).collect();
            }
            Outcome::Diverged => {
                error!("the ledger has halted; keep its files as evidence");
                self.halted.cancel();
                answers = replies.iter().map(|_| Err(Refused::Halted)).collect();
            }
        }
        for (reply, answer) in replies.into_iter().zip(answers) {
            if reply.send(answer).is_err() {
                info!("a writer did not wait for its answer");
            }
        }
        outcome != Outcome::Diverged
    }

    /// Reads the head anew until the store answers; meanwhile nothing is stored.
    async fn recover(&mut self) -> Outcome {
        let mut pause = FIRST_RETRY;
        loop {
            match self.store.recover().await {
                Ok(outcome) => {
                    self.ready.set(READY, outcome != Outcome::Diverged);
                    return outcome;
                }
                Err(crate::Error::Integrity(unsound)) => {
                    error!(error = %Chain(&unsound), "the stored head cannot be read");
                    return Outcome::Diverged;
                }
                Err(error) => warn!(error = %Chain(&error), "the store cannot be opened again"),
            }
            tokio::select! {
                () = self.stop.cancelled() => return Outcome::NotStored,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
            }
        }
    }
}

fn size(entries: &[Entry]) -> (usize, usize) {
    (entries.len(), entries.iter().map(|entry| entry.payload.len()).sum())
}

#[cfg(test)]
mod tests;
