//! Whether what people signed admits a plan. The count is `receipt`'s; this says what this service knows besides.

use std::collections::HashSet;

use event::id::ReceiptId;
use receipt::{
    Admission, Asked, Grant, Invalid, Knowledge, Plan, Receipt, Shortfall, Verified, Why, admission,
};

use crate::planner::Planned;
use crate::policy::Approvers;
use crate::refusal::{Reason, Refusal};
use crate::session::now_secs;
use crate::why;

/// What no receipt says of itself.
pub(crate) struct Known<'a> {
    pub(crate) approvers: &'a Approvers,
    pub(crate) revoked: &'a HashSet<ReceiptId>,
}

pub(crate) fn admit(
    planned: &Planned,
    grant: &Grant,
    receipts: &[Result<Verified<Receipt>, Invalid>],
    known: &Known<'_>,
) -> Result<Admission, Refusal> {
    let Planned { plan, digest, .. } = planned;
    let action = plan.action_digest().map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    let asked = Asked { plan, digest: *digest, action, grant, now: now_secs() };
    let knowledge = Knowledge {
        approver: &|subject, key| known.approvers.find(subject, key),
        is_revoked: &|receipt| known.revoked.contains(&receipt),
    };
    admission(&asked, receipts, &knowledge).map_err(|short| refused(&short, plan))
}

fn refused(short: &Shortfall, plan: &Plan) -> Refusal {
    let reason = Reason::NotAdmitted(short.reason());
    match short.why {
        Why::Denied => Refusal::new(reason, why::denied(plan)),
        Why::NoReceipt | Why::Fault(_) | Why::Count => Refusal::new(reason, short),
    }
}
