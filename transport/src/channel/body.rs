//! A response body on its caller's side: it ends at the deadline also when the peer goes on, and a lost peer has a reason.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::{BoxFuture, OptionFuture};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::{Target, What};
use crate::{deadline::Deadline, status, to_status};

pub(super) struct Timed {
    /// Absent once it has ended; dropping it resets the stream.
    inner: Option<Incoming>,
    peer: Arc<Target>,
    passed: OptionFuture<BoxFuture<'static, ()>>,
}

impl Timed {
    pub(super) fn new(body: Incoming, peer: Arc<Target>, deadline: Option<Deadline>) -> Self {
        let passed: Option<BoxFuture<'static, ()>> = deadline.map(|it| Box::pin(it.passed()) as _);
        Self { inner: Some(body), peer, passed: passed.into() }
    }

    fn fail(&mut self, what: What) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.inner = None;
        // Once passed, it must not be polled again.
        self.passed = None.into();
        Poll::Ready(Some(Err(to_status(&self.peer.failure(what)))))
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(body) = this.inner.as_mut() else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        // What has arrived counts, trailers above all; but a peer that always has more does not outlive the deadline.
        let ended = matches!(&frame, Poll::Ready(None))
            || matches!(&frame, Poll::Ready(Some(Ok(it))) if it.is_trailers());
        if !ended && let Poll::Ready(Some(())) = Pin::new(&mut this.passed).poll(cx) {
            return this.fail(What::Deadline);
        }
        match frame {
            Poll::Ready(Some(Err(error))) => this.fail(What::of(&error)),
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(sound(frame)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

fn sound(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            status::sound(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}
