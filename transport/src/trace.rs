//! W3C trace context of requests, in and out, and the one span that each request gets; never headers or contents.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::TraceContextExt as _,
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::{Span, field, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::{Chain, Peer};

/// The span of a request that came in; it continues its caller's trace.
pub(crate) fn span(peer: &Peer, method: &'static str, headers: &HeaderMap) -> Span {
    let span = info_span!("request", peer = %peer.uri, method, trace_id = field::Empty, otel.kind = "server");
    let parent = TraceContextPropagator::new().extract(&Incoming(headers));
    if parent.has_active_span()
        && let Err(error) = span.set_parent(parent)
    {
        tracing::trace!(error = %Chain(&error), "trace context is not recorded");
    }
    let context = span.context();
    let id = context.span().span_context().trace_id();
    if context.has_active_span() {
        span.record("trace_id", field::display(id));
    }
    span
}

/// Puts the current span's trace context into the headers of an onward request.
pub(crate) fn inject(headers: &mut HeaderMap) {
    TraceContextPropagator::new()
        .inject_context(&Span::current().context(), &mut Outgoing(headers));
}

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    /// The propagator writes `traceparent` and `tracestate` only, both of which fit into headers.
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
