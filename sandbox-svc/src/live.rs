//! A call while it runs: its output, its end, and everyone who watches it. Watching never slows it and
//! leaving never stops it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use futures::stream;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::execute_response::Message;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use transport::CancellationToken;

use crate::engine::{self, Frame};
use crate::error::Error;
use crate::spool::{Chunk, Spool};

/// How long a reader waits for more output before it is told of a little.
const GATHER: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Live {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    /// Whether there is an end, for those who wait for nothing else.
    over: watch::Sender<bool>,
    pub(crate) cancel: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    spool: Spool,
    started: Option<Vec<u8>>,
    end: Option<End>,
    /// The environment is this call's until its end is proven.
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, Clone)]
enum End {
    Finished(Box<wire::Finished>),
    /// Not proven; somebody goes on trying.
    Unsettled,
}

impl Live {
    /// A stop of the service cancels it as a person would: nothing may run while nobody watches its clock.
    pub(crate) fn new(
        permit: Option<OwnedSemaphorePermit>,
        stopping: &CancellationToken,
    ) -> Arc<Self> {
        let inner = Mutex::new(Inner { permit, ..Inner::default() });
        Arc::new(Self {
            inner,
            changed: watch::Sender::new(0),
            over: watch::Sender::new(false),
            cancel: stopping.child_token(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
    }

    /// Takes output up to `limit` bytes in all; says whether that is reached.
    pub(crate) fn push(&self, frame: Frame, limit: u64) -> bool {
        let mut full = false;
        self.change(|inner| {
            let left = limit.saturating_sub(inner.spool.total());
            full = frame.bytes.len() as u64 > left;
            inner.spool.push(frame, left);
        });
        full
    }

    pub(crate) fn started(&self, data: Vec<u8>) {
        self.change(|inner| inner.started = Some(data));
    }

    pub(crate) fn finished(&self, finished: wire::Finished) {
        self.change(|inner| {
            inner.end = Some(End::Finished(Box::new(finished)));
            inner.permit = None;
            self.over.send_replace(true);
        });
    }

    pub(crate) fn unsettled(&self) {
        self.change(|inner| {
            inner.end = Some(End::Unsettled);
            self.over.send_replace(true);
        });
    }

    /// Resolves at the proven end, or fails when it is not proven.
    pub(crate) async fn ended(&self) -> Result<(), Error> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            match &self.lock().end {
                Some(End::Finished(_)) => return Ok(()),
                Some(End::Unsettled) => return Err(Error::CleanupUncertain),
                None => (),
            }
            if changes.changed().await.is_err() {
                return Err(Error::Stopping);
            }
        }
    }

    /// Whether it waits for another try; takes the mark away.
    pub(crate) fn try_again(&self) -> bool {
        let mut inner = self.lock();
        let unsettled = matches!(inner.end, Some(End::Unsettled));
        if unsettled {
            inner.end = None;
            self.over.send_replace(false);
        }
        unsettled
    }

    fn is_over(&self) -> bool {
        self.lock().end.is_some()
    }

    pub(crate) fn with_spool<T>(&self, read: impl FnOnce(&Spool) -> T) -> T {
        read(&self.lock().spool)
    }

    /// Everything from `after` on: what was missed, what comes, how it ends.
    pub(crate) fn watch(
        self: Arc<Self>,
        after: u64,
    ) -> impl Stream<Item = Result<wire::ExecuteResponse, Error>> + Send + 'static {
        let (changes, over) = (self.changed.subscribe(), self.over.subscribe());
        let watcher = Watcher {
            live: self,
            changes,
            over,
            offset: after,
            announced: false,
            quiet_until: None,
            done: false,
        };
        stream::unfold(watcher, Watcher::next)
    }
}

struct Watcher {
    live: Arc<Live>,
    changes: watch::Receiver<u64>,
    over: watch::Receiver<bool>,
    offset: u64,
    announced: bool,
    /// Small pieces of output are gathered until then.
    quiet_until: Option<Instant>,
    done: bool,
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<wire::ExecuteResponse, Error>, Self)> {
        if self.done {
            return None;
        }
        loop {
            self.changes.mark_unchanged();
            let quiet = self.quiet_until.filter(|until| *until > Instant::now());
            if let Some(until) = quiet
                && !self.live.is_over()
            {
                // An end waits for nothing; more output is no reason to wake up.
                tokio::select! {
                    () = tokio::time::sleep_until(until) => (),
                    over = self.over.wait_for(|over| *over) => drop(over.ok()?),
                }
                continue;
            }
            if let Some(message) = self.ready() {
                return Some((message, self));
            }
            if self.changes.changed().await.is_err() {
                return None;
            }
        }
    }

    fn ready(&mut self) -> Option<Result<wire::ExecuteResponse, Error>> {
        let inner = self.live.lock();
        if !self.announced
            && let Some(data) = &inner.started
        {
            self.announced = true;
            return Some(Ok(message(Message::Started(wire::Started { data: data.clone() }))));
        }
        if let Some(chunk) = inner.spool.after(self.offset) {
            self.offset = chunk.offset + chunk.bytes.len() as u64;
            self.quiet_until = Some(Instant::now() + GATHER);
            return Some(Ok(output(&chunk)));
        }
        let end = inner.end.as_ref()?;
        self.done = true;
        Some(match end {
            End::Finished(finished) => Ok(message(Message::Finished((**finished).clone()))),
            End::Unsettled => Err(Error::CleanupUncertain),
        })
    }
}

pub(crate) fn message(message: Message) -> wire::ExecuteResponse {
    wire::ExecuteResponse { message: Some(message) }
}

pub(crate) fn output(chunk: &Chunk) -> wire::ExecuteResponse {
    let stream = match chunk.stream {
        engine::Stream::Stdout => wire::Stream::Stdout,
        engine::Stream::Stderr => wire::Stream::Stderr,
    };
    message(Message::Output(wire::Output {
        offset: chunk.offset,
        stream: stream.into(),
        bytes: chunk.bytes.to_vec(),
    }))
}
