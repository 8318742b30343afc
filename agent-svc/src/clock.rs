//! The one clock of the service, so that leases and expiries can be tested without waiting. It never decides.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

/// A moment as the database and the wire carry it: Unix, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) i64);

impl Millis {
    pub(crate) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    pub(crate) fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long it is from `self` until `later`; zero when that has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// Whole seconds, as signed payloads carry them; a moment before 1970 is 1970.
    pub(crate) fn unix_seconds(self) -> u64 {
        u64::try_from(self.0.div_euclid(1000)).unwrap_or(0)
    }
}

impl From<OffsetDateTime> for Millis {
    fn from(moment: OffsetDateTime) -> Self {
        Self(i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
    }
}

pub(crate) trait Source: fmt::Debug + Send + Sync {
    fn now(&self) -> OffsetDateTime;
    /// Returns once the clock shows `moment`; may return early.
    fn until(&self, moment: Millis) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<dyn Source>);

impl Clock {
    pub(crate) fn system() -> Self {
        Self(Arc::new(System))
    }

    #[cfg(test)]
    pub(crate) fn of(source: Arc<dyn Source>) -> Self {
        Self(source)
    }

    pub(crate) fn now(&self) -> OffsetDateTime {
        self.0.now()
    }

    pub(crate) fn millis(&self) -> Millis {
        self.0.now().into()
    }

    /// Returns once the clock shows `moment`; without one it never does.
    pub(crate) async fn until(&self, moment: Option<Millis>) {
        let Some(moment) = moment else { return std::future::pending().await };
        while self.millis() < moment {
            self.0.until(moment).await;
        }
    }
}

#[derive(Debug)]
struct System;

/// A wall clock can be set while we wait, so it is looked at again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Source for System {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }

    fn until(&self, moment: Millis) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let span = Millis::from(self.now()).until(moment).min(LOOK_AGAIN);
        Box::pin(tokio::time::sleep(span.max(Duration::from_millis(1))))
    }
}

/// A clock that only its owner moves.
#[cfg(test)]
pub(crate) mod manual {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::time::Duration;

    use time::OffsetDateTime;
    use tokio::sync::watch;

    use super::{Clock, Millis, Source};

    #[derive(Debug, Clone)]
    pub(crate) struct Manual(watch::Sender<OffsetDateTime>);

    impl Manual {
        /// Starts at the real time: certificates are judged by it.
        pub(crate) fn new() -> Self {
            Self(watch::Sender::new(OffsetDateTime::now_utc()))
        }

        pub(crate) fn clock(&self) -> Clock {
            Clock::of(Arc::new(self.clone()))
        }

        pub(crate) fn advance(&self, span: Duration) {
            self.0.send_modify(|now| *now += span);
        }
    }

    impl Source for Manual {
        fn now(&self) -> OffsetDateTime {
            *self.0.borrow()
        }

        fn until(&self, moment: Millis) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            let mut seen = self.0.subscribe();
            Box::pin(async move {
                if seen.wait_for(|now| Millis::from(*now) >= moment).await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        }
    }
}
