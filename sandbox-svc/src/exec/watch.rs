//! While a command runs: its output, its clock, its limits, and everyone who may stop it. Why it is stopped
//! is stored before it is, and how it ended is the first process's word.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use sandbox_init::{Found, Nonce, Sieve, status};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{
    ContainerId, Dialect, EngineError, Frame, Frames, Handle, Inspected, Status, Stream,
};
use crate::exec::stop::{Clock, Signal, Stopping};
use crate::exec::{Run, Unsettled};
use crate::lifecycle::{Ended, StopReason, Text, Way};

/// How often the clock and the kernel's counters are read.
const TICK: Duration = Duration::from_millis(50);
/// How long output is waited for after the end; a descendant may hold the stream open.
const DRAIN: Duration = Duration::from_secs(1);

/// What is known while it runs.
pub(super) struct Watching {
    oom_seen: bool,
    incomplete: bool,
    attached: bool,
    stdout: Sieve,
    stderr: Sieve,
}

/// What there is to say of a container that has ended.
pub(super) enum Watched {
    Ended(Ended),
    /// Its first process got no whole frame.
    NothingRan,
}

impl Watching {
    fn new(nonce: Nonce, incomplete: bool) -> Self {
        let (stdout, stderr) = (Sieve::new(nonce), Sieve::new(nonce));
        Self { oom_seen: false, incomplete, attached: true, stdout, stderr }
    }

    /// Whether the first process has said its last words on both streams: then nothing of it is missing.
    fn is_told(&self) -> bool {
        self.stdout.is_whole() && self.stderr.is_whole()
    }
}

impl Run<'_> {
    /// Until the container has ended, whatever ends it.
    pub(super) async fn watch(
        &self,
        id: &ContainerId,
        mut frames: Frames,
        nonce: Nonce,
        mut cgroups: Cgroups,
        began: Instant,
        incomplete: bool,
    ) -> Result<(Watched, Cgroups), Unsettled> {
        let time_limit = Duration::from_millis(self.limits.time_ms);
        let clock = Clock::start(began);
        let mut stopping = Stopping::new(self.row.reason.as_deref().and_then(StopReason::parse));
        let mut seen = Watching::new(nonce, incomplete);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = std::pin::pin!(self.engine.wait(id));
        // Beside the output, which must go on being read: an engine ends no container whose output is stuck.
        let mut signals: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        loop {
            let stop = tokio::select! {
                done = &mut ended => break done?,
                frame = frames.next(), if seen.attached => {
                    let stop = self.take(frame, &mut seen);
                    if seen.is_told() {
                        break;
                    }
                    stop
                }
                _ = tick.tick() => {
                    seen.oom_seen |= cgroups.oom_kills() > 0;
                    (clock.passed() >= time_limit).then_some(StopReason::TimedOut)
                }
                () = self.live.cancel.cancelled(), if stopping.reason.is_none() => {
                    Some(StopReason::Canceled)
                }
                sent = signals.select_next_some(), if !signals.is_empty() => {
                    self.signaled(sent);
                    None
                }
            };
            if let (None, Some(reason)) = (stopping.reason, stop) {
                let first = self.sandbox.store.note_reason(self.call(), reason.as_str()).await?;
                stopping.reason = StopReason::parse(&first);
                self.sandbox.failpoint.hit("exec-reason")?;
            }
            match stopping.next(Instant::now()) {
                Some(Signal::Terminate) => signals.push(Box::pin(self.engine.terminate(id))),
                Some(Signal::Kill) => signals.push(Box::pin(self.engine.kill(id))),
                // An engine that tells of no end is asked for it.
                Some(Signal::GiveUp) => break,
                None => (),
            }
        }
        // While its control groups are still there; an engine keeps a fact of its own otherwise.
        let counted = cgroups.counted_oom_kills();
        seen.oom_seen |= counted.is_some_and(|kills| kills > 0);
        if seen.is_told() && counted.is_some() {
            return Ok((self.ended(None, Some(seen), &cgroups, began).await?, cgroups));
        }
        if seen.is_told() {
            // What it was killed for, the engine says once it has seen the end.
            let waited = tokio::time::timeout(DRAIN, &mut ended).await;
            if let Ok(Err(error)) = waited {
                warn!(call = %self.call(), error = %Chain(&error), "the engine does not say that a command ended");
            }
        } else {
            self.drain(&mut frames, &mut seen).await;
        }
        match self.inspect_surely(Handle::Id(id)).await? {
            Some(last) if last.status == Status::Running && !seen.is_told() => {
                Err(Unsettled::Cleanup("the command does not end"))
            }
            Some(last) => {
                cgroups.merge(Cgroups::of(id, last.pid));
                let ended = self.ended(Some(&last), Some(seen), &cgroups, began).await?;
                Ok((ended, cgroups))
            }
            None => Ok((Watched::Ended(self.gone(true)), cgroups)),
        }
    }

    /// Passes output on; says when there is too much of it.
    fn take(
        &self,
        frame: Option<Result<Frame, EngineError>>,
        seen: &mut Watching,
    ) -> Option<StopReason> {
        match frame {
            Some(Ok(Frame { stream, bytes })) => {
                let sieve = match stream {
                    Stream::Stdout => &mut seen.stdout,
                    Stream::Stderr => &mut seen.stderr,
                };
                let bytes = sieve.pass(&bytes).into();
                let full = self.live.push(Frame { stream, bytes }, self.limits.output);
                full.then_some(StopReason::OutputLimit)
            }
            Some(Err(error)) => {
                warn!(call = %self.call(), error = %Chain(&error), "the output of a command broke off");
                (seen.attached, seen.incomplete) = (false, true);
                None
            }
            None => {
                seen.attached = false;
                None
            }
        }
    }

    /// An engine that does not answer is asked again; only the end itself counts.
    fn signaled(&self, sent: Result<(), EngineError>) {
        if let Err(error) = sent {
            warn!(call = %self.call(), error = %Chain(&error), "a command could not be told to end yet");
        }
    }

    async fn drain(&self, frames: &mut Frames, seen: &mut Watching) {
        let until = Instant::now() + DRAIN;
        while seen.attached && !seen.is_told() {
            match tokio::time::timeout_at(until, frames.next()).await {
                Ok(frame) => {
                    self.take(frame, seen);
                }
                Err(_) => {
                    (seen.attached, seen.incomplete) = (false, true);
                }
            }
        }
    }

    /// What there is to say of a container that has ended; `seen` is missing when nobody watched, `last` when the
    /// first process has said it all.
    pub(super) async fn ended(
        &self,
        last: Option<&Inspected>,
        seen: Option<Watching>,
        cgroups: &Cgroups,
        began: Instant,
    ) -> Result<Watched, Unsettled> {
        let (mut incomplete, mut oom_seen, mut told) = (true, false, None);
        if let Some(Watching { oom_seen: seen, incomplete: missed, stdout, stderr, .. }) = seen {
            (incomplete, oom_seen) = (missed, seen);
            for (stream, sieve) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
                match sieve.end() {
                    Found::Trailer(trailer) => told = Some(trailer),
                    Found::None(held) => {
                        let frame = Frame { stream, bytes: held.into() };
                        self.live.push(frame, self.limits.output);
                    }
                    Found::Broken => incomplete = true,
                }
            }
        }
        let code = last.map_or(-1, |last| last.exit_code);
        let stored = self.sandbox.store.execution(self.call()).await?;
        let reason = stored.and_then(|row| row.reason).as_deref().and_then(StopReason::parse);
        let way = match told {
            Some(trailer) => Way::Told(trailer.into()),
            None if code == i32::from(status::NOTHING_RAN) => return Ok(Watched::NothingRan),
            // It may say 0 of whatever has just ended, and a failure must not be told as success.
            None if reason.is_none() && self.engine.dialect() == Dialect::Podman => {
                Way::Gone { may_have_run: true }
            }
            None => Way::Ran { code },
        };
        let text = |stream| {
            self.live.with_spool(|spool| Text {
                text: spool.text(stream),
                bytes: spool.bytes(stream),
                left_out: spool.left_out(stream),
            })
        };
        Ok(Watched::Ended(Ended {
            way,
            reason,
            oom_seen: oom_seen
                || last.is_some_and(|last| last.oom_killed)
                || cgroups.oom_kills() > 0,
            output_incomplete: incomplete,
            stdout: text(Stream::Stdout),
            stderr: text(Stream::Stderr),
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            connections: None,
        }))
    }
}
