//! Environments that an earlier process left: each goes on as what it was bound to, or is lost by name. It makes none.

use std::sync::Arc;

use tracing::warn;

use super::{Sandbox, user_of};
use crate::binding::{Binding, Bindings};
use crate::environment::Environment;
use crate::error::Error;
use crate::store::{EnvironmentRow, EnvironmentState};

impl Sandbox {
    /// Environments of an earlier process: open ones go on, half-made ones go, the rest is lost.
    pub(crate) async fn recover_environments(&self) -> Result<(), Error> {
        for row in self.store.live_environments().await? {
            let run = row.run;
            match row.state {
                EnvironmentState::Open => match self.find_again(row).await? {
                    Ok(open) => {
                        self.environments().insert(run, open);
                    }
                    Err(binding) => {
                        warn!(%run, %binding, "the private copy of a run is not what it was bound to");
                        self.store.lose_environment(run, binding).await?;
                    }
                },
                EnvironmentState::Opening => self.take_back(run).await,
                // An uncertain end is the reconciler's.
                EnvironmentState::Closing => match self.remove_closing(run).await {
                    Ok(()) | Err(Error::CleanupUncertain) => (),
                    Err(error) => return Err(error),
                },
                EnvironmentState::Closed | EnvironmentState::Lost => (),
            }
        }
        self.recover_children().await
    }

    /// Takes up a copy that is what it was bound to; or says what is not.
    async fn find_again(
        &self,
        row: EnvironmentRow,
    ) -> Result<Result<Arc<Environment>, Binding>, Error> {
        let EnvironmentRow {
            run,
            session,
            slot,
            state: _,
            staging,
            boot,
            bindings,
            lost: _,
            taken,
        } = row;
        if boot != self.boot {
            return Ok(Err(Binding::Boot));
        }
        if staging != self.staging.kind() {
            return Ok(Err(Binding::Staging));
        }
        let place = self.staging.place(run, staging);
        let there = place
            .is_there()
            .map_err(Error::file("the copy's place cannot be looked at", place.copy()))?;
        let (Some(taken), Some(bound), true) = (taken, bindings, there) else {
            return Ok(Err(Binding::Copy));
        };
        let session = match self.sessions.known(session).await {
            Ok(session) => session,
            Err(Error::SessionUnknown | Error::Grant { .. }) => return Ok(Err(Binding::Session)),
            Err(Error::Session { .. }) => return Ok(Err(Binding::Manifest)),
            Err(error) => return Err(error),
        };
        match Bindings::of(self, &session, &place).await? {
            Ok(now) => {
                if let Some(binding) = bound.differing(&now) {
                    return Ok(Err(binding));
                }
            }
            Err(binding) => return Ok(Err(binding)),
        }
        let host = self.sessions.workspace(&session)?.clone();
        let source = self.source(&session);
        let user = user_of(&session, &host, staging, slot)?;
        let workspace = session.grant.workspace.clone();
        Ok(Ok(Arc::new(Environment::new(
            run, session.id, workspace, host, place, user, source, taken, None,
        ))))
    }
}
