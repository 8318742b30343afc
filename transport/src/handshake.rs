//! Names a failed handshake for the log and the counter; the refused client itself sees little more than a closed door.

use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError, OtherError};

use crate::{chain::find, leaf::Unidentified};

/// A handshake that came to no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("there are no issuers to trust any more; restore their file in the tls directory")]
    NoIssuers,
    #[error("the handshake took too long")]
    TimedOut,
    #[error("the handshake was under way longest when others needed its place")]
    CrowdedOut,
    #[error("no common protocol; the peer must offer h2")]
    Protocol,
    #[error("the handshake failed")]
    Tls(#[source] io::Error),
    #[error("the peer's certificate is refused")]
    Peer(#[source] Unidentified),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match find::<TlsError>(&error) {
            Some(TlsError::InvalidCertificate(CertificateError::Other(OtherError(cause)))) => {
                match cause.downcast_ref::<Unidentified>() {
                    Some(why) => Self::Peer(*why),
                    None => Self::Tls(error),
                }
            }
            _ => Self::Tls(error),
        }
    }
}

impl Failed {
    /// The bounded label of the failure counter.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NoIssuers => "no_issuers",
            Self::TimedOut => "timeout",
            Self::CrowdedOut => "crowded_out",
            Self::Protocol => "no_common_protocol",
            Self::Peer(why) => why.label(),
            Self::Tls(error) => match find::<TlsError>(error) {
                Some(error) => of_tls(error),
                None if error.kind() == io::ErrorKind::UnexpectedEof => "closed",
                None => "io",
            },
        }
    }
}

fn of_tls(error: &TlsError) -> &'static str {
    match error {
        TlsError::NoCertificatesPresented => "no_certificate",
        TlsError::NoApplicationProtocol => "no_common_protocol",
        TlsError::PeerIncompatible(_) => "incompatible",
        TlsError::InvalidMessage(_) | TlsError::InappropriateMessage { .. } => "not_tls",
        TlsError::AlertReceived(AlertDescription::UnknownCA) => "peer_does_not_trust_us",
        TlsError::AlertReceived(_) => "peer_refused_us",
        TlsError::InvalidCertificate(error) => of_certificate(error),
        _ => "tls",
    }
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "not_valid_yet"
        }
        CertificateError::UnknownIssuer => "unknown_issuer",
        // Also an issuer that only bears the name of ours.
        CertificateError::BadSignature => "bad_signature",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "wrong_purpose"
        }
        _ => "certificate",
    }
}
