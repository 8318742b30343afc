//! Client channels that reach exactly one named service, connect when first used, and bound every call by its deadline.

mod body;
mod dial;
mod endpoint;
mod link;

use std::{error::Error as StdError, sync::Arc, task, time::Duration};

use futures::future::BoxFuture;
use http::{
    HeaderMap, Request, Response, Uri,
    uri::{Authority, Scheme},
};
use tonic::{Status, body::Body};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

pub use self::endpoint::{Endpoint, NotAnEndpoint};
use self::{body::Timed, dial::Dialer, link::Link};
use crate::{
    Chain, Code, Context, Fault, Public, Service, chain::find, deadline, deadline::Deadline,
    leaf::Unidentified, status, to_status, trace,
};

/// Give this to a generated client's `new`. Calls fail with a reason of the domain `transport` when the peer cannot be
/// reached or is not who it should be.
#[derive(Clone, Debug)]
pub struct PeerChannel {
    peer: Arc<Target>,
    link: Arc<Link>,
}

/// Whom a channel wants to reach.
#[derive(Debug)]
struct Target {
    endpoint: Endpoint,
    expect: Service,
}

/// A channel to `expect` at `endpoint`. It connects when first used and again after a loss, each time with the material that
/// is then in force.
pub fn connect(context: &Context, endpoint: &Endpoint, expect: Service) -> PeerChannel {
    let peer = Arc::new(Target { endpoint: endpoint.clone(), expect });
    let dialer = Dialer::new(context.material.clone(), endpoint.clone(), expect);
    PeerChannel { peer, link: Arc::new(Link::new(dialer)) }
}

impl PeerChannel {
    /// The service this channel accepts.
    pub fn expects(&self) -> Service {
        self.peer.expect
    }

    /// Where it connects to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.peer.endpoint
    }

    /// Whether both sides prove themselves and the peer serves, within `limit`; for readiness and diagnosis. It succeeds for
    /// callers that may not ask for health, since their refusal proves as much.
    pub async fn probe(&self, limit: Duration) -> Result<(), Fault> {
        let request = deadline::request(HealthCheckRequest { service: String::new() }, limit);
        match HealthClient::new(self.clone()).check(request).await.map_err(Fault::from) {
            Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => Ok(()),
            Ok(_) => Err(to_status(&self.peer.failure(What::NotServing)).into()),
            Err(fault) if fault.reason == crate::gate::METHOD_NOT_ALLOWED => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

impl tower::Service<Request<Body>> for PeerChannel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Status>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { peer, link } = self.clone();
        // Read here and not in the future, which may run on another task.
        let deadline = bind(request.headers());
        trace::inject(request.headers_mut());
        if let Some(deadline) = deadline {
            deadline.write(request.headers_mut());
        }
        address(&mut request);
        Box::pin(async move {
            let answered = within(deadline, link.send(request)).await;
            let mut response = match answered {
                Some(Ok(response)) => response,
                Some(Err(what)) => return Err(to_status(&peer.failure(what))),
                None => return Err(to_status(&peer.failure(What::Deadline))),
            };
            status::sound(response.headers_mut());
            Ok(response.map(|body| Body::new(Timed::new(body, peer, deadline))))
        })
    }
}

/// HTTP/2 wants a scheme and some authority; where the connection goes is the dialer's to know.
fn address(request: &mut Request<Body>) {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(Authority::from_static("peer"));
    // The path is the generated client's, or the default.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// The deadline of an onward request: its own, and never later than that of the request being served.
fn bind(headers: &HeaderMap) -> Option<Deadline> {
    // Our own header, written by the library.
    let own = Deadline::of(headers).unwrap_or_default();
    own.into_iter().chain(Deadline::current()).min()
}

async fn within<F: Future>(deadline: Option<Deadline>, work: F) -> Option<F::Output> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout(deadline.left(), work).await.ok(),
    }
}

impl Target {
    fn failure(&self, what: What) -> Failure {
        let Self { endpoint, expect } = self;
        Failure { peer: format!("{expect} at {endpoint}"), what }
    }
}

/// A call that got no answer from its peer.
#[derive(Debug, thiserror::Error)]
#[error("{peer}: {what}")]
struct Failure {
    peer: String,
    what: What,
}

/// These texts never leave the process, so they may say what the network said.
#[derive(Debug, thiserror::Error)]
enum What {
    #[error("no answer before the deadline")]
    Deadline,
    #[error("up, but not ready to serve")]
    NotServing,
    #[error("it refused our certificate and its log says why: {0}")]
    RefusedUs(String),
    #[error("what answers there is not trusted as that service: {0}")]
    NotTrusted(String),
    #[error("cannot be reached: {0}")]
    Unreachable(String),
}

impl What {
    fn of(error: &(dyn StdError + 'static)) -> Self {
        let text = Chain(error).to_string();
        if find::<Unidentified>(error).is_some() {
            return Self::NotTrusted(text);
        }
        match find::<rustls::Error>(error) {
            Some(rustls::Error::AlertReceived(_)) => Self::RefusedUs(text),
            Some(rustls::Error::InvalidCertificate(_)) => Self::NotTrusted(text),
            _ => Self::Unreachable(text),
        }
    }
}

impl Public for Failure {
    const DOMAIN: &'static str = status::DOMAIN;

    fn code(&self) -> Code {
        match self.what {
            What::Deadline => Code::DeadlineExceeded,
            What::NotServing | What::RefusedUs(_) | What::NotTrusted(_) | What::Unreachable(_) => {
                Code::Unavailable
            }
        }
    }

    fn reason(&self) -> &str {
        match self.what {
            What::Deadline => "DEADLINE_EXCEEDED",
            What::NotServing => "PEER_NOT_SERVING",
            What::RefusedUs(_) => "PEER_REFUSED_US",
            What::NotTrusted(_) => "PEER_NOT_TRUSTED",
            What::Unreachable(_) => "PEER_UNREACHABLE",
        }
    }
}
