//! After a command that wrote the workspace itself: the private copy is taken anew, so that what is read from it is
//! what the workspace holds. Nothing of the old copy is lost by that, for no command starts over changes in it.

use std::sync::Arc;

use tracing::{info, warn};

use crate::binding::Bindings;
use crate::environment::{Copied, Environment};
use crate::error::Error;
use crate::sandbox::Sandbox;
use crate::session::Session;
use crate::staging::Size;
use crate::store::EnvironmentState;
use crate::tree::Dir;

/// What became of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retaken {
    Done,
    /// The workspace no longer fits; the run has no copy any more.
    Lost(String),
}

impl Sandbox {
    pub(crate) async fn retake(
        &self,
        session: &Session,
        environment: &Environment,
    ) -> Result<Retaken, Error> {
        let run = environment.run;
        let rulebook = self.sessions.rulebook(session)?;
        let (place, host, user) =
            (environment.place.clone(), environment.host.clone(), environment.user);
        let source = environment.source.clone();
        let size = Size { bytes: source.bounds.total_bytes, inodes: source.bounds.entries };
        let take = move || -> Result<Copied, Error> {
            let failed = |what| Error::file(what, place.copy());
            place.remove().map_err(failed("the old copy is still at"))?;
            let root =
                Dir::open(&host).map_err(Error::file("the workspace cannot be opened", &host))?;
            place.make(user.uid, size).map_err(failed("the copy's place cannot be made"))?;
            Ok(source.take(&rulebook, &root, &place, user.uid)?)
        };
        match tokio::task::spawn_blocking(take).await? {
            Ok(Copied { taken, fresh, carried }) => {
                self.record_carried(session, run, &carried).await?;
                let bindings = Bindings::of(self, session, &environment.place).await?;
                let bindings = bindings.map_err(|binding| Error::EnvironmentLost(Some(binding)))?;
                self.store.retake_environment(run, &taken, &bindings).await?;
                self.replace_environment(Arc::new(environment.retaken(taken, fresh)));
                info!(%run, "the private copy was taken anew");
                Ok(Retaken::Done)
            }
            Err(Error::WorkspaceTooLarge(why)) => {
                warn!(%run, "the workspace outgrew the private copy");
                self.forget_environment(run);
                self.store.set_environment_state(run, EnvironmentState::Lost).await?;
                Ok(Retaken::Lost(why))
            }
            Err(error) => Err(error),
        }
    }
}
