//! The plaintext listener for probes: `/livez`, `/readyz` and `/metrics`; it takes no input and changes nothing.

use std::{convert::Infallible, net::SocketAddr, pin::pin, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{Chain, Context, server::Error, telemetry};

const HEADER_LIMIT: Duration = Duration::from_secs(5);
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 64;
/// Histograms grow until somebody reads them; this reads them when nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// The admin listener with its address.
#[derive(Debug)]
pub struct Admin {
    context: Context,
    tcp: TcpListener,
    addr: SocketAddr,
    metrics: &'static PrometheusHandle,
}

impl Admin {
    /// Takes the address, and from then on records this process's metrics.
    pub async fn bind(context: &Context, addr: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { flag: "admin-listen", addr, source };
        let tcp = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = tcp.local_addr().map_err(failed)?;
        let metrics = telemetry::recorder().map_err(Error::Telemetry)?;
        Ok(Self { context: context.clone(), tcp, addr, metrics })
    }

    /// The real address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers until `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) {
        let tracker = TaskTracker::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = upkeep.tick() => {
                    self.metrics.run_upkeep();
                    continue;
                }
                accepted = self.tcp.accept(), if tracker.len() < CONNECTIONS => accepted,
            };
            match accepted {
                Ok((tcp, _)) => {
                    let (context, metrics, shutdown) =
                        (self.context.clone(), self.metrics, shutdown.clone());
                    tracker.spawn(async move { converse(tcp, context, metrics, shutdown).await });
                }
                Err(error) => {
                    warn!(listener = "admin-listen", error = %Chain(&error), "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

async fn converse(
    tcp: TcpStream,
    context: Context,
    metrics: &'static PrometheusHandle,
    shutdown: CancellationToken,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&request, &context, metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
    let connection = pin!(http.serve_connection(TokioIo::new(tcp), service));
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(CONNECTION_LIMIT) => {}
        ended = connection => if let Err(error) = ended {
            debug!(error = %Chain(&error), "probe connection lost");
        },
    }
}

fn answer(
    request: &Request<Incoming>,
    context: &Context,
    metrics: &PrometheusHandle,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/livez") => text(StatusCode::OK, "alive\n".to_owned()),
        (&Method::GET, "/readyz") => readiness(context),
        (&Method::GET, "/metrics") => {
            gauge!("harness_tls_material_age_seconds").set(context.material.age().as_secs_f64());
            text(StatusCode::OK, metrics.render())
        }
        (&Method::GET, _) => {
            text(StatusCode::NOT_FOUND, "see /livez, /readyz and /metrics\n".to_owned())
        }
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
    }
}

fn readiness(context: &Context) -> Response<Full<Bytes>> {
    let mut missing = context.ready.missing();
    if context.material.validity_left().is_zero() {
        missing.push("certificate");
    }
    if context.shutdown.is_cancelled() {
        missing.push("running");
    }
    match missing.is_empty() {
        true => text(StatusCode::OK, "ready\n".to_owned()),
        false => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", ")))
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
