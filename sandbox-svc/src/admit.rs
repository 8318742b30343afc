//! Whether a person's receipt admits a plan: each thing it must name has a reason of its own. Signature and
//! time were judged before.

use event::Digest;
use receipt::{Effect, Executor, Grant, Plan, Receipt, Scope};

use crate::refusal::Reason;

/// The plan as it would be carried out now.
pub(crate) struct Proposed<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) digest: Digest,
    pub(crate) action: Digest,
}

/// What an effect needs before anything else is looked at.
pub(crate) fn needs_receipt(effect: Effect, attached: bool) -> Result<bool, Reason> {
    match (effect, attached) {
        (Effect::Deny, _) => Err(Reason::PolicyDenied),
        (Effect::Ask, false) => Err(Reason::ReceiptRequired),
        (Effect::Ask, true) => Ok(true),
        (Effect::Allow, _) => Ok(false),
    }
}

pub(crate) fn check(
    receipt: &Receipt,
    proposed: &Proposed<'_>,
    grant: &Grant,
) -> Result<(), Reason> {
    let Proposed { plan, digest, action } = proposed;
    if receipt.audience != Executor::SandboxSvc {
        return Err(Reason::ReceiptAudienceMismatch);
    }
    if receipt.session != plan.session {
        return Err(Reason::ReceiptSessionMismatch);
    }
    if receipt.tenant != grant.tenant {
        return Err(Reason::ReceiptTenantMismatch);
    }
    match receipt.scope {
        Scope::Once if receipt.call != plan.call => return Err(Reason::ReceiptCallMismatch),
        Scope::Once if receipt.plan != *digest => return Err(Reason::ReceiptPlanMismatch),
        Scope::Run if receipt.action != *action => return Err(Reason::ReceiptActionMismatch),
        Scope::Once | Scope::Run => (),
    }
    if receipt.run != plan.run {
        return Err(Reason::ReceiptRunMismatch);
    }
    if !plan.scopes.contains(&receipt.scope) {
        return Err(Reason::ReceiptScopeMismatch);
    }
    Ok(())
}
