//! Offline verification of the whole log: it names the first entry that is wrong and what is wrong with it.
//! Malformed input is a finding like any other.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map;
use alloc::string::String;
use core::fmt;

use crate::canonical::Malformed;
use crate::envelope::{Envelope, payload_commit};
use crate::frontier::Frontier;
use crate::hash::{Hash, leaf_hash};

/// One entry as a store or a reader has it: the members beside the envelope are a projection that may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub log_index: u64,
    pub tenant: &'a str,
    pub writer: &'a str,
    pub session: &'a str,
    pub seq: u64,
    pub event: &'a [u8],
    pub envelope: &'a [u8],
    pub salt: &'a [u8],
    pub leaf_hash: &'a [u8],
}

/// A tree by its size and root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub size: u64,
    pub root: Hash,
}

/// What was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub entries: u64,
    pub streams: u64,
    pub head: Head,
}

/// The first thing that is wrong; `index` is the entry's place in the log, where one is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    pub index: Option<u64>,
    pub fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An entry is missing, twice there or out of order.
    LogIndex {
        expected: u64,
    },
    Envelope(Malformed),
    /// The envelope belongs to a log of another origin.
    OtherLog,
    /// The stored leaf is not that of the envelope.
    Leaf,
    /// The event's bytes are not those that the envelope commits to.
    Payload,
    /// A member beside the envelope disagrees with it.
    Column(&'static str),
    /// The stream has a gap or a repetition here.
    Sequence {
        expected: u64,
    },
    /// The entry does not follow the stream's entry before it.
    Prev,
    /// The log's clock went backwards.
    Clock,
    /// There are fewer or more entries than the head says.
    Size {
        expected: u64,
    },
    /// The entries are sound each, and are not those of the head.
    Root,
    /// The entry is not in the tree of the head.
    Proof,
    /// A line of a bundle cannot be read.
    Line {
        number: u64,
        cause: Malformed,
    },
    /// A bundle ends before its end.
    Truncated,
}

/// Verifies a whole log, entry by entry, in bounded memory but for the streams' heads.
#[derive(Debug)]
pub struct Verifier {
    log: String,
    frontier: Frontier,
    streams: Streams,
    clock: i64,
}

impl Verifier {
    pub fn new(log: &str) -> Self {
        Self {
            log: log.to_owned(),
            frontier: Frontier::default(),
            streams: Streams::default(),
            clock: i64::MIN,
        }
    }

    /// Takes the next entry of the log and gives its envelope and leaf.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(Envelope, Hash), Finding> {
        let finding = |fault| Finding { index: Some(entry.log_index), fault };
        let expected = self.frontier.size();
        if entry.log_index != expected {
            return Err(Finding { index: Some(expected), fault: Fault::LogIndex { expected } });
        }
        let (envelope, leaf) = check(entry, &self.log).map_err(finding)?;
        self.streams.follow(&envelope, leaf).map_err(finding)?;
        if envelope.recorded_us < self.clock {
            return Err(finding(Fault::Clock));
        }
        self.clock = envelope.recorded_us;
        self.frontier.append(leaf);
        Ok((envelope, leaf))
    }

    pub const fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Whether the entries so far are exactly those of the head.
    pub fn finish(&self, head: &Head) -> Result<Summary, Finding> {
        let found = Head { size: self.frontier.size(), root: self.frontier.root() };
        if found.size != head.size {
            let index = Some(found.size.min(head.size));
            return Err(Finding { index, fault: Fault::Size { expected: head.size } });
        }
        if found.root != head.root {
            return Err(Finding { index: None, fault: Fault::Root });
        }
        Ok(Summary { entries: found.size, streams: self.streams.count(), head: found })
    }
}

/// Verifies a whole log at once.
pub fn verify<'a>(
    log: &str,
    entries: impl IntoIterator<Item = Entry<'a>>,
    head: &Head,
) -> Result<Summary, Finding> {
    let mut verifier = Verifier::new(log);
    for entry in entries {
        verifier.push(&entry)?;
    }
    verifier.finish(head)
}

/// What can be said about an entry alone.
pub(crate) fn check(entry: &Entry<'_>, log: &str) -> Result<(Envelope, Hash), Fault> {
    let leaf = leaf_hash(entry.envelope);
    if entry.leaf_hash != leaf.as_bytes() {
        return Err(Fault::Leaf);
    }
    let envelope = Envelope::parse(entry.envelope).map_err(Fault::Envelope)?;
    if envelope.log != log {
        return Err(Fault::OtherLog);
    }
    let salt: &[u8; 32] = entry.salt.try_into().map_err(|_| Fault::Payload)?;
    let length = u64::try_from(entry.event.len()).map_err(|_| Fault::Payload)?;
    if envelope.payload_len != length
        || envelope.payload_commit != payload_commit(salt, entry.event)
    {
        return Err(Fault::Payload);
    }
    let columns = [
        ("tenant", envelope.tenant == entry.tenant),
        ("writer", envelope.writer == entry.writer),
        ("session", envelope.session == entry.session),
        ("seq", envelope.seq == entry.seq),
    ];
    match columns.into_iter().find(|(_, agrees)| !agrees) {
        Some((column, _)) => Err(Fault::Column(column)),
        None => Ok((envelope, leaf)),
    }
}

/// The last entry of each stream, by writer and session.
#[derive(Debug, Default)]
pub(crate) struct Streams(BTreeMap<(String, String), (u64, Hash)>);

impl Streams {
    /// Each stream counts from 0 without a gap, and each entry names the one before it.
    pub(crate) fn follow(&mut self, envelope: &Envelope, leaf: Hash) -> Result<(), Fault> {
        let stream = self.0.entry((envelope.writer.clone(), envelope.session.clone()));
        let (expected, prev) = match &stream {
            btree_map::Entry::Vacant(_) => (0, Hash::ZERO),
            btree_map::Entry::Occupied(last) => (last.get().0 + 1, last.get().1),
        };
        if envelope.seq != expected {
            return Err(Fault::Sequence { expected });
        }
        if envelope.prev != prev {
            return Err(Fault::Prev);
        }
        stream.insert_entry((envelope.seq, leaf));
        Ok(())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "entry {index}: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogIndex { expected } => {
                write!(f, "the log has no entry {expected} in its place")
            }
            Self::Envelope(cause) => write!(f, "the envelope is {cause}"),
            Self::OtherLog => f.write_str("the envelope belongs to another log"),
            Self::Leaf => f.write_str("the leaf hash is not that of the envelope"),
            Self::Payload => f.write_str("the event is not the one that the envelope commits to"),
            Self::Column(column) => write!(f, "{column} disagrees with the envelope"),
            Self::Sequence { expected } => write!(f, "the stream goes on at {expected}, not here"),
            Self::Prev => f.write_str("the entry does not follow the one before it in its stream"),
            Self::Clock => f.write_str("the log's clock goes backwards"),
            Self::Size { expected } => write!(f, "the head says {expected} entries"),
            Self::Root => f.write_str("the root is not that of the head"),
            Self::Proof => f.write_str("the inclusion proof does not lead to the head"),
            Self::Line { number, cause } => write!(f, "line {number} is {cause}"),
            Self::Truncated => f.write_str("the bundle ends before its last line"),
        }
    }
}

impl core::error::Error for Finding {}
