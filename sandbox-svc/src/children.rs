//! Runs that work in the private copy of the run that began them: who they are, what they may do at most, and their ends.
//! A child is admitted like any call of its parent's; its own calls are planned and admitted like any run's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event::id::{CallId, RunId, SessionId};
use manifest::Profile;
use serde_json::json;
use tracing::info;

use crate::answer;
use crate::environment::Environment;
use crate::error::Error;
use crate::planner::Stop;
use crate::refusal::{Reason, Refusal};
use crate::sandbox::Sandbox;
use crate::store::ChildRow;
use crate::tool::Tool;

/// Those that are open.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<HashMap<RunId, ChildRow>>);

impl Children {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, ChildRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In whose copy the run works: a child's parent's, else its own.
    pub(crate) fn host_of(&self, run: RunId) -> RunId {
        self.lock().get(&run).map_or(run, |child| child.parent)
    }

    fn profile_of(&self, run: RunId) -> Option<Profile> {
        self.lock().get(&run).map(|child| child.profile)
    }

    fn of(&self, parent: RunId) -> Vec<RunId> {
        let children = self.lock();
        children.values().filter(|child| child.parent == parent).map(|child| child.run).collect()
    }
}

/// A child bears the id of the call that admitted it, so that each call has one and no other.
fn child_of(call: CallId) -> RunId {
    RunId::from(*call.as_uuid())
}

impl Sandbox {
    /// What a child's profile lacks is denied to it, whatever rules and people allow; and a run has one child at a time.
    pub(crate) fn allowed_to(&self, run: RunId, call: CallId, tool: Tool) -> Result<(), Refusal> {
        if let Some(profile) = self.children.profile_of(run)
            && !profile.has(tool.as_str())
        {
            let detail =
                format!("a child with the profile {profile} does not have {}", tool.as_str());
            return Err(Refusal::new(Reason::ToolNotInProfile, detail));
        }
        let another = |child: &RunId| *child != child_of(call);
        match tool {
            Tool::Delegate(_) if self.children.of(run).iter().any(another) => {
                Err(Reason::ChildOpen.into())
            }
            _ => Ok(()),
        }
    }

    /// The effect of an admitted call: the child may open the copy. Doing it again changes nothing.
    pub(crate) async fn attach_child(
        &self,
        environment: &Environment,
        call: CallId,
        profile: Profile,
    ) -> Result<Vec<u8>, Stop> {
        let child = ChildRow {
            run: child_of(call),
            parent: environment.run,
            session: environment.session,
            profile,
            open: true,
        };
        let kept = self.store.put_child(&child).await.map_err(Error::Store)?;
        if kept.open {
            self.children.lock().insert(kept.run, kept);
        }
        info!(run = %kept.run, parent = %kept.parent, %profile, "a child was admitted");
        let told = json!({ "childRunId": kept.run.to_string(), "profile": profile.as_str() });
        answer::to_bytes(&told)
    }

    /// The copy that a child works in; nothing for a run that is none.
    pub(crate) async fn copy_of_child(
        &self,
        session: SessionId,
        run: RunId,
    ) -> Result<Option<Arc<Environment>>, Error> {
        match self.store.child(run).await? {
            None => Ok(None),
            Some(child) if child.session != session => Err(Error::RunUnknown),
            Some(child) if !child.open => Err(Error::EnvironmentUnknown),
            Some(_) => match self.environment(session, run) {
                Some(open) => Ok(Some(open)),
                None => Err(Error::EnvironmentLost(None)),
            },
        }
    }

    /// Ends a child's calls and then the child; the copy stays its parent's.
    pub(crate) async fn close_child(&self, session: SessionId, run: RunId) -> Result<(), Error> {
        if let Some(open) = self.environment(session, run) {
            let _admission = open.admission.lock().await;
            self.end_calls(run).await?;
            self.children.lock().remove(&run);
        }
        self.store.close_child(run).await?;
        info!(%run, "child closed");
        Ok(())
    }

    /// Along with its parent's copy, whose admission the caller holds.
    pub(crate) async fn end_children(&self, parent: RunId) -> Result<(), Error> {
        for child in self.children.of(parent) {
            self.end_calls(child).await?;
            self.children.lock().remove(&child);
        }
        Ok(())
    }

    /// Children of an earlier process whose copy is still there.
    pub(crate) async fn recover_children(&self) -> Result<(), Error> {
        for child in self.store.open_children().await? {
            if self.environment(child.session, child.parent).is_some() {
                self.children.lock().insert(child.run, child);
            }
        }
        Ok(())
    }
}
