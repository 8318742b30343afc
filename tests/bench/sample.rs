//! Durations turned into the figures that are reported.

use std::time::Duration;

use serde::Serialize;

/// One line of `target/bench.json`. `ratio` is the median beside the yardstick's; `met` says whether it is at most
/// `goal`.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    median: f64,
    p99: f64,
    unit: &'static str,
    beside: Yardstick,
    ratio: f64,
    goal: f64,
    met: bool,
}

#[derive(Debug, Serialize)]
struct Yardstick {
    what: &'static str,
    median: f64,
    p99: f64,
}

impl Figure {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn new(
        name: &'static str,
        ours: &[Duration],
        what: &'static str,
        theirs: &[Duration],
        goal: f64,
    ) -> Self {
        let (median, p99) = (quantile(ours, 0.5), quantile(ours, 0.99));
        let beside = Yardstick { what, median: quantile(theirs, 0.5), p99: quantile(theirs, 0.99) };
        let ratio = median / beside.median;
        Self { name, median, p99, unit: "ms", beside, ratio, goal, met: ratio <= goal }
    }
}

/// The value below which that share of the samples lies, in milliseconds.
fn quantile(samples: &[Duration], share: f64) -> f64 {
    let mut millis: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let last = millis.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the samples"
    )]
    let index = (last as f64 * share).ceil() as usize;
    millis.get(index.min(last)).copied().unwrap_or(f64::NAN)
}
