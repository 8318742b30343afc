//! While a command runs: its output, its clock, its limits, and everyone who may stop it. Why it is stopped
//! is stored before it is.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::warn;
use transport::Chain;

use crate::engine::cgroup::Cgroups;
use crate::engine::{ContainerId, EngineError, Frame, Handle, Inspected, Stream};
use crate::exec::{Run, Unsettled};
use crate::lifecycle::{Ended, StopReason, Text, Way};

/// How often the clock and the kernel's counters are read.
const TICK: Duration = Duration::from_millis(50);
/// How long output is waited for after the end; a descendant may hold the stream open.
const DRAIN: Duration = Duration::from_secs(1);
const KILL_AGAIN: Duration = Duration::from_secs(3);

type Frames = std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame, EngineError>> + Send>>;

/// What is known while it runs.
pub(super) struct Watching {
    reason: Option<StopReason>,
    killed: Option<Instant>,
    oom_seen: bool,
    incomplete: bool,
    attached: bool,
}

impl Run<'_> {
    /// Until the container has ended, whatever ends it.
    pub(super) async fn watch(
        &self,
        id: &ContainerId,
        mut frames: Frames,
        mut cgroups: Cgroups,
        began: Instant,
        incomplete: bool,
    ) -> Result<(Ended, Cgroups), Unsettled> {
        let output_limit = self.limits.output;
        let time_limit = Duration::from_millis(self.limits.time_ms);
        let clock = Clock::start(began);
        let reason = self.row.reason.as_deref().and_then(StopReason::parse);
        let mut seen =
            Watching { reason, killed: None, oom_seen: false, incomplete, attached: true };
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = std::pin::pin!(self.engine.wait(id));
        // Beside the output, which must go on being read: an engine ends no container whose output is stuck.
        let mut kills = FuturesUnordered::new();
        loop {
            let stop = tokio::select! {
                done = &mut ended => break done?,
                frame = frames.next(), if seen.attached => self.take(frame, &mut seen, output_limit),
                _ = tick.tick() => {
                    seen.oom_seen |= cgroups.oom_kills() > 0;
                    (clock.passed() >= time_limit).then_some(StopReason::TimedOut)
                }
                () = self.live.cancel.cancelled(), if seen.reason.is_none() => {
                    Some(StopReason::Canceled)
                }
                killed = kills.select_next_some(), if !kills.is_empty() => {
                    self.killed(killed);
                    None
                }
            };
            if self.must_kill(stop, &mut seen).await? {
                kills.push(self.engine.kill(id));
            }
        }
        seen.oom_seen |= cgroups.oom_kills() > 0;
        self.drain(&mut frames, &mut seen, output_limit).await;
        match self.inspect_surely(Handle::Id(id)).await? {
            Some(last) => {
                cgroups.merge(Cgroups::of(id, last.pid));
                let ended = self.ended(&last, Some(&seen), &cgroups, began, false).await?;
                Ok((ended, cgroups))
            }
            None => Ok((self.gone(true), cgroups)),
        }
    }

    /// Passes output on; says when there is too much of it.
    fn take(
        &self,
        frame: Option<Result<Frame, EngineError>>,
        seen: &mut Watching,
        limit: u64,
    ) -> Option<StopReason> {
        match frame {
            Some(Ok(frame)) => self.live.push(frame, limit).then_some(StopReason::OutputLimit),
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

    /// Notes why the command is stopped, before it is; says whether it is time to kill it, or to try again.
    async fn must_kill(
        &self,
        stop: Option<StopReason>,
        seen: &mut Watching,
    ) -> Result<bool, Unsettled> {
        if let (None, Some(reason)) = (seen.reason, stop) {
            let first = self.sandbox.store.note_reason(self.call(), reason.as_str()).await?;
            seen.reason = StopReason::parse(&first);
            self.sandbox.failpoint.hit("exec-reason")?;
        }
        let due = seen.killed.is_none_or(|at| at.elapsed() >= KILL_AGAIN);
        let must = seen.reason.is_some() && due;
        if must {
            seen.killed = Some(Instant::now());
        }
        Ok(must)
    }

    /// An engine that does not answer is asked again; only the end itself counts.
    fn killed(&self, killed: Result<(), EngineError>) {
        if let Err(error) = killed {
            warn!(call = %self.call(), error = %Chain(&error), "a command could not be killed yet");
        }
    }

    async fn drain(&self, frames: &mut Frames, seen: &mut Watching, limit: u64) {
        let until = Instant::now() + DRAIN;
        while seen.attached {
            match tokio::time::timeout_at(until, frames.next()).await {
                Ok(frame) => {
                    self.take(frame, seen, limit);
                }
                Err(_) => {
                    (seen.attached, seen.incomplete) = (false, true);
                }
            }
        }
    }

    /// What there is to say of a container that has ended; `seen` is missing when nobody watched.
    pub(super) async fn ended(
        &self,
        last: &Inspected,
        seen: Option<&Watching>,
        cgroups: &Cgroups,
        began: Instant,
        incomplete: bool,
    ) -> Result<Ended, Unsettled> {
        let stored = self.sandbox.store.execution(self.call()).await?;
        let reason = stored.and_then(|row| row.reason).as_deref().and_then(StopReason::parse);
        let text = |stream| {
            self.live
                .with_spool(|spool| Text { text: spool.text(stream), bytes: spool.bytes(stream) })
        };
        Ok(Ended {
            way: Way::Ran { code: last.exit_code },
            reason,
            oom_seen: last.oom_killed
                || seen.is_some_and(|seen| seen.oom_seen)
                || cgroups.oom_kills() > 0,
            output_incomplete: incomplete || seen.is_some_and(|seen| seen.incomplete),
            stdout: text(Stream::Stdout),
            stderr: text(Stream::Stderr),
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// A clock that also counts while the host sleeps.
struct Clock {
    start: Duration,
    before: Duration,
}

impl Clock {
    fn start(began: Instant) -> Self {
        Self { start: boot_time(), before: began.elapsed() }
    }

    fn passed(&self) -> Duration {
        self.before + boot_time().saturating_sub(self.start)
    }
}

fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}
