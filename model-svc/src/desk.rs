//! What this service does for a session: judge the fence, ask a model at most once per call, and say what became of it.
//! Transport ends before it, and providers begin behind it.

mod complete;
mod refuse;

use std::sync::Arc;

use event::Stage;
use event::id::CallId;
use receipt::Signed;
use tracing::info;
use transport::{Material, TaskTracker};

pub(crate) use complete::Reply;
pub(crate) use refuse::About;

use crate::calls::Calls;
use crate::clock::Clock;
use crate::fence;
use crate::ledger::Ledger;
use crate::models::Models;
use crate::owner::{Owner, Terms};
use crate::record::Stream;
use crate::refusal::Refusal;
use crate::store::{Completion, Fenced, Store};
use crate::turn::Outcome;

const TOOL_UNKNOWN: &str = "TOOL_UNKNOWN";

#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) material: Arc<Material>,
    pub(crate) models: Models,
    pub(crate) store: Arc<Store>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) clock: Clock,
    pub(crate) tracker: TaskTracker,
}

/// Where a call stands.
pub(crate) enum Standing {
    Unknown,
    Running,
    Done(Box<Outcome>),
    InDoubt,
}

impl Desk {
    /// Verifies grant and manifest, raises the fence or renews the grant.
    pub(crate) async fn fence(
        &self,
        owner: &Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Terms, Refusal> {
        let about = About::session(Stage::Fence);
        let shown = (owner, grant, manifest);
        let terms = match fence::judge(&self.material, &self.models, shown, self.clock.now()) {
            Ok(terms) => terms,
            Err(refusal) => {
                return Err(self.refuse(owner, Stream::Unproven, &about, refusal).await);
            }
        };
        let (refusal, terms) = match self.store.fence(owner, &terms).await? {
            Fenced::Raised => {
                info!(session = %owner.session, epoch = owner.epoch, "fence raised");
                return Ok(terms);
            }
            Fenced::Renewed => return Ok(terms),
            Fenced::Stale => (Refusal::FenceStale, terms),
            // The session's stream belongs to those it is registered for, whoever knocks.
            Fenced::OtherTerms(registered) => (Refusal::GrantConflict, *registered),
        };
        let proven = Stream::Session(owner.session, &terms);
        Err(self.refuse(owner, proven, &about, refusal).await)
    }

    pub(crate) async fn list_models(&self, owner: &Owner) -> Result<Vec<String>, Refusal> {
        Ok(self.proven(owner, &About::session(Stage::Plan)).await?.models)
    }

    pub(crate) async fn standing(&self, owner: &Owner, call: CallId) -> Result<Standing, Refusal> {
        self.proven(owner, &About { call: Some(call), ..About::session(Stage::Execute) }).await?;
        let found = match self.store.completion(owner.session, call).await? {
            // A call is open from before its row is written until after it is settled.
            Some(Completion::Requested) if self.calls.is_open(call) => {
                return Ok(Standing::Running);
            }
            Some(Completion::Requested) => self.store.completion(owner.session, call).await?,
            other => other,
        };
        Ok(match found {
            None => Standing::Unknown,
            Some(Completion::Done(outcome)) => Standing::Done(outcome),
            Some(Completion::Requested | Completion::InDoubt) => Standing::InDoubt,
        })
    }

    /// No remote tool server can be configured, so no name is one of theirs. Returns the reason.
    pub(crate) async fn refuse_tool(
        &self,
        owner: &Owner,
        about: &About<'_>,
    ) -> Result<&'static str, Refusal> {
        let terms = self.proven(owner, about).await?;
        let stream = Stream::Session(owner.session, &terms);
        self.record_refused(owner, stream, about, TOOL_UNKNOWN).await?;
        Ok(TOOL_UNKNOWN)
    }

    /// The session's terms when this owner is the present one.
    async fn proven(&self, owner: &Owner, about: &About<'_>) -> Result<Terms, Refusal> {
        match self.store.session(owner).await? {
            Ok(terms) => Ok(terms),
            Err((why, terms)) => {
                let stream = match &terms {
                    Some(terms) => Stream::Session(owner.session, terms),
                    None => Stream::Unproven,
                };
                Err(self.refuse(owner, stream, about, why.into()).await)
            }
        }
    }
}
