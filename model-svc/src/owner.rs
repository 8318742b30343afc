//! Who asks, and what the session they ask for may do.

use event::Digest;
use event::id::SessionId;

/// The owner of a session as a request names it: believed only when it is the one that Fence registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    pub(crate) node: String,
    pub(crate) epoch: u64,
}

/// What a verified grant and its manifest say about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) tenant: String,
    pub(crate) subject: String,
    /// Digest of the manifest.
    pub(crate) manifest: Digest,
    pub(crate) workspace: String,
    pub(crate) models: Vec<String>,
    /// Tokens that one run may cost.
    pub(crate) max_model_tokens: Option<u64>,
    /// Unix seconds.
    pub(crate) grant_exp: u64,
}
