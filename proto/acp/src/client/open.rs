//! From an endpoint to an open WebSocket. It trusts the given CA bundle and nothing else, and sends the token only once
//! the peer has proven itself.
use std::sync::Arc;

use http::header::AUTHORIZATION;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self};

use super::{Bearer, ConnectError, Endpoint};

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(super) type Socket = WebSocketStream<Box<dyn Io>>;

pub(super) async fn open(
    endpoint: &Endpoint,
    ca_pem: &[u8],
    bearer: &Bearer,
) -> Result<Socket, ConnectError> {
    let tls = if endpoint.tls { Some(trust(ca_pem)?) } else { None };
    let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(ConnectError::Reach)?;
    tcp.set_nodelay(true).map_err(ConnectError::Reach)?;
    let io: Box<dyn Io> = match tls {
        Some(config) => {
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| {
                ConnectError::Reach(std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
            })?;
            let secured = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
            Box::new(secured.map_err(ConnectError::Secure)?)
        }
        // A name may resolve to anything; what counts is the address that was reached.
        None if tcp.peer_addr().map_err(ConnectError::Reach)?.ip().is_loopback() => Box::new(tcp),
        None => return Err(ConnectError::NotLoopback),
    };
    let scheme = if endpoint.tls { "wss" } else { "ws" };
    let mut request = format!("{scheme}://{}{}", endpoint.authority(), endpoint.path)
        .into_client_request()
        .map_err(|error| ConnectError::Handshake(Box::new(error)))?;
    request.headers_mut().insert(AUTHORIZATION, bearer.header());
    let limits = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .max_message_size(Some(crate::MAX_DELIVERY))
        .max_frame_size(Some(crate::MAX_DELIVERY));
    match tokio_tungstenite::client_async_with_config(request, io, Some(limits)).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => Err(match response.status().as_u16() {
            401 => ConnectError::Unauthenticated,
            status => ConnectError::Rejected(status),
        }),
        Err(error) => Err(ConnectError::Handshake(Box::new(error))),
    }
}

fn trust(ca_pem: &[u8]) -> Result<ClientConfig, ConnectError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.map_err(ConnectError::Ca)?).map_err(ConnectError::Tls)?;
    }
    if roots.is_empty() {
        return Err(ConnectError::NoCa);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(ConnectError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
