//! The signing key and what it signs: grants, receipts and the context of every call on a person's behalf. It signs
//! what it is given; whether that may be signed is decided by its callers.
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use event::id::{PermissionId, SessionId};
use receipt::{
    Audience, Grant, Invalid, Malformed, NoTrust, Obo, OboId, Payload, Receipt, Signed, Signer,
    Signing, Unusable, Verified, Verifier,
};
use time::OffsetDateTime;
use transport::Material;

use crate::authn::Person;

/// Seconds that a context is valid; each is used for one call, at once.
const OBO_LIFE: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} may be read by others; give it mode 0600", path.display())]
    Exposed { path: PathBuf },
    #[error(
        "receipt.crt and receipt.key cannot sign; issue a receipts certificate for this gateway"
    )]
    Unusable(#[from] Unusable),
    #[error("ca.crt of --tls-dir cannot vouch for receipt.crt")]
    NoTrust(#[from] NoTrust),
    #[error(
        "no service would accept what receipt.crt signs; issue it from the services CA of this trust domain"
    )]
    Untrusted(#[from] Invalid),
    #[error("nothing can be signed")]
    Malformed(#[from] Malformed),
}

/// Reads certificate and key; the key's file must be its owner's alone.
pub(crate) fn read(dir: &Path) -> Result<Signer, Error> {
    let (certificate, key) = (dir.join("receipt.crt"), dir.join("receipt.key"));
    let found = fs::metadata(&key).map_err(|source| Error::Read { path: key.clone(), source })?;
    if found.mode() & 0o077 != 0 {
        return Err(Error::Exposed { path: key });
    }
    let read = |path: &Path| {
        fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
    };
    Ok(Signer::from_pem(&read(&certificate)?, &read(&key)?)?)
}

/// What a call is about, as its context says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    pub(crate) session: Option<SessionId>,
    pub(crate) permission: Option<PermissionId>,
}

#[derive(Debug)]
pub(crate) struct Sign {
    signer: Signer,
    material: Arc<Material>,
}

impl Sign {
    /// Reads the key and proves that what it signs is accepted, so that no person finds out instead.
    pub(crate) fn open(dir: &Path, material: Arc<Material>) -> Result<Self, Error> {
        let sign = Self { signer: read(dir)?, material };
        sign.prove()?;
        Ok(sign)
    }

    /// Signs something harmless and verifies it as a service would.
    pub(crate) fn prove(&self) -> Result<(), Error> {
        let nobody = Person::nobody();
        let obo = self.context(&nobody, Audience::AgentSvc, "", About::default());
        self.verify::<Obo>(&self.signer.sign(&obo)?, now())?;
        Ok(())
    }

    pub(crate) fn grant(&self, grant: &Grant) -> Result<Signed, Malformed> {
        self.signer.sign(grant)
    }

    pub(crate) fn receipt(&self, receipt: &Receipt) -> Result<Signed, Malformed> {
        self.signer.sign(receipt)
    }

    /// The context of one call, as its metadata carries it.
    pub(crate) fn obo(
        &self,
        person: &Person,
        audience: Audience,
        method: &str,
        about: About,
    ) -> Result<Vec<u8>, Malformed> {
        self.signer.sign(&self.context(person, audience, method, about))?.to_bytes()
    }

    fn context(&self, person: &Person, audience: Audience, method: &str, about: About) -> Obo {
        let (About { session, permission }, iat) = (about, now());
        Obo {
            issuer: self.material.identity().uri(self.material.trust_domain()),
            audience,
            tenant: person.tenant.clone(),
            subject: person.subject.clone(),
            roles: person.roles.clone(),
            method: method.to_owned(),
            session,
            permission,
            id: OboId::new(),
            iat,
            exp: iat + OBO_LIFE,
        }
    }

    /// A grant that a gateway of this installation signed, whether or not it has run out.
    pub(crate) fn own_grant(&self, signed: &Signed) -> Result<Grant, Invalid> {
        let signed_at = Grant::parse(&signed.payload)?.iat;
        self.verify::<Grant>(signed, signed_at).map(Verified::into_inner)
    }

    fn verify<P: Payload>(&self, signed: &Signed, at: u64) -> Result<Verified<P>, Invalid> {
        let trust =
            Verifier::new(&self.material.services_ca(), self.material.trust_domain().as_str());
        let denied =
            |signing: &Signing| self.material.denies(&signing.spiffe_id, &signing.serial_hex);
        match trust {
            Ok(verifier) => verifier.verify(signed, at, &denied),
            // Material is only taken into use when its issuers parse.
            Err(_) => Err(Invalid::Signer(receipt::Untrusted::Issuer)),
        }
    }
}

/// Unix seconds.
pub(crate) fn now() -> u64 {
    u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or(0)
}
