//! Every refusal of what someone tried is told to the ledger before it is told to them.

use event::id::CallId;
use event::{Digest, Stage};
use transport::Public as _;

use super::Desk;
use crate::owner::Owner;
use crate::record::{self, Refused, Stream, TOOL};
use crate::refusal::Refusal;
use crate::store::NoSession;
use crate::turn::Turn;

/// What a request is about, for the record of its refusal.
#[derive(Debug, Clone)]
pub(crate) struct About<'a> {
    pub(crate) stage: Stage,
    pub(crate) call: Option<CallId>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) plan: Option<Digest>,
}

impl About<'_> {
    pub(super) fn session(stage: Stage) -> Self {
        Self { stage, call: None, tool: None, plan: None }
    }

    pub(super) fn turn(turn: &Turn) -> Self {
        Self {
            stage: Stage::Execute,
            call: Some(turn.call),
            tool: Some(TOOL),
            plan: Some(turn.digest),
        }
    }
}

impl Desk {
    /// The refusal to answer with: the given one, unless it cannot be recorded.
    pub(super) async fn refuse(
        &self,
        owner: &Owner,
        stream: Stream<'_>,
        about: &About<'_>,
        refusal: Refusal,
    ) -> Refusal {
        if !refusal.is_recorded() {
            return refusal;
        }
        match self.record_refused(owner, stream, about, refusal.reason()).await {
            Ok(()) => refusal,
            Err(failed) => failed,
        }
    }

    pub(super) async fn record_refused(
        &self,
        owner: &Owner,
        stream: Stream<'_>,
        about: &About<'_>,
        reason: &str,
    ) -> Result<(), Refusal> {
        let About { stage, call, tool, plan } = about.clone();
        let claimed_session = &owner.session.to_string();
        let refused = Refused { stage, call, claimed_session, tool, plan, reason };
        let entry = record::refused(stream, refused, self.clock.now())?;
        self.store.enqueue(&entry).await?;
        self.ledger.wake();
        Ok(())
    }
}

impl From<NoSession> for Refusal {
    fn from(why: NoSession) -> Self {
        match why {
            NoSession::Unknown => Self::SessionUnknown,
            NoSession::Stale => Self::FenceStale,
        }
    }
}
