//! The rustls configurations: TLS 1.3, no resumption either way, and a SPIFFE id that is checked inside the handshake.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError,
    OtherError, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::{
        NoServerSessionStorage, ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::{
    Identity, Service, TrustDomain,
    denylist::DenyList,
    leaf::{Leaf, Unidentified, is_issuer},
};

/// The only protocol between services.
pub(crate) const H2: &[u8] = b"h2";
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

/// Who may come in through a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admits {
    Services,
    Auditors,
}

impl Admits {
    fn admits(self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Services, Identity::Service { .. })
            | (Self::Auditors, Identity::Auditor { .. }) => true,
            (Self::Services | Self::Auditors, _) => false,
        }
    }
}

/// The one provider, so that no process-wide default is needed.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Why a configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("tls 1.3 is not available")]
    Version(#[from] TlsError),
    #[error("no issuer can be trusted")]
    Verifier(#[from] VerifierBuilderError),
}

pub(crate) fn mutual_server(
    key: &CertifiedKey,
    issuers: Arc<RootCertStore>,
    admits: Admits,
    domain: &TrustDomain,
) -> Result<Arc<ServerConfig>, Unusable> {
    let chain = WebPkiClientVerifier::builder_with_provider(issuers, provider()).build()?;
    let verifier = ClientVerifier { chain, admits, domain: domain.clone() };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
    config.alpn_protocols = vec![H2.to_vec()];
    forget_sessions(&mut config);
    Ok(Arc::new(config))
}

/// For people: no client certificate, and HTTP/1.1 because a WebSocket starts from it.
pub(crate) fn public_server(key: &CertifiedKey) -> Result<Arc<ServerConfig>, Unusable> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    forget_sessions(&mut config);
    Ok(Arc::new(config))
}

/// A resumed session is not verified again: an identity that has expired or was replaced would live on.
fn forget_sessions(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

pub(crate) fn client(
    key: &CertifiedKey,
    issuers: Arc<RootCertStore>,
    expect: Service,
    domain: &TrustDomain,
    denied: Arc<DenyList>,
) -> Result<ClientConfig, Unusable> {
    let verifier =
        ServerVerifier { issuers, expect, domain: domain.clone(), denied, provider: provider() };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
    config.alpn_protocols = vec![H2.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Chain to the listener's issuers, then exactly one id, then the role of this listener.
#[derive(Debug)]
struct ClientVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    admits: Admits,
    domain: TrustDomain,
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        let verified = self
            .chain
            .verify_client_cert(leaf, intermediates, now)
            .map_err(|error| named(error, leaf))?;
        let peer = Leaf::read(leaf, &self.domain).map_err(refused)?.peer;
        match self.admits.admits(&peer.identity) {
            true => Ok(verified),
            false => Err(refused(Unidentified::Role)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Chain to the services' issuers, then exactly one id, then the one service that is expected. Host names do not count.
#[derive(Debug)]
struct ServerVerifier {
    issuers: Arc<RootCertStore>,
    expect: Service,
    domain: TrustDomain,
    denied: Arc<DenyList>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        verify_chain(leaf, intermediates, &self.issuers, now, &self.provider)?;
        let peer = Leaf::read(leaf, &self.domain).map_err(refused)?.peer;
        match &peer.identity {
            Identity::Service { service, .. } if *service == self.expect => {}
            _ => return Err(refused(Unidentified::Role)),
        }
        match self.denied.names(&peer.uri, &peer.serial) {
            true => Err(refused(Unidentified::Denied)),
            false => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether `leaf` chains to `issuers` and is valid at `now`.
pub(crate) fn verify_chain(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    issuers: &RootCertStore,
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<(), TlsError> {
    let algorithms = provider.signature_verification_algorithms.all;
    ParsedCertificate::try_from(leaf)
        .and_then(|parsed| {
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                issuers,
                intermediates,
                now,
                algorithms,
            )
        })
        .map_err(|error| named(error, leaf))
}

/// The chain check has no name of its own for an issuer in a leaf's place.
fn named(error: TlsError, leaf: &CertificateDer<'_>) -> TlsError {
    match error {
        TlsError::InvalidCertificate(CertificateError::Other(_)) if is_issuer(leaf) => {
            refused(Unidentified::Issuer)
        }
        other => other,
    }
}

fn refused(why: Unidentified) -> TlsError {
    TlsError::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}
