//! Samples turned into the figures that are reported. A figure only says how it stands to its yardstick; nothing is
//! refused for being slow.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What the numbers count. Of a rate more is better, of everything else less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "ms")]
    Milliseconds,
    /// Millions of bytes a second.
    #[serde(rename = "MB/s")]
    Rate,
    #[serde(rename = "MiB")]
    Mebibytes,
}

impl Unit {
    fn more_is_better(self) -> bool {
        self == Self::Rate
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Milliseconds => "ms",
            Self::Rate => "MB/s",
            Self::Mebibytes => "MiB",
        })
    }
}

/// One line of `target/bench.json`. `ratio` is the median beside the yardstick's; `met` says whether it is at most
/// `goal`, or of a rate at least. Without a goal the figure is there to be seen.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    median: f64,
    p99: f64,
    unit: Unit,
    beside: Yardstick,
    ratio: f64,
    goal: Option<f64>,
    met: Option<bool>,
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

    /// Of times.
    pub(crate) fn new(
        name: &'static str,
        ours: &[Duration],
        what: &'static str,
        theirs: &[Duration],
        goal: impl Into<Option<f64>>,
    ) -> Self {
        let (ours, theirs) = (millis(ours), millis(theirs));
        Self::of(name, Unit::Milliseconds, &ours, what, &theirs, goal)
    }

    pub(crate) fn of(
        name: &'static str,
        unit: Unit,
        ours: &[f64],
        what: &'static str,
        theirs: &[f64],
        goal: impl Into<Option<f64>>,
    ) -> Self {
        let (median, p99) = (quantile(unit, ours, 0.5), quantile(unit, ours, 0.99));
        let (middle, worst) = (quantile(unit, theirs, 0.5), quantile(unit, theirs, 0.99));
        let beside = Yardstick { what, median: middle, p99: worst };
        let (ratio, goal) = (median / middle, goal.into());
        let met = goal.map(|goal| match unit.more_is_better() {
            true => ratio >= goal,
            false => ratio <= goal,
        });
        Self { name, median, p99, unit, beside, ratio, goal, met }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, median, p99, unit, beside, ratio, goal, met } = self;
        let Yardstick { what, median: middle, .. } = beside;
        write!(
            f,
            "{name:<22} {median:>9.3} (p99 {p99:.3}) {unit}, {middle:.3} {what}: {ratio:.2}"
        )?;
        match (goal, met) {
            (Some(goal), Some(true)) => write!(f, " (goal {goal})"),
            (Some(goal), _) => write!(f, " (goal {goal}, missed)"),
            (None, _) => Ok(()),
        }
    }
}

fn millis(samples: &[Duration]) -> Vec<f64> {
    samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect()
}

/// The value that this share of the samples is no worse than.
fn quantile(unit: Unit, samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    if unit.more_is_better() {
        sorted.reverse();
    }
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index within the samples"
    )]
    let index = (last as f64 * share).ceil() as usize;
    sorted.get(index.min(last)).copied().unwrap_or(f64::NAN)
}
