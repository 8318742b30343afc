//! Whether a person's allow could count, by the plan's own words and by what is known of them now, before anything is
//! claimed. It knows nobody's key: whether a signature is genuine is the executor's to say.
use std::collections::BTreeSet;

use event::id::ReceiptId;
use receipt::{Receipt, Requirement, Role, Scope, SignedApproval, Unfit};

use super::Ask;
use crate::authn::Person;
use crate::refusal::Refusal;

/// How far a person's clock may run ahead of ours, in seconds.
const LEEWAY: u64 = 60;

/// Refuses an allow that would count for nothing. `requester` is whose session it is.
pub(super) fn may_allow(
    ask: &Ask,
    person: &Person,
    requester: &str,
    scope: Scope,
    approval: Option<&SignedApproval>,
    now: u64,
) -> Result<(), Refusal> {
    let roles: BTreeSet<Role> = person.roles.iter().copied().collect();
    if let Some(unfit) = receipt::unfit(&ask.approval, &person.subject, &roles, requester) {
        return Err(Refusal::NotAnApprover(said(unfit, &ask.approval, &roles)));
    }
    let fits = |it: &&Requirement| it.fits(&person.subject, &roles, requester).is_ok();
    let signs = ask.approval.iter().filter(fits).any(|it| it.signature);
    match approval {
        Some(signed) => is_of(ask, person, scope, signed, now),
        None if signs => Err(Refusal::ApprovalMissing),
        None => Ok(()),
    }
}

/// Why, for the person.
fn said(unfit: Unfit, requirements: &[Requirement], own: &BTreeSet<Role>) -> String {
    match unfit {
        Unfit::Requester => {
            "you opened this session yourself; somebody else has to allow this".to_owned()
        }
        Unfit::Role => {
            let wanted: BTreeSet<&str> =
                requirements.iter().flat_map(|it| &it.roles).map(String::as_str).collect();
            let own: Vec<&str> = own.iter().map(|role| role.as_str()).collect();
            let wanted = wanted.into_iter().collect::<Vec<_>>().join(" or ");
            format!("this needs an allow by {wanted}, and you are {}", own.join(" and "))
        }
    }
}

/// Whether what the person signed is what they are answering now.
fn is_of(
    ask: &Ask,
    person: &Person,
    scope: Scope,
    signed: &SignedApproval,
    now: u64,
) -> Result<(), Refusal> {
    let said = signed.read().map_err(|_| Refusal::ApprovalMismatch)?;
    if !said.is_of(&receipt(ask, person, scope, now, now)) {
        return Err(Refusal::ApprovalMismatch);
    }
    match said.exp <= now || said.iat > now.saturating_add(LEEWAY) {
        true => Err(Refusal::ApprovalExpired),
        false => Ok(()),
    }
}

/// What the person's allow comes to, without a signature of their own.
pub(super) fn receipt(ask: &Ask, person: &Person, scope: Scope, iat: u64, exp: u64) -> Receipt {
    Receipt {
        id: ReceiptId::new(),
        tenant: person.tenant.clone(),
        session: ask.session,
        run: ask.run,
        call: ask.call,
        permission: ask.permission,
        plan: ask.plan_digest,
        action: ask.action_digest,
        scope,
        subject: person.subject.clone(),
        roles: person.roles.iter().copied().collect(),
        approval: None,
        audience: ask.executor,
        iat,
        exp,
    }
}
