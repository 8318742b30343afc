//! Whether what people signed admits a plan. The count is `receipt`'s; this says what this service knows besides.

use receipt::{
    Admission, Asked, Grant, Invalid, Knowledge, Receipt, Shortfall, Verified, admission,
};

use crate::planner::Planned;
use crate::refusal::{Reason, Refusal};
use crate::session::now_secs;

pub(crate) fn admit(
    planned: &Planned,
    grant: &Grant,
    receipts: &[Result<Verified<Receipt>, Invalid>],
) -> Result<Admission, Refusal> {
    let Planned { plan, digest, .. } = planned;
    let action = plan.action_digest().map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    let asked = Asked { plan, digest: *digest, action, grant, now: now_secs() };
    // Nobody is listed and nothing was revoked: a plan that asks for people's own signatures is not admitted.
    let knowledge = Knowledge { approver: &|_, _| None, is_revoked: &|_| false };
    admission(&asked, receipts, &knowledge).map_err(refused)
}

fn refused(short: Shortfall) -> Refusal {
    Refusal::new(Reason::NotAdmitted(short.reason()), short)
}
