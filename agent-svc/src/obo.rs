//! For whom the gateway calls: verified once per call and never taken from a message. It says who may ask, not what for.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use event::id::{PermissionId, SessionId};
use receipt::{Audience, Invalid, OBO_KEY, Obo, OboId, Role, Signed, Verified, Verifier};
use transport::{Code, Peer};

use crate::clock::Clock;

/// How many contexts are remembered; each lives for a minute.
const REMEMBERED: usize = 65_536;

/// The person behind a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant: String,
    pub(crate) subject: String,
    pub(crate) roles: BTreeSet<Role>,
}

/// What a call does, as far as roles care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Act,
}

/// What the context must be bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) method: &'static str,
    pub(crate) access: Access,
    pub(crate) session: Option<SessionId>,
    pub(crate) permission: Option<PermissionId>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is none")]
    Missing,
    #[error("it cannot be read")]
    Malformed,
    #[error("{0}")]
    Invalid(#[source] Invalid),
    #[error("it was issued to another gateway")]
    Issuer,
    #[error("it is meant for another service")]
    Audience,
    #[error("it is meant for another method")]
    Method,
    #[error("it is meant for another session")]
    Session,
    #[error("it is meant for another permission")]
    Permission,
    #[error("it was used before")]
    Replayed,
    #[error("too many are in use; try again in a minute")]
    Full,
    #[error("none of its roles may do this")]
    Role,
}

impl Refused {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Missing | Self::Malformed | Self::Invalid(_) => Code::Unauthenticated,
            Self::Issuer
            | Self::Audience
            | Self::Method
            | Self::Session
            | Self::Permission
            | Self::Replayed
            | Self::Role => Code::PermissionDenied,
            Self::Full => Code::ResourceExhausted,
        }
    }

    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "OBO_REQUIRED",
            Self::Malformed => "OBO_MALFORMED",
            Self::Invalid(Invalid::Signature) => "OBO_SIGNATURE_INVALID",
            Self::Invalid(Invalid::Signer(_)) => "OBO_SIGNER_UNTRUSTED",
            Self::Invalid(Invalid::Denied) => "OBO_SIGNER_DENIED",
            Self::Invalid(Invalid::Expired) => "OBO_EXPIRED",
            Self::Invalid(Invalid::NotYetValid) => "OBO_NOT_YET_VALID",
            Self::Invalid(Invalid::Payload(_)) => "OBO_PAYLOAD_MALFORMED",
            Self::Issuer => "OBO_ISSUER_MISMATCH",
            Self::Audience => "OBO_AUDIENCE_MISMATCH",
            Self::Method => "OBO_METHOD_MISMATCH",
            Self::Session => "OBO_SESSION_MISMATCH",
            Self::Permission => "OBO_PERMISSION_MISMATCH",
            Self::Replayed => "OBO_REPLAYED",
            Self::Full => "OBO_TOO_MANY",
            Self::Role => "ROLE_NOT_ALLOWED",
        }
    }
}

/// Admits each context once.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Ids>);

#[derive(Debug, Default)]
struct Ids {
    known: HashSet<OboId>,
    by_expiry: BTreeSet<(u64, OboId)>,
}

impl Seen {
    fn admit(&self, id: OboId, exp: u64, now: u64) -> Result<(), Refused> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(&(oldest, gone)) = ids.by_expiry.first()
            && oldest <= now
        {
            ids.by_expiry.pop_first();
            ids.known.remove(&gone);
        }
        if ids.known.len() >= REMEMBERED {
            return Err(Refused::Full);
        }
        if !ids.known.insert(id) {
            return Err(Refused::Replayed);
        }
        ids.by_expiry.insert((exp, id));
        Ok(())
    }
}

/// Auditors read the ledger, not sessions.
fn may(roles: &[Role], access: Access) -> bool {
    roles.iter().any(|role| match (role, access) {
        (Role::Operator | Role::Admin, Access::Read | Access::Act)
        | (Role::Viewer, Access::Read) => true,
        (Role::Viewer, Access::Act) | (Role::Auditor, Access::Read | Access::Act) => false,
    })
}

/// Judges what gateways sign, by the services CA and the deny list of the moment.
#[derive(Debug)]
pub(crate) struct Gate {
    verifier: Verifier,
    material: std::sync::Arc<transport::Material>,
    clock: Clock,
    seen: Seen,
}

impl Gate {
    pub(crate) fn new(
        verifier: Verifier,
        material: std::sync::Arc<transport::Material>,
        clock: Clock,
    ) -> Self {
        Self { verifier, material, clock, seen: Seen::default() }
    }

    pub(crate) fn verify<P: receipt::Payload>(
        &self,
        signed: &Signed,
    ) -> Result<Verified<P>, Invalid> {
        let denied = |signing: &receipt::Signing| {
            self.material.denies(&signing.spiffe_id, &signing.serial_hex)
        };
        self.verifier.verify(signed, self.clock.millis().unix_seconds(), &denied)
    }

    /// Everything that a call's context is held against. The replay check comes last: a context that fits something
    /// else is not used up by being tried here.
    pub(crate) fn admit<T>(
        &self,
        request: &tonic::Request<T>,
        about: About,
    ) -> Result<Caller, Refused> {
        let peer = Peer::of(request).map_err(|_| Refused::Missing)?;
        let value = request.metadata().get_bin(OBO_KEY).ok_or(Refused::Missing)?;
        let bytes = value.to_bytes().map_err(|_| Refused::Malformed)?;
        let signed = Signed::parse(&bytes).map_err(|_| Refused::Malformed)?;
        let obo = self.verify::<Obo>(&signed).map_err(Refused::Invalid)?.into_inner();
        let Obo {
            issuer,
            audience,
            tenant,
            subject,
            roles,
            method,
            session,
            permission,
            id,
            exp,
            ..
        } = obo;
        if issuer != *peer.uri {
            return Err(Refused::Issuer);
        }
        if audience != Audience::AgentSvc {
            return Err(Refused::Audience);
        }
        if method != about.method {
            return Err(Refused::Method);
        }
        if session != about.session {
            return Err(Refused::Session);
        }
        if permission != about.permission {
            return Err(Refused::Permission);
        }
        if !may(&roles, about.access) {
            return Err(Refused::Role);
        }
        self.seen.admit(id, exp, self.clock.millis().unix_seconds())?;
        Ok(Caller { tenant, subject, roles: roles.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use receipt::{OboId, Role};

    use super::{Access, REMEMBERED, Refused, Seen, may};

    #[test]
    fn a_viewer_reads_an_operator_answers_and_an_auditor_does_neither() {
        let table = [
            (Role::Viewer, true, false),
            (Role::Operator, true, true),
            (Role::Admin, true, true),
            (Role::Auditor, false, false),
        ];
        for (role, read, act) in table {
            assert_eq!(
                (may(&[role], Access::Read), may(&[role], Access::Act)),
                (read, act),
                "{role:?}"
            );
        }
        assert!(!may(&[], Access::Read));
        assert!(may(&[Role::Viewer, Role::Operator], Access::Act));
    }

    #[test]
    fn a_context_is_admitted_once_until_it_has_expired_anyway() {
        let (seen, id) = (Seen::default(), OboId::new());
        assert_eq!(seen.admit(id, 60, 1), Ok(()));
        assert_eq!(seen.admit(id, 60, 59), Err(Refused::Replayed));
        assert_eq!(seen.admit(OboId::new(), 120, 60), Ok(()));
        assert_eq!(seen.0.lock().unwrap().known.len(), 1);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_refused_rather_than_forgotten() {
        let seen = Seen::default();
        for _ in 0..REMEMBERED {
            assert_eq!(seen.admit(OboId::new(), 60, 1), Ok(()));
        }
        assert_eq!(seen.admit(OboId::new(), 60, 2), Err(Refused::Full));
        assert_eq!(seen.admit(OboId::new(), 120, 60), Ok(()));
    }
}
