//! A response body that ends when its request must end, and whose trailers always carry a reason.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};
use tracing::Span;

use super::{Ended, meter::Meter};
use crate::{
    Public,
    deadline::{self, Deadline},
    status,
};

pub(super) struct Bounded {
    /// Absent once it has ended; dropping it tells the handler's producer that nobody listens.
    inner: Option<Body>,
    ended: BoxFuture<'static, Ended>,
    deadline: Option<Deadline>,
    meter: Option<Meter>,
    span: Span,
}

impl Bounded {
    pub(super) fn wrap(
        mut response: Response<Body>,
        ended: BoxFuture<'static, Ended>,
        deadline: Option<Deadline>,
        meter: Meter,
    ) -> Response<Body> {
        let meter = match status::complete(response.headers_mut()) {
            Some(code) => {
                meter.finish(code);
                None
            }
            None => Some(meter),
        };
        let span = Span::current();
        response.map(|body| Body::new(Self { inner: Some(body), ended, deadline, meter, span }))
    }

    fn end(&mut self, ended: Ended) -> Result<Frame<Bytes>, Status> {
        self.inner = None;
        self.finish(ended.code().into());
        let mut trailers = HeaderMap::new();
        Status::from(ended).add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    fn finish(&mut self, code: tonic::Code) {
        if let Some(meter) = self.meter.take() {
            meter.finish(code);
        }
    }

    fn complete(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_trailers() {
            Ok(mut trailers) => {
                self.finish(status::complete(&mut trailers).unwrap_or(tonic::Code::Unknown));
                Frame::trailers(trailers)
            }
            Err(data) => data,
        }
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let _in_span = this.span.clone().entered();
        let Some(body) = this.inner.as_mut() else { return Poll::Ready(None) };
        // First, so that a producer that always has more cannot outlive its deadline.
        if let Poll::Ready(ended) = this.ended.as_mut().poll(cx) {
            return Poll::Ready(Some(this.end(ended)));
        }
        match deadline::polling(this.deadline, || Pin::new(body).poll_frame(cx)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                this.inner = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(frame)) => Poll::Ready(Some(frame.map(|frame| this.complete(frame)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}
