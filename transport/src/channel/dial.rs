//! Makes one connection to one service and watches that its peer is not denied later; it never tries again by itself.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Endpoint;
use crate::{
    Material, Peer, Service,
    chain::find,
    handshake::Failed,
    leaf::{Leaf, Unidentified},
    material,
    tls::H2,
};

const DIAL_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct Dialer {
    material: Arc<Material>,
    endpoint: Endpoint,
    expect: Service,
}

impl Dialer {
    pub(super) fn new(material: Arc<Material>, endpoint: Endpoint, expect: Service) -> Self {
        Self { material, endpoint, expect }
    }

    pub(super) async fn dial(self) -> Result<Watched, Undialed> {
        tokio::time::timeout(DIAL_LIMIT, self.connect()).await.unwrap_or(Err(Undialed::TimedOut))
    }

    async fn connect(self) -> Result<Watched, Undialed> {
        let config = self.material.client(self.expect)?;
        let tcp = self.endpoint.dial().await.map_err(Undialed::Tcp)?;
        tcp.set_nodelay(true).map_err(Undialed::Tcp)?;
        let stream = TlsConnector::from(config).connect(self.endpoint.server_name(), tcp).await;
        let stream = stream.map_err(Undialed::Tls)?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(H2) {
            return Err(Failed::Protocol.into());
        }
        let leaf = session.peer_certificates().unwrap_or_default().first();
        let leaf = leaf.ok_or(Failed::Peer(Unidentified::Unreadable))?;
        let leaf = Leaf::read(leaf, self.material.trust_domain()).map_err(Failed::Peer)?;
        Ok(Watched {
            stream,
            peer: leaf.peer,
            material: self.material,
            refused: Refused::default(),
        })
    }
}

/// A connection that was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undialed {
    #[error("no connection within five seconds")]
    TimedOut,
    #[error("no tcp connection")]
    Tcp(#[source] io::Error),
    #[error("the tls handshake failed")]
    Tls(#[source] io::Error),
    #[error(transparent)]
    Peer(#[from] Failed),
    #[error("no http/2 connection")]
    Http(#[source] hyper::Error),
    #[error("the attempt was given up")]
    Ended,
    #[error("our own tls material is not usable")]
    Material(#[from] material::Error),
}

/// Whether the peer closed the connection because it refuses our certificate. With TLS 1.3 that is told after the handshake,
/// and HTTP/2 keeps only the text of what it reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused(Arc<AtomicBool>);

impl Refused {
    pub(super) fn is_known(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn note(&self, error: &io::Error) {
        if matches!(find::<rustls::Error>(error), Some(rustls::Error::AlertReceived(_))) {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// A connection that breaks at the next byte once its peer is on the deny list.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    material: Arc<Material>,
    refused: Refused,
}

impl Watched {
    pub(super) fn refused(&self) -> Refused {
        self.refused.clone()
    }

    fn allowed(&self) -> io::Result<()> {
        match self.material.denies_peer(&self.peer) {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, Unidentified::Denied)),
            false => Ok(()),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.allowed()?;
        if let Poll::Ready(Err(error)) = &read {
            self.refused.note(error);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.allowed()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.allowed()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
