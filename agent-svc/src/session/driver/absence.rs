//! When nobody is there who could answer: what that means for a run whose manifest does not hold. A client that is away
//! for less than the grace is not away; where none ever was, there is nothing to wait for.

use kernel::{Answer, No, Seen, Status};
use receipt::OnDisconnect;

use super::{Broken, Driver};
use crate::clock::Millis;
use crate::session::content::Content;

impl Driver {
    /// The moment from which absence counts, while somebody is missed.
    pub(super) fn absent_at(&self) -> Option<Millis> {
        let status = match self.work.as_ref()?.run.status() {
            // While a child is at work, it is the child who asks.
            Status::Running => self.front()?.run.status(),
            own => own,
        };
        let presence = *self.live.presence().borrow();
        if self.session.on_disconnect == OnDisconnect::Hold || presence.attached > 0 {
            return None;
        }
        let missed = match status {
            Status::New | Status::Stopping { .. } | Status::Ending(_) | Status::Over(_) => false,
            // The ask itself is known to clients before its answer can be.
            Status::AwaitingPerson { .. } => presence.attended || self.is_acknowledged(),
            Status::Running | Status::NeedsOperator { .. } => presence.attended,
        };
        let at = match presence.attended {
            true => presence.since.max(self.waiting_since).plus(self.runtime.spans.grace),
            // Nobody is expected back.
            false => self.waiting_since,
        };
        missed.then(|| self.lease_ends.map_or(at, |ends| ends.max(at)))
    }

    /// A run that was attended ends when everyone has left; one that never was is told no.
    pub(super) async fn look_for_somebody(&mut self) -> Result<(), Broken> {
        let now = self.runtime.clock.millis();
        if self.absent_at().is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.live.presence().borrow().attended {
            return self.step(Seen::Disconnected, Content::Bare).await;
        }
        let Some(work) = self.front() else { return Ok(()) };
        let (run, status) = (work.id(), work.run.status());
        let Status::AwaitingPerson { permission, .. } = status else { return Ok(()) };
        let answer = Answer::Deny(No::MissingResolver);
        self.step_on(run, Seen::Answered { permission, answer }, Content::Bare).await
    }
}
