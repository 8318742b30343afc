//! Why an input changes nothing.

use crate::approval::Scope;
use crate::id::PermissionId;
use crate::outcome::Resolution;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the run has not been prompted yet")]
    NotStarted,
    #[error("the run has been prompted already")]
    AlreadyStarted,
    #[error("the run has ended")]
    Over,
    /// It answers something that is not outstanding, or not any more.
    #[error("nothing that is outstanding waits for this")]
    NotOutstanding,
    #[error("permission {permission} is resolved already")]
    AlreadyResolved { permission: PermissionId, resolution: Resolution },
    #[error("no permission {permission} was requested")]
    UnknownPermission { permission: PermissionId },
    #[error("permission {permission} had expired before it was answered")]
    Expired { permission: PermissionId },
    #[error("the plan does not offer this scope: {scope:?}")]
    ScopeNotOffered { scope: Scope },
    #[error("id {id:032x} is in use already")]
    IdReused { id: u128 },
}
