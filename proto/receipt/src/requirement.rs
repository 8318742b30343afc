//! Whose allows an ask needs. It says who may count and how many do, never whether a signature is genuine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::payload::{Receipt, Role};

/// Met by `count` different people who each fit. Several requirements are met each for itself, and the same person may
/// count for more than one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// One of these; none listed means any.
    pub roles: BTreeSet<String>,
    /// Not the person whose session it is.
    pub not_requester: bool,
    /// At least 1.
    pub count: u8,
    /// Each of them with a signature of their own.
    pub signature: bool,
}

impl Default for Requirement {
    /// What every ask needs: one allow, anybody's.
    fn default() -> Self {
        Self { roles: BTreeSet::new(), not_requester: false, count: 1, signature: false }
    }
}

/// Why a person's allow counts for nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is the requester's own")]
    Requester,
    #[error("the person has none of the roles that may allow this")]
    Role,
}

impl Requirement {
    /// Whether it asks for no more than every ask does.
    pub fn is_trivial(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a plan may name it: somebody is needed, and it says more than goes without saying.
    pub(crate) fn is_meant(&self) -> bool {
        self.count > 0 && !self.is_trivial()
    }

    /// Whether an allow of this person could count, their own signature apart.
    pub fn fits(
        &self,
        subject: &str,
        roles: &BTreeSet<Role>,
        requester: &str,
    ) -> Result<(), Unfit> {
        if self.not_requester && subject == requester {
            return Err(Unfit::Requester);
        }
        if !self.takes_role(roles.iter().map(|role| role.as_str())) {
            return Err(Unfit::Role);
        }
        Ok(())
    }

    pub(crate) fn takes_role<'a>(&self, mut roles: impl Iterator<Item = &'a str>) -> bool {
        self.roles.is_empty() || roles.any(|role| self.roles.contains(role))
    }
}

/// What a plan lists of the requirements of its parts: each once, and none that goes without saying.
pub fn meant(requirements: impl IntoIterator<Item = Requirement>) -> Vec<Requirement> {
    let somebody = |it: Requirement| Requirement { count: it.count.max(1), ..it };
    let all: BTreeSet<Requirement> = requirements.into_iter().map(somebody).collect();
    all.into_iter().filter(Requirement::is_meant).collect()
}

/// Why this person's allow would count for none of the requirements; nothing where it counts for one.
pub fn unfit(
    requirements: &[Requirement],
    subject: &str,
    roles: &BTreeSet<Role>,
    requester: &str,
) -> Option<Unfit> {
    let mut first = None;
    for requirement in requirements {
        match requirement.fits(subject, roles, requester) {
            Ok(()) => return None,
            Err(unfit) => first = first.or(Some(unfit)),
        }
    }
    first
}

/// How far the requirement is met that lacks most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub have: u32,
    pub need: u32,
}

impl Progress {
    pub fn is_complete(self) -> bool {
        self.have >= self.need
    }

    fn lacks(self) -> u32 {
        self.need.saturating_sub(self.have)
    }

    pub(crate) fn least(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        // Of equals the first; `max_by_key` would take the last.
        all.into_iter().reduce(|one, other| if other.lacks() > one.lacks() { other } else { one })
    }
}

/// How far these receipts of one ask go, for whoever has no list of keys: a signature counts by being there.
pub fn progress(requirements: &[Requirement], requester: &str, receipts: &[Receipt]) -> Progress {
    let trivial = [Requirement::default()];
    let requirements = if requirements.is_empty() { &trivial } else { requirements };
    let of = |requirement: &Requirement| {
        let counts = |receipt: &&Receipt| {
            requirement.fits(&receipt.subject, &receipt.roles, requester).is_ok()
                && (receipt.approval.is_some() || !requirement.signature)
        };
        let people: BTreeSet<&str> =
            receipts.iter().filter(counts).map(|receipt| receipt.subject.as_str()).collect();
        let have = u32::try_from(people.len()).unwrap_or(u32::MAX);
        Progress { have, need: requirement.count.max(1).into() }
    };
    Progress::least(requirements.iter().map(of)).unwrap_or(Progress { have: 0, need: 1 })
}
