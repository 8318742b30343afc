//! Why the service does not start or stops early. What a caller of one method is told is in `refusal`.

use transport::state_dir;

use crate::store;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    StateDir(StateDir),
    #[error(transparent)]
    Store(Database),
    #[error("the services CA cannot vouch for receipts")]
    Trust(#[source] receipt::NoTrust),
    #[error("the method table does not fit the service")]
    Table(#[from] transport::authz::Mismatch),
    #[error(transparent)]
    Server(#[from] transport::server::Error),
}

/// See its text; opaque, because nobody acts on the difference.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StateDir(state_dir::Unusable);

/// See its text; opaque, because nobody acts on the difference.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Database(store::Error);

impl From<state_dir::Unusable> for Error {
    fn from(cause: state_dir::Unusable) -> Self {
        Self::StateDir(StateDir(cause))
    }
}

impl From<store::Error> for Error {
    fn from(cause: store::Error) -> Self {
        Self::Store(Database(cause))
    }
}
