//! Why model-svc does not start or stops. What callers are told is in `refusal`.

use crate::models::Fault;
use transport::state_dir;

use crate::store;

/// Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the models file cannot be used")]
    Models(#[source] Wrong),
    #[error("the state directory cannot be used")]
    StateDir(#[from] state_dir::Unusable),
    #[error("the state cannot be used; check the disk and the owner of --state-dir")]
    State(#[from] store::Error),
    #[error("an event cannot be written down")]
    Event(#[from] event::SealError),
    #[error("the table of callers does not fit the service")]
    Callers(#[from] transport::authz::Mismatch),
    #[error("the listeners cannot be served")]
    Serve(#[from] transport::server::Error),
}

/// The first thing that is wrong with the models file; `--check-config` tells all.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Wrong(Fault);

impl Error {
    pub(crate) fn models(faults: Vec<Fault>) -> Self {
        // A file without a fault is not refused.
        Self::Models(Wrong(faults.into_iter().next().unwrap_or(Fault::Empty)))
    }
}
