//! The peer of a connection, read once from its certificate; never from anything a message says.

use std::sync::Arc;

use crate::{Code, Identity, Public, to_status};

/// Who is at the other end of a mutually authenticated connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The role and name.
    pub identity: Identity,
    /// The SPIFFE id as it stands in the certificate.
    pub uri: Arc<str>,
    /// The certificate's serial number: lower-case hex without leading zeros.
    pub serial: Arc<str>,
}

impl Peer {
    /// The peer that the server put beside an accepted request.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<Self, NoPeer> {
        request.extensions().get::<Self>().cloned().ok_or(NoPeer(()))
    }
}

/// A request that did not come through [`crate::server::Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request carries no peer identity")]
pub struct NoPeer(());

impl Public for NoPeer {
    const DOMAIN: &'static str = crate::status::DOMAIN;

    fn code(&self) -> Code {
        Code::Unauthenticated
    }

    fn reason(&self) -> &str {
        "PEER_UNKNOWN"
    }
}

impl From<NoPeer> for tonic::Status {
    fn from(error: NoPeer) -> Self {
        to_status(&error)
    }
}
