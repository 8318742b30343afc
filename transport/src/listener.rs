//! Accepts TLS connections: a bounded number of handshakes at once, each with a time limit, each refusal counted and logged.
//! Whoever stays silent makes room for others and never holds them up.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use metrics::counter;
use rustls::ServerConfig;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    Chain,
    handshake::Failed,
    room::{Room, Seat},
    server::Error,
    tls::HTTP_1_1,
};

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Well below the 1024 file descriptors that a process usually has; each seat is a socket and a few KiB.
const SEATS: usize = 384;
/// For a refused peer to read why.
const LINGER: Duration = Duration::from_millis(500);
/// After `accept` fails for want of file descriptors, trying at once again would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Listener {
    flag: &'static str,
    addr: SocketAddr,
    tcp: TcpListener,
    room: Room,
}

impl Listener {
    pub(crate) async fn bind(flag: &'static str, addr: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { flag, addr, source };
        let tcp = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = tcp.local_addr().map_err(failed)?;
        Ok(Self { flag, addr, tcp, room: Room::new(SEATS) })
    }

    pub(crate) fn flag(&self) -> &'static str {
        self.flag
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Runs `each` on `tracker` for every connection whose handshake came to an end, until `stopping`. `config` is asked at
    /// every connection, so that reloaded material counts from the next one on. The seat is `each`'s to leave, as soon as
    /// it knows who is there.
    pub(crate) async fn run<F, Fut>(
        mut self,
        config: impl Fn() -> Option<Arc<ServerConfig>>,
        tracker: TaskTracker,
        stopping: CancellationToken,
        each: F,
    ) where
        F: Fn(TlsStream<TcpStream>, SocketAddr, Seat) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        while let Some((tcp, peer, seat)) = self.next(&stopping).await {
            let (config, each, stopping, flag) =
                (config(), each.clone(), stopping.clone(), self.flag);
            tracker.spawn(async move {
                let shaken = async {
                    tokio::select! {
                        shaken = shake(tcp, config) => shaken,
                        () = seat.lost() => Err(Failed::CrowdedOut),
                    }
                };
                let shaken = stopping.run_until_cancelled(shaken).await;
                match shaken {
                    Some(Ok(stream)) => each(stream, peer, seat).await,
                    Some(Err(failed)) => report(flag, peer, &failed),
                    None => debug!(listener = flag, %peer, "handshake given up, stopping"),
                }
            });
        }
    }

    /// The next connection, with a seat for its handshake.
    async fn next(
        &mut self,
        stopping: &CancellationToken,
    ) -> Option<(TcpStream, SocketAddr, Seat)> {
        let accepted = async {
            loop {
                match self.tcp.accept().await {
                    Ok((tcp, peer)) => return Some((tcp, peer, self.room.enter().await?)),
                    Err(error) => {
                        warn!(listener = self.flag, error = %Chain(&error), "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        stopping.run_until_cancelled(accepted).await.flatten()
    }
}

async fn shake(
    tcp: TcpStream,
    config: Option<Arc<ServerConfig>>,
) -> Result<TlsStream<TcpStream>, Failed> {
    let config = config.ok_or(Failed::NoIssuers)?;
    tcp.set_nodelay(true).map_err(Failed::from)?;
    let wanted = config.alpn_protocols.clone();
    let shaken = tokio::time::timeout(
        HANDSHAKE_LIMIT,
        TlsAcceptor::from(config).accept(tcp).into_fallible(),
    );
    let stream = match shaken.await {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, tcp))) => {
            linger(tcp).await;
            return Err(error.into());
        }
        Err(_) => return Err(Failed::TimedOut),
    };
    // A client that offers no protocol is let through by TLS itself, and speaks HTTP/1.1.
    let spoken = stream.get_ref().1.alpn_protocol().unwrap_or(HTTP_1_1);
    match wanted.iter().any(|it| it == spoken) {
        true => Ok(stream),
        false => Err(Failed::Protocol),
    }
}

/// A socket that is closed with bytes unread resets the connection, and the alert that says why would be lost on its way.
async fn linger(mut tcp: TcpStream) {
    let unread = async {
        tcp.shutdown().await?;
        tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, unread).await {
        debug!(error = %Chain(&error), "refused peer is gone");
    }
}

pub(crate) fn report(listener: &'static str, peer: SocketAddr, failed: &Failed) {
    let reason = failed.label();
    counter!("harness_tls_handshake_failures_total", "listener" => listener, "reason" => reason)
        .increment(1);
    warn!(listener, %peer, reason, error = %Chain(failed), "tls handshake refused");
}
