//! Whether what people signed admits a plan: the executor counts, by its own plan's requirements, and believes nobody
//! else's sum. It reads no clock, list or store; it is told.

mod shortfall;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use event::id::{PermissionId, ReceiptId};
use event::{Digest, Effect, Scope};

use crate::approval::PublicKey;
use crate::payload::{Grant, Receipt};
use crate::plan::Plan;
use crate::requirement::{Progress, Requirement, Unfit};
use crate::verifier::{Invalid, Verified};

pub use shortfall::{Fault, Shortfall, Why};

/// More receipts than this need not be looked at: no ask has so many approvers.
pub const MAX_RECEIPTS: usize = 32;
/// How far a person's clock may run ahead of the gateway's, in seconds.
const LEEWAY: u64 = 60;

/// The plan as the executor would carry it out now.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub plan: &'a Plan,
    pub digest: Digest,
    pub action: Digest,
    /// Of the session; its subject is the requester.
    pub grant: &'a Grant,
    /// Unix seconds.
    pub now: u64,
}

/// A person whose signatures count, as the administrator listed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    pub key: PublicKey,
    /// What they may sign as; no gateway adds to it.
    pub roles: BTreeSet<String>,
}

/// What the executor knows beside the receipts.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    /// By subject and key id.
    pub approver: &'a dyn Fn(&str, Digest) -> Option<Approver>,
    pub is_revoked: &'a dyn Fn(ReceiptId) -> bool,
}

impl fmt::Debug for Knowledge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knowledge").finish_non_exhaustive()
    }
}

/// What admitted the plan: nothing where rules alone allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// In the order of the receipts, one per person and requirement at most.
    pub counted: Vec<Counted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub subject: String,
    pub receipt: ReceiptId,
    pub permission: PermissionId,
    pub scope: Scope,
}

/// Judges the plan by its own effect and requirements. A receipt that does not count takes nothing away.
pub fn admission(
    asked: &Asked<'_>,
    receipts: &[Result<Verified<Receipt>, Invalid>],
    knowledge: &Knowledge<'_>,
) -> Result<Admission, Shortfall> {
    match asked.plan.effect {
        Effect::Allow => return Ok(Admission { counted: Vec::new() }),
        Effect::Deny => return Err(Shortfall { have: 0, need: 0, why: Why::Denied, whose: None }),
        Effect::Ask => (),
    }
    let trivial = [Requirement::default()];
    let requirements = match asked.plan.approval.as_slice() {
        [] => trivial.as_slice(),
        listed => listed,
    };
    let bound: Vec<Result<&Receipt, Fault>> =
        receipts.iter().map(|receipt| binding(receipt, asked, knowledge)).collect();
    let mut counted = BTreeMap::new();
    let mut short = Vec::new();
    for requirement in requirements {
        let tally = tally(requirement, &bound, asked, knowledge);
        if tally.progress.is_complete() {
            counted.extend(tally.counted);
        } else {
            short.push((tally.progress, tally.fault));
        }
    }
    let Some(Progress { have, need }) = Progress::least(short.iter().map(|(it, _)| *it)) else {
        return Ok(Admission { counted: counted.into_values().collect() });
    };
    let (why, whose) = match short.into_iter().find_map(|(_, fault)| fault) {
        _ if receipts.is_empty() => (Why::NoReceipt, None),
        // Whoever is named in what nobody has verified is nobody.
        Some((place, fault)) => {
            let receipt = receipts.get(place).and_then(|receipt| receipt.as_ref().ok());
            (Why::Fault(fault), receipt.map(|receipt| receipt.subject.clone()))
        }
        None => (Why::Count, None),
    };
    Err(Shortfall { have, need, why, whose })
}

struct Tally {
    progress: Progress,
    /// By the receipt's place.
    counted: BTreeMap<usize, Counted>,
    /// The first, and its receipt's place.
    fault: Option<(usize, Fault)>,
}

fn tally(
    requirement: &Requirement,
    bound: &[Result<&Receipt, Fault>],
    asked: &Asked<'_>,
    knowledge: &Knowledge<'_>,
) -> Tally {
    let (mut people, mut counted, mut fault) = (BTreeSet::new(), BTreeMap::new(), None);
    for (place, receipt) in bound.iter().enumerate() {
        let judged = receipt
            .clone()
            .and_then(|receipt| counts(requirement, receipt, asked, knowledge).map(|()| receipt));
        match judged {
            Ok(receipt) if people.insert(receipt.subject.as_str()) => {
                let Receipt { subject, id, permission, scope, .. } = receipt;
                let (subject, receipt) = (subject.clone(), *id);
                let it = Counted { subject, receipt, permission: *permission, scope: *scope };
                counted.insert(place, it);
            }
            Ok(_) => (),
            Err(found) => fault = fault.or(Some((place, found))),
        }
    }
    let have = u32::try_from(people.len()).unwrap_or(u32::MAX);
    // No requirement is met by nobody, whatever a plan that was not read strictly says.
    let progress = Progress { have, need: requirement.count.max(1).into() };
    Tally { progress, counted, fault }
}

/// Whether the receipt is about this plan at all, whoever it is from.
fn binding<'a>(
    receipt: &'a Result<Verified<Receipt>, Invalid>,
    asked: &Asked<'_>,
    knowledge: &Knowledge<'_>,
) -> Result<&'a Receipt, Fault> {
    let receipt: &Receipt = match receipt {
        Ok(verified) => verified,
        Err(invalid) => return Err(Fault::Invalid(invalid.clone())),
    };
    let Asked { plan, digest, action, grant, now: _ } = asked;
    if receipt.audience != plan.executor {
        return Err(Fault::Audience);
    }
    if receipt.session != plan.session || receipt.session != grant.session {
        return Err(Fault::Session);
    }
    if receipt.tenant != grant.tenant {
        return Err(Fault::Tenant);
    }
    match receipt.scope {
        Scope::Once if receipt.call != plan.call => return Err(Fault::Call),
        Scope::Once if receipt.plan != *digest => return Err(Fault::Plan),
        Scope::Once | Scope::Run if receipt.action != *action => return Err(Fault::Action),
        Scope::Once | Scope::Run => (),
    }
    if receipt.run != plan.run {
        return Err(Fault::Run);
    }
    if !plan.scopes.contains(&receipt.scope) {
        return Err(Fault::Scope);
    }
    if (knowledge.is_revoked)(receipt.id) {
        return Err(Fault::Revoked);
    }
    Ok(receipt)
}

fn counts(
    requirement: &Requirement,
    receipt: &Receipt,
    asked: &Asked<'_>,
    knowledge: &Knowledge<'_>,
) -> Result<(), Fault> {
    requirement
        .fits(&receipt.subject, &receipt.roles, &asked.grant.subject)
        .map_err(Fault::Unfit)?;
    if requirement.signature {
        let roles = proven(receipt, asked.now, knowledge)?;
        if !requirement.takes_role(roles.iter().map(String::as_str)) {
            return Err(Fault::Unfit(Unfit::Role));
        }
    }
    Ok(())
}

/// The listed roles of whoever signed for themselves.
fn proven(
    receipt: &Receipt,
    now: u64,
    knowledge: &Knowledge<'_>,
) -> Result<BTreeSet<String>, Fault> {
    let signed = receipt.approval.as_ref().ok_or(Fault::SignatureMissing)?;
    let Approver { key, roles } =
        (knowledge.approver)(&receipt.subject, signed.key_id()).ok_or(Fault::KeyUnknown)?;
    let approval = signed.verify(&key).map_err(Fault::SignatureInvalid)?;
    if !approval.is_of(receipt) {
        return Err(Fault::ApprovalMismatch);
    }
    // A standing allow outlives the hour of its signature, which counts when the receipt was made of it.
    let used = match receipt.scope {
        Scope::Once => now.max(receipt.iat),
        Scope::Run => receipt.iat,
    };
    if used >= approval.exp || receipt.iat.saturating_add(LEEWAY) < approval.iat {
        return Err(Fault::ApprovalExpired);
    }
    Ok(roles)
}
