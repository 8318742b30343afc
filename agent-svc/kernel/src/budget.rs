//! What a run may use up. Every limit is finite, and what is left only falls.

use alloc::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{Millis, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Model turns. A further attempt at the same turn is no further step.
    Steps,
    /// Tool calls that began. A further attempt at the same call is no further call.
    ToolCalls,
    /// Model tokens, those of lost attempts included.
    Tokens,
    /// Milliseconds in which no person was waited for.
    WallTime,
}

impl Metric {
    pub const ALL: [Self; 4] = [Self::Steps, Self::ToolCalls, Self::Tokens, Self::WallTime];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::ToolCalls => "tool_calls",
            Self::Tokens => "tokens",
            Self::WallTime => "wall_time",
        }
    }
}

/// An amount of each metric: a limit, what is used, or what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub steps: u64,
    pub tool_calls: u64,
    pub tokens: u64,
    pub wall_time: Millis,
}

impl Budget {
    pub fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Steps => self.steps,
            Metric::ToolCalls => self.tool_calls,
            Metric::Tokens => self.tokens,
            Metric::WallTime => self.wall_time.0,
        }
    }

    /// The smaller of each.
    pub(crate) fn clamped(self, limits: &Limits) -> Self {
        let Limits { steps, tool_calls, tokens, wall_time } = *limits;
        Self {
            steps: steps.map_or(self.steps, |limit| limit.min(self.steps)),
            tool_calls: tool_calls.map_or(self.tool_calls, |limit| limit.min(self.tool_calls)),
            tokens: tokens.map_or(self.tokens, |limit| limit.min(self.tokens)),
            wall_time: wall_time.map_or(self.wall_time, |limit| limit.min(self.wall_time)),
        }
    }
}

/// Limits that somebody may or may not have set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub steps: Option<u64>,
    pub tool_calls: Option<u64>,
    pub tokens: Option<u64>,
    pub wall_time: Option<Millis>,
}

/// The run's budget and what it has used of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    limit: Budget,
    used: Budget,
    clock: Clock,
    warned: BTreeSet<Metric>,
}

/// Wall time passes only while nobody is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Clock {
    #[default]
    Stopped,
    Running {
        since: Time,
    },
}

impl Account {
    pub(crate) fn open(limit: Budget, at: Time) -> Self {
        Self { limit, clock: Clock::Running { since: at }, ..Self::default() }
    }

    pub(crate) fn use_step(&mut self) {
        self.used.steps = self.used.steps.saturating_add(1);
    }

    pub(crate) fn use_tool_call(&mut self) {
        self.used.tool_calls = self.used.tool_calls.saturating_add(1);
    }

    pub(crate) fn use_tokens(&mut self, tokens: u64) {
        self.used.tokens = self.used.tokens.saturating_add(tokens);
    }

    /// What a child used is used up here too.
    pub(crate) fn charge(&mut self, child: Budget) {
        let Budget { steps, tool_calls, tokens, wall_time } = child;
        self.used.steps = self.used.steps.saturating_add(steps);
        self.used.tool_calls = self.used.tool_calls.saturating_add(tool_calls);
        self.used.tokens = self.used.tokens.saturating_add(tokens);
        self.used.wall_time = Millis(self.used.wall_time.0.saturating_add(wall_time.0));
    }

    pub(crate) fn stop_clock(&mut self, at: Time) {
        self.used.wall_time = self.used(at).wall_time;
        self.clock = Clock::Stopped;
    }

    pub(crate) fn start_clock(&mut self, at: Time) {
        if self.clock == Clock::Stopped {
            self.clock = Clock::Running { since: at };
        }
    }

    pub(crate) fn mark_warned(&mut self, metric: Metric) {
        self.warned.insert(metric);
    }

    pub(crate) fn used(&self, now: Time) -> Budget {
        let passed = match self.clock {
            Clock::Stopped => 0,
            Clock::Running { since } => now.since(since).0,
        };
        Budget { wall_time: Millis(self.used.wall_time.0.saturating_add(passed)), ..self.used }
    }

    pub(crate) fn limit(&self) -> Budget {
        self.limit
    }

    pub(crate) fn left(&self, now: Time) -> Budget {
        let (limit, used) = (self.limit, self.used(now));
        Budget {
            steps: limit.steps.saturating_sub(used.steps),
            tool_calls: limit.tool_calls.saturating_sub(used.tool_calls),
            tokens: limit.tokens.saturating_sub(used.tokens),
            wall_time: Millis(limit.wall_time.0.saturating_sub(used.wall_time.0)),
        }
    }

    /// More was spent than there was: known only afterwards, as with tokens.
    pub(crate) fn overspent(&self, metric: Metric, now: Time) -> bool {
        self.used(now).of(metric) > self.limit.of(metric)
    }

    /// When the clock, if it runs, uses up what is left of the wall time.
    pub(crate) fn runs_out_at(&self) -> Option<Time> {
        match self.clock {
            Clock::Stopped => None,
            Clock::Running { since } => Some(since.after(self.left(since).wall_time)),
        }
    }

    /// The first metric of which half is used and nobody has been told.
    pub(crate) fn warning(&self, now: Time) -> Option<(Metric, u64, u64)> {
        let used = self.used(now);
        Metric::ALL.into_iter().map(|metric| (metric, used.of(metric), self.limit.of(metric))).find(
            |&(metric, used, limit)| {
                used > 0 && used >= limit.div_ceil(2) && !self.warned.contains(&metric)
            },
        )
    }
}
