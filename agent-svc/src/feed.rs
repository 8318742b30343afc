//! What of a session's stream is acknowledged, with its latest entries at hand. Nothing that audit-svc has not
//! acknowledged ever enters it, and a reader that is slow holds up nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::outcome::Outcome;

const MAX_ENTRIES: usize = 1024;
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    progress: watch::Sender<Progress>,
}

/// A window on the end of the stream: everything from `first` on.
#[derive(Debug)]
struct Recent {
    first: u64,
    bytes: usize,
    entries: VecDeque<Arc<[u8]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The last sequence number that is acknowledged.
    pub(crate) through: Option<u64>,
    pub(crate) flow: Flow,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flow {
    Going,
    /// audit-svc refuses the entry after `through`; the stream goes no further.
    Frozen,
    /// Nobody can drive the session.
    Parked,
    /// `last` is the stream's last entry, acknowledged or not yet.
    Ended {
        last: Option<u64>,
        outcome: Arc<Outcome>,
    },
}

/// What follows in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Following {
    Entries(Vec<(u64, Arc<[u8]>)>),
    /// It is acknowledged, but only the ledger still has it.
    InLedger {
        before: u64,
    },
    Nothing,
}

fn next(through: Option<u64>) -> u64 {
    through.map_or(0, |seq| seq + 1)
}

impl Feed {
    pub(crate) fn new(through: Option<u64>) -> Self {
        let recent = Recent { first: next(through), bytes: 0, entries: VecDeque::new() };
        let progress = Progress { through, flow: Flow::Going };
        Self { recent: Mutex::new(recent), progress: watch::Sender::new(progress) }
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    pub(crate) fn through(&self) -> Option<u64> {
        self.progress.borrow().through
    }

    /// Adds what audit-svc has acknowledged: the entries right after the present end.
    pub(crate) fn acknowledge(&self, bodies: impl IntoIterator<Item = Vec<u8>>) {
        let mut recent = self.lock();
        for body in bodies {
            recent.bytes += body.len();
            recent.entries.push_back(body.into());
        }
        let end = recent.first + u64::try_from(recent.entries.len()).unwrap_or(u64::MAX);
        while recent.entries.len() > MAX_ENTRIES || recent.bytes > MAX_BYTES {
            let Some(oldest) = recent.entries.pop_front() else { break };
            recent.bytes -= oldest.len();
            recent.first += 1;
        }
        drop(recent);
        self.progress.send_modify(|progress| progress.through = end.checked_sub(1));
    }

    pub(crate) fn freeze(&self) {
        self.progress.send_modify(|progress| {
            if progress.flow != Flow::Parked {
                progress.flow = Flow::Frozen;
            }
        });
    }

    /// What was told of an end, or of a refusal, stands.
    pub(crate) fn park(&self) {
        self.progress.send_modify(|progress| {
            if progress.flow == Flow::Going {
                progress.flow = Flow::Parked;
            }
        });
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.progress.borrow().flow == Flow::Parked
    }

    /// The session is over; readers learn so once `last` is acknowledged.
    pub(crate) fn end(&self, last: Option<u64>, outcome: Outcome) {
        self.progress.send_modify(|progress| {
            if progress.flow == Flow::Going {
                progress.flow = Flow::Ended { last, outcome: Arc::new(outcome) };
            }
        });
    }

    /// At most `limit` entries from `seq` on.
    pub(crate) fn following(&self, seq: u64, limit: usize) -> Following {
        let recent = self.lock();
        let Some(skip) = seq.checked_sub(recent.first) else {
            return Following::InLedger { before: recent.first };
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let bodies = recent.entries.iter().skip(skip).take(limit).cloned();
        let entries: Vec<_> = (seq..).zip(bodies).collect();
        if entries.is_empty() { Following::Nothing } else { Following::Entries(entries) }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Feed, Following, MAX_ENTRIES};

    fn entries(feed: &Feed, seq: u64, limit: usize) -> Option<Vec<(u64, Vec<u8>)>> {
        match feed.following(seq, limit) {
            Following::Entries(entries) => {
                Some(entries.into_iter().map(|(seq, body)| (seq, body.to_vec())).collect())
            }
            Following::InLedger { .. } | Following::Nothing => None,
        }
    }

    #[test]
    fn a_reader_gets_what_follows_and_nothing_twice() {
        let feed = Feed::new(None);
        assert_eq!(feed.following(0, 9), Following::Nothing);
        feed.acknowledge([vec![0], vec![1]]);
        feed.acknowledge([vec![2]]);
        assert_eq!(feed.through(), Some(2));
        assert_eq!(entries(&feed, 0, 2), Some(vec![(0, vec![0]), (1, vec![1])]));
        assert_eq!(entries(&feed, 2, 2), Some(vec![(2, vec![2])]));
        assert_eq!(feed.following(3, 2), Following::Nothing);
    }

    #[test]
    fn what_was_acknowledged_before_the_start_is_in_the_ledger() {
        let feed = Feed::new(Some(6));
        feed.acknowledge([vec![7]]);
        assert_eq!(feed.following(6, 9), Following::InLedger { before: 7 });
        assert_eq!(entries(&feed, 7, 9), Some(vec![(7, vec![7])]));
    }

    #[test]
    fn old_entries_leave_the_window() {
        let feed = Feed::new(None);
        feed.acknowledge((0..=MAX_ENTRIES).map(|_| vec![1]));
        assert_eq!(feed.following(0, 1), Following::InLedger { before: 1 });
        assert_eq!(entries(&feed, 1, 1), Some(vec![(1, vec![1])]));
    }
}
