//! Which certificates may sign: an Ed25519 key, exactly the one private purpose, and exactly one name that
//! is a receipt signer's. A certificate that can open a TLS connection never passes.

use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The extended key usage of receipt certificates: 1.3.6.1.4.1.32473.7.1.
pub const EKU_OID: [u64; 9] = [1, 3, 6, 1, 4, 1, 32473, 7, 1];
/// The same as DER content octets.
pub(crate) const EKU_DER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x81, 0xfd, 0x59, 7, 1];
/// 1.3.101.112 as DER content octets.
const ED25519_DER: &[u8] = &[0x2b, 0x65, 0x70];

/// Who signed: the receipt certificate's name and serial number, for the deny list and the record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Signing {
    pub spiffe_id: String,
    /// Lower case, without separators or leading zeros.
    pub serial_hex: String,
}

/// Why a certificate is no receipt signer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    #[error("no certificate, or too many or too large ones")]
    Chain,
    #[error("the certificate does not parse")]
    Certificate,
    #[error("the certificate's key is not Ed25519")]
    Key,
    #[error("a certificate was not valid when this was signed")]
    Validity,
    #[error("the certificate is not for signing receipts alone")]
    Purpose,
    #[error("the certificate does not chain to the services CA")]
    Issuer,
    #[error("the certificate does not hold exactly one URI name")]
    Names,
    #[error("the certificate's name is not a receipt signer's")]
    Name,
    #[error("the certificate belongs to another trust domain")]
    TrustDomain,
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, Untrusted> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) | Err(_) => Err(Untrusted::Certificate),
    }
}

pub(crate) fn requires_ed25519(certificate: &X509Certificate<'_>) -> Result<(), Untrusted> {
    match certificate.public_key().algorithm.algorithm.as_bytes() {
        ED25519_DER => Ok(()),
        _ => Err(Untrusted::Key),
    }
}

/// What the certificate says of itself; its issuer and trust domain are judged apart.
pub(crate) fn signing(certificate: &X509Certificate<'_>) -> Result<Signing, Untrusted> {
    requires_ed25519(certificate)?;
    requires_sole_purpose(certificate)?;
    let spiffe_id = only_uri(certificate)?;
    trust_domain(spiffe_id)?;
    Ok(Signing {
        spiffe_id: spiffe_id.to_owned(),
        serial_hex: serial_hex(certificate.raw_serial()),
    })
}

fn serial_hex(serial: &[u8]) -> String {
    let digits = hex::encode(serial);
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}

fn requires_sole_purpose(certificate: &X509Certificate<'_>) -> Result<(), Untrusted> {
    let usage = certificate
        .extended_key_usage()
        .map_err(|_| Untrusted::Certificate)?
        .ok_or(Untrusted::Purpose)?
        .value;
    let ExtendedKeyUsage {
        any: false,
        server_auth: false,
        client_auth: false,
        code_signing: false,
        email_protection: false,
        time_stamping: false,
        ocsp_signing: false,
        other,
    } = usage
    else {
        return Err(Untrusted::Purpose);
    };
    match other.as_slice() {
        [only] if only.as_bytes() == EKU_DER => Ok(()),
        _ => Err(Untrusted::Purpose),
    }
}

fn only_uri<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, Untrusted> {
    let names = &certificate
        .subject_alternative_name()
        .map_err(|_| Untrusted::Certificate)?
        .ok_or(Untrusted::Names)?
        .value
        .general_names;
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => Ok(uri),
        _ => Err(Untrusted::Names),
    }
}

/// The trust domain of `spiffe://<trust domain>/receipts/gateway/<instance>`, taken segment by segment.
pub(crate) fn trust_domain(spiffe_id: &str) -> Result<&str, Untrusted> {
    let rest = spiffe_id.strip_prefix("spiffe://").ok_or(Untrusted::Name)?;
    let segments: Vec<&str> = rest.split('/').collect();
    match segments.as_slice() {
        [domain, "receipts", "gateway", instance] if is_segment(domain) && is_segment(instance) => {
            Ok(domain)
        }
        _ => Err(Untrusted::Name),
    }
}

fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::{Untrusted, trust_domain};

    #[test]
    fn only_the_exact_name_of_a_receipt_signer_passes() {
        assert_eq!(trust_domain("spiffe://example.test/receipts/gateway/gw-1"), Ok("example.test"));
        for uri in [
            "https://example.test/receipts/gateway/gw-1",
            "spiffe://example.test/svc/gateway/gw-1",
            "spiffe://example.test/receipts/gateway/",
            "spiffe://example.test/receipts/gateway/..",
            "spiffe://example.test/receipts/gateway/a/b",
            "spiffe://example.test/receipts/gateway/a?b",
            "spiffe://example.test/receipts/agent-svc/a",
            "spiffe://example.test/receipts/gateway-evil/a",
            "spiffe:///receipts/gateway/a",
        ] {
            assert_eq!(trust_domain(uri), Err(Untrusted::Name), "{uri}");
        }
    }
}
