//! What every request passes before a handler sees it, and every response after: deny list, method table, deadline, end of
//! the process, reasons. It never looks into messages.

mod body;
mod meter;

use std::{collections::HashSet, convert::Infallible, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body, service::Routes};
use tower::Service as _;
use tracing::Instrument as _;

use self::{body::Bounded, meter::Meter};
use crate::{
    Code, Material, Peer, Public,
    authz::Table,
    deadline::{self, Deadline},
    status, to_status, trace,
};

/// One for each server; its tokens say how far the process is on its way out.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) routes: Routes,
    pub(crate) table: Table,
    pub(crate) material: Arc<Material>,
    /// Methods whose streams would never end by themselves.
    pub(crate) endless: HashSet<&'static str>,
    /// The process was asked to stop.
    pub(crate) stopping: CancellationToken,
    /// Half of the time to drain is over.
    pub(crate) draining: CancellationToken,
}

/// The gate as one connection sees it.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    gate: Arc<Gate>,
    peer: Peer,
    /// Holds a token for every request whose answer is not yet complete.
    open: TaskTracker,
}

impl Door {
    pub(crate) fn new(gate: Arc<Gate>, peer: Peer, open: TaskTracker) -> Self {
        Self { gate, peer, open }
    }
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { gate, peer, open } = self.clone();
        let method = gate.table.method(request.uri().path()).unwrap_or("unknown");
        let span = trace::span(&peer, method, request.headers());
        let meter = Meter::start(method, open.token());
        Box::pin(
            async move { Ok(gate.answer(peer, method, request, meter).await) }.instrument(span),
        )
    }
}

impl Gate {
    async fn answer(
        self: Arc<Self>,
        peer: Peer,
        method: &'static str,
        request: Request<Incoming>,
        meter: Meter,
    ) -> Response<Body> {
        let deadline = match self.admit(&peer, &request) {
            Ok(deadline) => deadline,
            Err(refusal) => {
                meter.finish(refusal.code().into());
                return to_status(&refusal).into_http();
            }
        };
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        let mut ended: BoxFuture<'static, Ended> =
            Box::pin(self.clone().ended(peer, method, deadline));
        let work = deadline::serving(deadline, self.routes.clone().call(request));
        let answered = tokio::select! {
            biased;
            ended = &mut ended => Err(ended),
            answered = work => Ok(answered),
        };
        match answered {
            Ok(Ok(response)) => Bounded::wrap(response, ended, deadline, meter),
            // Nothing can be inside an `Infallible`.
            Ok(Err(never)) => match never {},
            Err(ended) => {
                meter.finish(ended.code().into());
                to_status(&ended).into_http()
            }
        }
    }

    fn admit(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Option<Deadline>, Refused> {
        if self.material.denies_peer(peer) {
            tracing::warn!("request of a denied peer refused");
            return Err(Refused::Denied);
        }
        // The whole of `:path`, so that a query or another writing of the same path is another path.
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        if !self.table.allows(path, &peer.identity) {
            tracing::warn!(path = ?path.get(..path.len().min(100)), "request refused by the method table");
            return Err(Refused::Method);
        }
        Deadline::of(request.headers()).map_err(Refused::Deadline)
    }

    /// Waits for whatever may end a request from outside.
    async fn ended(
        self: Arc<Self>,
        peer: Peer,
        method: &'static str,
        deadline: Option<Deadline>,
    ) -> Ended {
        let end = match self.endless.contains(method) {
            true => &self.stopping,
            false => &self.draining,
        };
        let passed = async {
            match deadline {
                Some(deadline) => deadline.passed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passed => Ended::Deadline,
            () = end.cancelled() => Ended::Draining,
            () = self.material.until_denied(&peer) => Ended::Denied,
        }
    }
}

pub(crate) const METHOD_NOT_ALLOWED: &str = "METHOD_NOT_ALLOWED";

/// A request that no handler saw.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("this peer is on the deny list")]
    Denied,
    #[error("this peer may not call this method")]
    Method,
    #[error("the deadline cannot be read")]
    Deadline(#[source] deadline::Malformed),
}

impl Public for Refused {
    const DOMAIN: &'static str = status::DOMAIN;

    fn code(&self) -> Code {
        match self {
            Self::Denied | Self::Method => Code::PermissionDenied,
            Self::Deadline(_) => Code::InvalidArgument,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Denied => "PEER_DENIED",
            Self::Method => METHOD_NOT_ALLOWED,
            Self::Deadline(_) => "DEADLINE_MALFORMED",
        }
    }
}

/// A request that was ended from outside its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Ended {
    #[error("the deadline has passed")]
    Deadline,
    #[error("this process is stopping")]
    Draining,
    #[error("this peer is on the deny list")]
    Denied,
}

impl Public for Ended {
    const DOMAIN: &'static str = status::DOMAIN;

    fn code(&self) -> Code {
        match self {
            Self::Deadline => Code::DeadlineExceeded,
            Self::Draining => Code::Unavailable,
            Self::Denied => Code::PermissionDenied,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Deadline => "DEADLINE_EXCEEDED",
            Self::Draining => "DRAINING",
            Self::Denied => "PEER_DENIED",
        }
    }
}

impl From<Ended> for Status {
    fn from(ended: Ended) -> Self {
        to_status(&ended)
    }
}
