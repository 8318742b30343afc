//! Where a test lets the process die: after a record is committed, before anything is done about it. Release builds
//! never die here.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `after-record:N`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failpoint {
    after_record: u64,
}

/// A text that names no failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a failpoint; write after-record:N with N from 1")]
pub struct NotAFailpoint;

impl FromStr for Failpoint {
    type Err = NotAFailpoint;

    fn from_str(text: &str) -> Result<Self, NotAFailpoint> {
        let number = text.strip_prefix("after-record:").ok_or(NotAFailpoint)?;
        match number.parse() {
            Ok(after_record) if after_record > 0 => Ok(Self { after_record }),
            _ => Err(NotAFailpoint),
        }
    }
}

/// Counts the kernel records that this process has committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    committed: Arc<AtomicU64>,
    limit: Option<(u64, Death)>,
}

/// How it ends.
#[derive(Debug, Clone)]
enum Death {
    Process,
    /// Of the task alone; the test that waits here kills the rest.
    #[cfg(test)]
    Task(Arc<tokio::sync::Notify>),
}

impl Records {
    pub(crate) fn new(failpoint: Option<Failpoint>) -> Self {
        let limit = failpoint.map(|failpoint| (failpoint.after_record, Death::Process));
        Self { limit, ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn dying(after_record: u64, died: Arc<tokio::sync::Notify>) -> Self {
        Self { limit: Some((after_record, Death::Task(died))), ..Self::default() }
    }

    /// Notes that `count` more are committed.
    pub(crate) fn committed(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let before = self.committed.fetch_add(count, Ordering::SeqCst);
        match &self.limit {
            Some((limit, death)) if before < *limit && before.saturating_add(count) >= *limit => {
                death.come();
            }
            Some(_) | None => (),
        }
    }
}

impl Death {
    fn come(&self) {
        match self {
            Self::Process => std::process::abort(),
            #[cfg(test)]
            Self::Task(died) => tests::die(died),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failpoint, NotAFailpoint};

    pub(super) fn die(died: &tokio::sync::Notify) {
        died.notify_one();
        panic!("a test wanted this task to die here");
    }

    #[test]
    fn a_failpoint_names_a_record_counted_from_one() {
        assert_eq!("after-record:3".parse(), Ok(Failpoint { after_record: 3 }));
        for text in ["after-record:0", "after-record:", "after-record:x", "before-record:1", ""] {
            assert_eq!(text.parse::<Failpoint>(), Err(NotAFailpoint), "{text}");
        }
    }
}
