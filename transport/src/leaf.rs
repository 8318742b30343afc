//! Reads a leaf certificate: whose it is, its serial, until when. It checks no signature; rustls does that before.

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{Identity, Peer, TrustDomain, identity::Malformed};

/// What a leaf says.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) peer: Peer,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
}

impl Leaf {
    pub(crate) fn read(
        der: &CertificateDer<'_>,
        domain: &TrustDomain,
    ) -> Result<Self, Unidentified> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| Unidentified::Unreadable)?;
        if certificate.is_ca() {
            return Err(Unidentified::Issuer);
        }
        let uri = only_uri(&certificate)?;
        let identity = Identity::parse(uri, domain).map_err(Unidentified::Id)?;
        let peer = Peer { identity, uri: uri.into(), serial: hex(certificate.raw_serial()).into() };
        let validity = certificate.validity();
        Ok(Self {
            peer,
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
        })
    }
}

pub(crate) fn is_issuer(der: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| certificate.is_ca())
}

/// SPIFFE: exactly one URI among the alternative names; with two, which one counts would be the reader's choice.
fn only_uri<'a>(certificate: &X509Certificate<'a>) -> Result<&'a str, Unidentified> {
    let names = certificate.subject_alternative_name().map_err(|_| Unidentified::Unreadable)?;
    let mut uris = names.into_iter().flat_map(|names| &names.value.general_names).filter_map(
        |name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        },
    );
    let uri = uris.next().ok_or(Unidentified::NoUri)?;
    match uris.next() {
        None => Ok(uri),
        Some(_) => Err(Unidentified::ManyUris),
    }
}

fn hex(serial: &[u8]) -> String {
    let digits: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.trim_start_matches('0').to_owned()
}

/// Why a certificate, though its chain is good, names nobody who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unidentified {
    /// Not a certificate that can be read.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// An issuer's certificate in a leaf's place.
    #[error("an issuer's certificate was presented as a leaf")]
    Issuer,
    /// No SPIFFE id.
    #[error("the certificate has no URI among its alternative names")]
    NoUri,
    /// Two or more.
    #[error("the certificate has more than one URI among its alternative names")]
    ManyUris,
    /// An id that is not one of ours.
    #[error("the certificate's id is refused")]
    Id(#[source] Malformed),
    /// A good identity at the wrong door.
    #[error("this role is not admitted here")]
    Role,
    /// On the deny list.
    #[error("the peer is on the deny list")]
    Denied,
}

impl Unidentified {
    /// The bounded label of the failure counter.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Issuer => "issuer_as_leaf",
            Self::NoUri => "no_uri",
            Self::ManyUris => "many_uris",
            Self::Id(Malformed::OtherTrustDomain) => "other_trust_domain",
            Self::Id(Malformed::SigningOnly) => "signing_only",
            Self::Id(
                Malformed::Uri | Malformed::TrustDomain | Malformed::Role | Malformed::Service,
            ) => "malformed_id",
            Self::Role => "role_not_admitted",
            Self::Denied => "denied",
        }
    }
}
