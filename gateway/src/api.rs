//! The public face: HTTPS requests judged one rule after the other, then handed to a dialect. No request line, header
//! or body is ever logged.
pub(crate) mod harness;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::counter;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tower::Service as _;
use tracing::debug;
use transport::server::Seat;
use transport::{CancellationToken, Readiness};

use crate::Desk;
use crate::authn::Person;
use crate::origin::Origin;

/// For the head of a request to arrive.
const HEAD: Duration = Duration::from_secs(10);
/// For a connection that does not become a WebSocket.
const PLAIN: Duration = Duration::from_secs(60);
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Names under which people put secrets into addresses, where logs and histories keep them.
const CREDENTIALS: [&str; 5] = ["token", "access_token", "ticket", "key", "auth"];

/// WebSockets at once, over all people; each may hold a few mebibytes.
const SOCKETS: usize = 1024;

/// What requests are judged by.
#[derive(Debug)]
pub(crate) struct Front {
    desk: Arc<Desk>,
    origins: Vec<Origin>,
    ready: Readiness,
    sockets: Arc<Semaphore>,
}

impl Front {
    pub(crate) fn new(desk: Arc<Desk>, origins: Vec<Origin>, ready: Readiness) -> Self {
        Self { desk, origins, ready, sockets: Arc::new(Semaphore::new(SOCKETS)) }
    }
}

/// A request that may become a WebSocket, for whoever owns the connection.
type Admitted = Arc<Mutex<Option<Upgrade>>>;

struct Upgrade {
    upgraded: OnUpgrade,
    person: Person,
    socket: OwnedSemaphorePermit,
}

/// Serves one connection to its end. Until a person is known behind it, it may be given up for a newer one.
pub(crate) async fn connection(
    front: Arc<Front>,
    stream: TlsStream<TcpStream>,
    seat: Seat,
    shutdown: CancellationToken,
) {
    let admitted = Admitted::default();
    let router =
        router(front.clone()).layer(Extension(admitted.clone())).layer(Extension(shutdown.clone()));
    let service =
        hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            router.clone().call(request.map(Body::new))
        });
    let http = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let served = tokio::select! {
        served = http => served,
        // Between two requests there is nothing to wait for.
        () = shutdown.cancelled() => return,
        () = tokio::time::sleep(PLAIN) => return,
        () = seat.lost() => return debug!("connection given up for a newer one"),
    };
    if let Err(error) = served {
        // Mostly clients that hang up; the error names no part of a request.
        debug!(%error, "connection ended early");
        return;
    }
    let admitted = admitted.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Upgrade { upgraded, person, socket }) = admitted
        && let Ok(upgraded) = upgraded.await
    {
        drop(seat);
        harness::serve(front.desk.clone(), person, TokioIo::new(upgraded), shutdown).await;
        drop(socket);
    }
}

fn router(front: Arc<Front>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route(acp::PATH, get(harness))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(middleware::from_fn(no_credentials))
        .with_state(front)
}

/// First of all, whatever the path: a secret in an address is refused, so that nobody gets used to it.
async fn no_credentials(request: Request, next: Next) -> Response {
    let names = request.uri().query().unwrap_or_default().split(['&', ';']).map(|pair| match pair
        .split_once('=')
    {
        Some((name, _)) => name,
        None => pair,
    });
    let unwrapped = names
        .map(percent_decoded)
        .any(|name| CREDENTIALS.iter().any(|known| name.eq_ignore_ascii_case(known)));
    if unwrapped {
        let message =
            "credentials do not belong in an address; send them in the Authorization header";
        return refuse(StatusCode::BAD_REQUEST, "CREDENTIAL_IN_URL", message);
    }
    next.run(request).await
}

/// Enough to see through `%74oken`; what is not valid stays as it is.
fn percent_decoded(name: &str) -> String {
    let mut bytes = name.as_bytes().iter();
    let mut out = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        let digits = bytes.as_slice().get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) if *byte == b'%' => {
                out.push(decoded);
                bytes.nth(1);
            }
            Some(_) | None => out.push(*byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn health(State(front): State<Arc<Front>>) -> Response {
    let ready = front.ready.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, &json!({ "service": "gateway", "ready": ready }))
}

async fn not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, "NOT_FOUND", "nothing is here")
}

async fn harness(
    State(front): State<Arc<Front>>,
    Extension(shutdown): Extension<CancellationToken>,
    Extension(admitted): Extension<Admitted>,
    mut request: Request,
) -> Response {
    let headers = request.headers();
    if !headers
        .get_all(ORIGIN)
        .iter()
        .all(|origin| front.origins.iter().any(|known| known.is(origin.as_bytes())))
    {
        return refuse(
            StatusCode::FORBIDDEN,
            "ORIGIN_NOT_ALLOWED",
            "this web page may not connect",
        );
    }
    let Ok(person) = front.desk.tokens.authenticate(headers) else {
        let mut response =
            refuse(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "a valid API token is needed");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    };
    let Some(accept) = handshake(headers) else {
        let mut response = refuse(
            StatusCode::UPGRADE_REQUIRED,
            "UPGRADE_REQUIRED",
            "this address speaks WebSocket 13",
        );
        response.headers_mut().extend([
            (UPGRADE, HeaderValue::from_static("websocket")),
            (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
        ]);
        return response;
    };
    if shutdown.is_cancelled() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "DRAINING", "this gateway is stopping");
    }
    let Ok(socket) = front.sockets.clone().try_acquire_owned() else {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "BUSY",
            "too many connections; try again later",
        );
    };
    let upgrade = Upgrade { upgraded: hyper::upgrade::on(&mut request), person, socket };
    *admitted.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ]);
    response
}

/// The value of `Sec-WebSocket-Accept`, if these are the headers of a WebSocket handshake.
fn handshake(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name: HeaderName, wanted: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(wanted)))
    };
    let key = headers.get(SEC_WEBSOCKET_KEY)?.as_bytes();
    let fits = has(CONNECTION, "upgrade")
        && has(UPGRADE, "websocket")
        && has(SEC_WEBSOCKET_VERSION, "13")
        && STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    if fits { HeaderValue::try_from(derive_accept_key(key)).ok() } else { None }
}

fn refuse(status: StatusCode, code: &'static str, message: &str) -> Response {
    counter!("harness_gateway_refused_total", "reason" => code).increment(1);
    answer(status, &json!({ "code": code, "message": message }))
}

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().extend([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_names_are_seen_through() {
        for (name, plain) in
            [("token", "token"), ("%74ok%65n", "token"), ("%", "%"), ("%7", "%7"), ("a%zz", "a%zz")]
        {
            assert_eq!(percent_decoded(name), plain);
        }
    }
}
