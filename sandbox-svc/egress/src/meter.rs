//! How much has gone through all connections of a broker together, and whether more may. It counts and never waits.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Limits;

#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    up: AtomicU64,
    down: AtomicU64,
    requests: AtomicU64,
    opened: AtomicU64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, up: 0.into(), down: 0.into(), requests: 0.into(), opened: 0.into() }
    }

    /// Whether so many more bytes may go that way.
    pub(crate) fn take(&self, way: Way, bytes: u64) -> bool {
        let (used, limit) = match way {
            Way::Up => (&self.up, self.limits.upload_bytes),
            Way::Down => (&self.down, self.limits.download_bytes),
        };
        used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= limit
    }

    /// Whether one more request is decided on.
    pub(crate) fn request(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed) < u64::from(self.limits.requests)
    }

    /// Numbers a connection.
    pub(crate) fn next(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed)
    }

    /// How many came after the last that is told one by one.
    pub(crate) fn untold(&self) -> u64 {
        let asked = self.requests.load(Ordering::Relaxed);
        asked.saturating_sub(u64::from(self.limits.requests))
    }
}
