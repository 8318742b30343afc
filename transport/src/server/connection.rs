//! One HTTP/2 connection from its handshake to its end: age, drain and cut. It never looks at requests.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use crate::{
    Chain, Material,
    gate::{Door, Gate},
    handshake::Failed,
    leaf::{Leaf, Unidentified},
    listener::{self, Listener},
    tasks::Tasks,
};

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the last bytes on a connection without open requests.
const GOODBYE: Duration = Duration::from_secs(1);
const STREAMS_PER_CONNECTION: u32 = 256;
/// Enough for an on-behalf-of context with its chain.
const HEADER_BYTES: u32 = 16 * 1024;

/// All connections of one server.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    gate: Arc<Gate>,
    age: Duration,
    pub(super) tasks: Tasks,
}

impl Connections {
    pub(super) fn new(gate: Arc<Gate>, age: Duration) -> Self {
        Self { gate, age, tasks: Tasks::default() }
    }

    pub(super) async fn accept(
        &self,
        listener: Listener,
        config: impl Fn() -> Option<Arc<ServerConfig>>,
        shutdown: CancellationToken,
    ) {
        let (all, flag) = (self.clone(), listener.flag());
        // The handshake has told who is there.
        let each = move |stream, addr, _seat| all.clone().serve(stream, flag, addr);
        listener.run(config, self.tasks.tracker.clone(), shutdown, each).await;
    }

    async fn serve(self, stream: TlsStream<TcpStream>, flag: &'static str, addr: SocketAddr) {
        let leaf = match leaf_of(&stream, &self.gate.material) {
            Ok(leaf) => leaf,
            Err(why) => return listener::report(flag, addr, &Failed::Peer(why)),
        };
        let age = self.age.min(left(leaf.not_after));
        let open = TaskTracker::new();
        open.close();
        let door = Door::new(self.gate.clone(), leaf.peer.clone(), open.clone());
        let mut connection =
            pin!(settings(self.tasks.clone()).serve_connection(TokioIo::new(stream), door));
        let mut leaving = pin!(async {
            tokio::select! {
                () = tokio::time::sleep(age) => {}
                () = self.gate.stopping.cancelled() => {}
            }
        });
        let ended = tokio::select! {
            () = self.tasks.cut.cancelled() => return,
            () = &mut leaving => None,
            ended = connection.as_mut() => Some(ended),
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    () = self.tasks.cut.cancelled() => return,
                    () = quiet(&open, &self.gate.stopping) => return,
                    ended = connection => ended,
                }
            }
        };
        if let Err(error) = ended {
            debug!(peer = %leaf.peer.uri, error = %Chain(&error), "connection lost");
        }
    }
}

/// A peer that answers closes the connection by itself when it has nothing left to ask. This is for one that does not, and
/// only when the process is stopping: before that, it may take its time.
async fn quiet(open: &TaskTracker, stopping: &CancellationToken) {
    stopping.cancelled().await;
    loop {
        open.wait().await;
        tokio::time::sleep(GOODBYE).await;
        if open.is_empty() {
            return;
        }
    }
}

fn settings(tasks: Tasks) -> http2::Builder<Tasks> {
    let mut settings = http2::Builder::new(tasks);
    settings
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(HEADER_BYTES);
    settings
}

/// The handshake has already judged this certificate; it is read once more because rustls keeps only its bytes.
fn leaf_of(stream: &TlsStream<TcpStream>, material: &Material) -> Result<Leaf, Unidentified> {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let leaf = certificates.first().ok_or(Unidentified::Unreadable)?;
    Leaf::read(leaf, material.trust_domain())
}

fn left(not_after: OffsetDateTime) -> Duration {
    Duration::try_from(not_after - OffsetDateTime::now_utc()).unwrap_or(Duration::ZERO)
}
