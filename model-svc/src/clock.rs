//! The one clock of the service, so that expiries can be tested without waiting. It never decides.

use std::fmt;
use std::sync::Arc;

use time::OffsetDateTime;

#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> OffsetDateTime + Send + Sync>);

impl Clock {
    pub(crate) fn system() -> Self {
        Self(Arc::new(OffsetDateTime::now_utc))
    }

    #[cfg(test)]
    pub(crate) fn of(now: impl Fn() -> OffsetDateTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        (self.0)()
    }

    pub(crate) fn unix_millis(&self) -> i64 {
        i64::try_from(self.now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
    }

    /// Whole seconds, as signed payloads carry them; a moment before 1970 is 1970.
    pub(crate) fn unix_seconds(&self) -> u64 {
        u64::try_from(self.now().unix_timestamp()).unwrap_or(0)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
