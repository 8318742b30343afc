//! What differs between a base and its copy: whole entries with their states before and after, under one
//! digest. It decides what may go back to the host, never whether.

mod diff;
pub(crate) mod git;
mod select;
pub(crate) mod unified;

use std::collections::BTreeMap;

use event::Digest;
use manifest::{Protected, WorkPath};

use crate::tree::inventory::{Malformed, put, take, take_array};
use crate::tree::{Node, NotCarried, Reason, RelPath};

pub(crate) use diff::diff;
pub(crate) use select::Unknown;

const DOMAIN: &str = "harness.patch.v1";

/// One path that changes. A change between a directory and anything else is two: delete, then create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Create { after: Node },
    Update { before: Node, after: Node },
    Delete { before: Node },
}

impl Change {
    pub(crate) fn before(&self) -> Option<&Node> {
        match self {
            Self::Create { .. } => None,
            Self::Update { before, .. } | Self::Delete { before } => Some(before),
        }
    }

    pub(crate) fn after(&self) -> Option<&Node> {
        match self {
            Self::Delete { .. } => None,
            Self::Create { after } | Self::Update { after, .. } => Some(after),
        }
    }

    pub(crate) fn op(&self) -> receipt::PatchOp {
        match self {
            Self::Create { .. } => receipt::PatchOp::Create,
            Self::Update { .. } => receipt::PatchOp::Update,
            Self::Delete { .. } => receipt::PatchOp::Delete,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: RelPath,
    pub(crate) change: Change,
}

/// In path order, a delete before a create of the same path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Patch {
    pub(crate) entries: Vec<Entry>,
    /// What changed in the copy and stays there.
    pub(crate) not_carried: Vec<NotCarried>,
    /// Files whose set-id bits are gone.
    pub(crate) stripped: Vec<RelPath>,
}

impl Patch {
    pub(crate) fn digest(&self) -> Digest {
        Digest::of_parts(DOMAIN, &encode(&self.entries))
    }

    /// Bytes that are written to the host.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.entries.iter().filter_map(|entry| entry.change.after()).map(Node::size).sum()
    }

    /// Every path once, in order.
    pub(crate) fn paths(&self) -> Vec<&RelPath> {
        let mut paths: Vec<_> = self.entries.iter().map(|entry| &entry.path).collect();
        paths.dedup();
        paths
    }

    pub(crate) fn protected(&self, list: &Protected) -> Vec<&RelPath> {
        self.paths().into_iter().filter(|path| is_protected(list, path)).collect()
    }

    /// Symbolic links that are written, with their text.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&RelPath, &[u8])> {
        self.entries.iter().filter_map(|entry| match entry.change.after() {
            Some(Node::Link { target }) => Some((&entry.path, target.as_slice())),
            Some(Node::Directory { .. } | Node::File { .. }) | None => None,
        })
    }

    /// Paths that are gone afterwards.
    pub(crate) fn deletions(&self) -> Vec<&RelPath> {
        let mut last: BTreeMap<&RelPath, bool> = BTreeMap::new();
        for entry in &self.entries {
            last.insert(&entry.path, matches!(entry.change, Change::Delete { .. }));
        }
        last.into_iter().filter(|(_, gone)| *gone).map(|(path, _)| path).collect()
    }
}

/// Whether tools run or obey what is there. A path that no rule can be held against is shown apart as well.
pub(crate) fn is_protected(list: &Protected, path: &RelPath) -> bool {
    WorkPath::parse(&path.to_subject()).map_or(true, |path| list.covers(&path))
}

/// Entries with their lengths first: what the digest is over, and what the journal keeps.
pub(crate) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Entry { path, change } in entries {
        put(&mut bytes, path.as_bytes());
        for state in [change.before(), change.after()] {
            match state {
                None => bytes.push(0),
                Some(node) => {
                    bytes.push(1);
                    node.encode(&mut bytes);
                }
            }
        }
    }
    bytes
}

pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<Entry>, Malformed> {
    fn state(bytes: &mut &[u8]) -> Result<Option<Node>, Malformed> {
        match take_array::<1>(bytes)? {
            [0] => Ok(None),
            [1] => Node::decode(bytes).map(Some),
            _ => Err(Malformed),
        }
    }
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let path = RelPath::parse(take(&mut bytes)?).map_err(|_| Malformed)?;
        let before = state(&mut bytes)?;
        let after = state(&mut bytes)?;
        let change = match (before, after) {
            (None, Some(after)) => Change::Create { after },
            (Some(before), Some(after)) => Change::Update { before, after },
            (Some(before), None) => Change::Delete { before },
            (None, None) => return Err(Malformed),
        };
        entries.push(Entry { path, change });
    }
    Ok(entries)
}

/// What the base left out, by path: nothing of those names goes back.
pub(crate) type Before = BTreeMap<RelPath, Reason>;

/// A state as the plan shows it.
pub(crate) fn file_state(node: &Node) -> receipt::FileState {
    receipt::FileState { mode: node.mode_text(), sha256: node.digest(), size: node.size() }
}
