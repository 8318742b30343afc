//! Plans, session grants, approval receipts and on-behalf-of contexts: signed, verified and counted; never asked for.
//!
//! What an executor acts on is a [`Verified`] payload, and only [`Verifier::verify`] makes one:
//!
//! ```compile_fail,E0451
//! fn forge(payload: receipt::Grant, signing: receipt::Signing) -> receipt::Verified<receipt::Grant> {
//!     receipt::Verified { payload, signing }
//! }
//! ```

mod admission;
mod approval;
mod canonical;
mod edit;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod leaf;
mod mcp;
mod path_text;
mod payload;
mod plan;
mod record;
mod requirement;
mod signed;
mod signer;
mod verifier;

pub use event::{Effect, EffectClass, Executor, Layer, Matched, MountMode, Scope};

pub use admission::{
    Admission, Approver, Asked, Counted, Fault, Knowledge, MAX_RECEIPTS, Shortfall, Why, admission,
};
pub use approval::{Approval, ApproverKey, NotAKey, PublicKey, SignedApproval, Unproven};
pub use canonical::Malformed;
pub use edit::{Diff, Edit, EditOperation};
#[cfg(any(test, fuzzing))]
pub use fuzz::fuzz_decoders;
pub use leaf::{EKU_OID, Signing, Untrusted};
pub use mcp::{ToolCall, ToolServer};
pub use path_text::PathText;
pub use payload::{Audience, Grant, Obo, OboId, OnDisconnect, Payload, Receipt, Role};
pub use plan::{
    FileState, HostRule, Limits, Mount, Network, NetworkLayer, NotCarried, NotCarriedEntry,
    OtherHosts, Part, Patch, PatchEntry, PatchLink, PatchOp, Plan, PlanTooLarge, Policy, Program,
    Snapshot, Stdin, Step, Totals, Undoes, Version, plan_digest, strictest,
};
pub use requirement::{Progress, Requirement, Unfit, meant, progress, unfit};
pub use signed::{OBO_KEY, Signed};
pub use signer::{Signer, Unusable};
pub use verifier::{Invalid, NoTrust, Verified, Verifier};
