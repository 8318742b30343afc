//! Effects under way: each asks its executor until there is an answer that settles it, and tells the driver. An errand
//! writes nothing, and it can be dropped at any time.

pub(super) mod execute;
pub(super) mod model;
pub(super) mod plan;

use std::sync::Arc;
use std::time::Duration;

use event::id::RunId;
use kernel::{Key, Reason, Seen};
use receipt::Executor;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{error, warn};
use transport::{Code, Fault};

use super::content::Content;
use super::progress::Progress;
use crate::peers::{Offers, Target};
use crate::runtime::Runtime;
use crate::store::Owner;
use crate::withheld::Withheld;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// An executor's word for a session whose grant has run out; it is about no call, even where it stands in one's place.
const GRANT_EXPIRED: &str = "GRANT_EXPIRED";
/// Without a valid grant a session waits, and looks again.
const GRANT_PAUSE: Duration = Duration::from_secs(30);
/// An executor that is told later than this does not begin.
const START_WITHIN: Duration = Duration::from_secs(60);

/// What an errand tells its driver.
#[derive(Debug)]
pub(super) enum Report {
    Fenced(Result<Offers, (Executor, Fault)>),
    /// The grant has run out, and nothing new is taken before it is renewed. It is looked at again.
    Lapsed,
    /// The effect is settled.
    Done {
        run: RunId,
        key: Key,
        seen: Seen,
        content: Content,
    },
    Progress {
        run: RunId,
        key: Key,
        progress: Progress,
    },
    /// The executor does not know this owner any more, or its grant has run out.
    Unfenced(Key),
    /// The executor knows a later owner.
    Stale,
    /// A call was being stopped, and its end was not heard.
    LostSight,
}

pub(super) struct Errand {
    pub(super) runtime: Arc<Runtime>,
    pub(super) owner: Owner,
    pub(super) run: RunId,
    pub(super) key: Key,
    pub(super) reports: mpsc::Sender<Report>,
}

/// What a failed request to an executor means.
pub(super) enum Then {
    /// Nobody has decided anything; ask again.
    Again,
    /// The executor has said no.
    Refused(Reason, String),
    /// The errand is over: the driver has been told why.
    Dropped,
}

impl Errand {
    pub(super) async fn done(self, seen: Seen, content: Content) {
        let (run, key) = (self.run, self.key);
        self.tell(Report::Done { run, key, seen, content }).await;
    }

    pub(super) async fn progress(&self, progress: Progress) {
        self.tell(Report::Progress { run: self.run, key: self.key, progress }).await;
    }

    /// A driver that is gone does not need to know.
    async fn tell(&self, report: Report) {
        drop(self.reports.send(report).await);
    }

    async fn unfenced(&self) {
        self.tell(Report::Unfenced(self.key)).await;
    }

    pub(super) async fn after(&self, fault: Fault, pause: &mut Pause) -> Then {
        match fault.reason.as_str() {
            "FENCE_STALE" => {
                self.tell(Report::Stale).await;
                Then::Dropped
            }
            "SESSION_UNKNOWN" | GRANT_EXPIRED => {
                self.unfenced().await;
                Then::Dropped
            }
            _ if is_transient(&fault) => {
                warn!(run = %self.run, reason = fault.reason, "executor does not answer");
                pause.wait().await;
                Then::Again
            }
            _ => Then::Refused(reason(&fault), fault.message),
        }
    }

    pub(super) fn target(&self, call: event::id::CallId, attempt: u32) -> Target {
        let start_before = self.runtime.clock.millis().plus(START_WITHIN);
        Target { run: self.run, call, attempt, start_before }
    }
}

/// Longer each time, up to a limit.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

fn is_transient(fault: &Fault) -> bool {
    match fault.code {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Unauthenticated => true,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Internal => false,
    }
}

/// A peer's reason, as far as it is one.
pub(super) fn reason(fault: &Fault) -> Reason {
    parsed(&fault.reason)
}

pub(super) fn parsed(text: &str) -> Reason {
    Reason::parse(text).unwrap_or(Reason::of("EXECUTOR_REFUSED"))
}

/// Shows both executors the session's owner, its grant and its manifest, until both have accepted or one has refused.
pub(super) async fn fence(
    runtime: Arc<Runtime>,
    owner: Owner,
    is_ended: bool,
    reports: mpsc::Sender<Report>,
) {
    let mut pause = Pause::new();
    let fenced = loop {
        match crate::fence::raise(&runtime, owner).await {
            Ok(Ok(offers)) => break Ok(offers),
            Ok(Err((_, fault))) if fault.reason == "FENCE_STALE" => {
                return drop(reports.send(Report::Stale).await);
            }
            Ok(Err((executor, fault))) if is_transient(&fault) => {
                warn!(session = %owner.session, executor = executor.as_str(), reason = fault.reason, "executor cannot be fenced yet");
                pause.wait().await;
            }
            Ok(Err((_, fault))) if fault.reason == GRANT_EXPIRED && !is_ended => {
                warn!(session = %owner.session, "session waits for a valid grant");
                drop(reports.send(Report::Lapsed).await);
                tokio::time::sleep(GRANT_PAUSE).await;
            }
            Ok(Err(refused)) => break Err(refused),
            Err(cause) => {
                warn!(session = %owner.session, error = %transport::Chain(&cause), "session cannot be read");
                pause.wait().await;
            }
        }
    };
    drop(reports.send(Report::Fenced(fenced)).await);
}

pub(super) async fn open(errand: Errand) {
    let mut pause = Pause::new();
    loop {
        match errand.runtime.peers.sandbox.open(errand.owner, errand.run).await {
            Ok(withheld) => {
                let content = Withheld::read(&withheld).map_or(Content::Bare, Content::Copied);
                return errand.done(Seen::EnvironmentOpened, content).await;
            }
            Err(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, detail) => {
                    let seen = Seen::EnvironmentFailed { reason };
                    return errand.done(seen, Content::Detail(detail)).await;
                }
                Then::Dropped => return,
            },
        }
    }
}

/// sandbox-svc closes no open environment by itself, so what fails is tried again for a while. Where the owner is not
/// known any more, the fence is raised first.
pub(super) async fn close(errand: Errand) {
    let mut pause = Pause::new();
    let give_up = Instant::now() + errand.runtime.spans.closing;
    let mut told = false;
    while let Err(fault) = errand.runtime.peers.sandbox.close(errand.owner, errand.run).await {
        match errand.after(fault, &mut pause).await {
            Then::Again => (),
            Then::Refused(reason, _) if Instant::now() >= give_up => {
                error!(run = %errand.run, %reason, "environment was not closed");
                break;
            }
            Then::Refused(reason, _) => {
                if !told {
                    warn!(run = %errand.run, %reason, "environment cannot be closed yet");
                    told = true;
                }
                pause.wait().await;
            }
            Then::Dropped => return,
        }
    }
    errand.done(Seen::EnvironmentClosed, Content::Bare).await;
}
