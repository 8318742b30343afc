//! How far a reader may look: an auditor's certificate everywhere, the gateway only as far as the person it acts for.

use event::id::SessionId;
use receipt::{Audience, OBO_KEY, Obo, Role, Signed, Verified, Verifier};
use time::OffsetDateTime;
use tonic::Request;
use transport::{Identity, Material, Peer, Service};

use crate::refusal::{OboMember, Refused};

/// What a reader may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    Everything,
    /// One tenant, and only the session that the context names, if it names one.
    Tenant {
        tenant: String,
        session: Option<SessionId>,
    },
}

impl Reach {
    /// Who sent the request, and for whom, where that is not an auditor itself.
    pub(crate) fn of<T>(
        request: &Request<T>,
        material: &Material,
        method: &str,
    ) -> Result<Self, Refused> {
        let peer = Peer::of(request).map_err(|_| Refused::OboRequired)?;
        match &peer.identity {
            Identity::Auditor { .. } => Ok(Self::Everything),
            Identity::Service { service: Service::Gateway, .. } => {
                on_behalf_of(request, &peer, material, method)
            }
            Identity::Service { .. } | Identity::Client { .. } => Err(Refused::OboRequired),
        }
    }

    /// The tenant to read: the one that is asked for, where it may be.
    pub(crate) fn tenant(&self, asked: String) -> Result<Option<String>, Refused> {
        match self {
            Self::Everything => Ok(Some(asked).filter(|tenant| !tenant.is_empty())),
            Self::Tenant { tenant, .. } if asked.is_empty() || asked == *tenant => {
                Ok(Some(tenant.clone()))
            }
            Self::Tenant { .. } => Err(Refused::OboMismatch { what: OboMember::Tenant }),
        }
    }

    /// A context is bound to the session that is asked for, or to none when none is.
    pub(crate) fn session(&self, asked: Option<SessionId>) -> Result<(), Refused> {
        match self {
            Self::Tenant { session, .. } if *session != asked => {
                Err(Refused::OboMismatch { what: OboMember::Session })
            }
            Self::Tenant { .. } | Self::Everything => Ok(()),
        }
    }

    /// Whether an entry may be seen; one that may not does not exist.
    pub(crate) fn includes(&self, tenant: &str, session: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Tenant { tenant: own, session: bound } => {
                own == tenant && bound.is_none_or(|bound| bound.to_string() == session)
            }
        }
    }
}

fn on_behalf_of<T>(
    request: &Request<T>,
    peer: &Peer,
    material: &Material,
    method: &str,
) -> Result<Reach, Refused> {
    let value = request.metadata().get_bin(OBO_KEY).ok_or(Refused::OboRequired)?;
    let bytes = value.to_bytes().map_err(|_| Refused::OboMalformed)?;
    let signed = Signed::parse(&bytes).map_err(|_| Refused::OboMalformed)?;
    let obo = verified(&signed, material)?;
    let bindings = [
        (OboMember::Issuer, obo.issuer == *peer.uri),
        (OboMember::Audience, obo.audience == Audience::AuditSvc),
        (OboMember::Method, obo.method == method),
    ];
    if let Some((what, _)) = bindings.into_iter().find(|(_, holds)| !holds) {
        return Err(Refused::OboMismatch { what });
    }
    if !obo.roles.iter().any(|role| matches!(role, Role::Auditor | Role::Operator)) {
        return Err(Refused::OboRole);
    }
    Ok(Reach::Tenant { tenant: obo.tenant.clone(), session: obo.session })
}

/// The issuers are read anew each time: they may have changed since the last.
fn verified(signed: &Signed, material: &Material) -> Result<Verified<Obo>, Refused> {
    let verifier = Verifier::new(&material.services_ca(), material.trust_domain().as_str())
        .map_err(|_| Refused::OboInvalid { invalid: receipt::Untrusted::Issuer.into() })?;
    let now = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or_default();
    let denied =
        |signing: &receipt::Signing| material.denies(&signing.spiffe_id, &signing.serial_hex);
    verifier.verify(signed, now, &denied).map_err(|invalid| Refused::OboInvalid { invalid })
}
