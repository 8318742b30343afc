//! What a call is judged by, and the proof that it may run; decides nothing about people or policy itself.

use alloc::vec::Vec;
use core::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Digest, PermissionId};

/// What policy says about a call or a part of one; the strictest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
}

/// What running a call twice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing.
    Pure,
    /// Twice is the same as once.
    Idempotent,
    /// Changes only a private copy, and a lost attempt's changes are discarded.
    Staged,
    /// Cannot be taken back.
    Irreversible,
}

/// How far an allow reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    Once,
    /// Every call of this run with the same action digest.
    Run,
}

/// The executor's plan of a call, by its digests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub digest: Digest,
    /// The digest of the plan without what changes from call to call: what "this exact action" means.
    pub action: Digest,
    pub class: EffectClass,
    /// How far a person may allow it, the executor's suggestion first.
    pub scopes: Vec<Scope>,
}

/// A planned call in its present attempt, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub id: CallId,
    pub attempt: u32,
    pub plan: Plan,
}

/// What an approval rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// Every part of the plan is allowed by a rule.
    Policy,
    /// People allowed this very call; the receipts of this permission go along.
    Permission(PermissionId),
    /// People allowed the same action earlier, for the whole run. Nobody was asked for this call.
    Grant(PermissionId),
}

impl Basis {
    /// Whose receipts go along.
    pub fn permission(self) -> Option<PermissionId> {
        match self {
            Self::Policy => None,
            Self::Permission(permission) | Self::Grant(permission) => Some(permission),
        }
    }
}

/// Proof that something may be done. Only the kernel makes one, from a recorded allow verdict or a recorded answer:
///
/// ```compile_fail,E0451
/// let forged = kernel::Approved { what: (), basis: kernel::Basis::Policy };
/// ```
///
/// It cannot be read from bytes either:
///
/// ```compile_fail,E0277
/// fn readable<'de, T: serde::Deserialize<'de>>() {}
/// readable::<kernel::Approved<()>>();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approved<T> {
    what: T,
    basis: Basis,
}

impl<T> Approved<T> {
    pub(crate) fn by_policy(what: T) -> Self {
        Self { what, basis: Basis::Policy }
    }

    pub(crate) fn by_permission(what: T, permission: PermissionId) -> Self {
        Self { what, basis: Basis::Permission(permission) }
    }

    pub(crate) fn by_grant(what: T, permission: PermissionId) -> Self {
        Self { what, basis: Basis::Grant(permission) }
    }

    pub fn basis(&self) -> Basis {
        self.basis
    }
}

impl Approved<Call> {
    /// The same approved call, tried once more.
    pub(crate) fn again(mut self) -> Self {
        self.what.attempt = self.what.attempt.saturating_add(1);
        self
    }
}

impl<T> Deref for Approved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}
