//! Counts and times requests, each exactly once, under bounded labels.

use std::time::Instant;

use metrics::{counter, histogram};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Code;

/// A request on its way, which keeps its connection open; dropped unfinished, it counts as one that its caller gave up.
pub(super) struct Meter {
    method: &'static str,
    started: Instant,
    open: bool,
    _token: TaskTrackerToken,
}

impl Meter {
    pub(super) fn start(method: &'static str, token: TaskTrackerToken) -> Self {
        Self { method, started: Instant::now(), open: true, _token: token }
    }

    pub(super) fn finish(mut self, code: Code) {
        self.record(label(code));
    }

    fn record(&mut self, code: &'static str) {
        self.open = false;
        counter!("harness_grpc_requests_total", "method" => self.method, "code" => code)
            .increment(1);
        histogram!("harness_grpc_request_seconds", "method" => self.method)
            .record(self.started.elapsed().as_secs_f64());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.open {
            self.record("CANCELLED");
        }
    }
}

fn label(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        other => crate::Code::from(other).as_str(),
    }
}
