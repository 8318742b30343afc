//! From what a call asks for to the entries that would be written. A file that is not what the call expects is
//! told with both digests; nothing is ever overwritten by a move or a restore.

use std::collections::{BTreeMap, BTreeSet};

use event::id::CallId;
use event::{Differs, Digest};
use manifest::Rulebook;

use super::look::{Seen, Standing, look};
use super::text::{self, BadEdit};
use super::{Operation, Proposal, Supply};
use crate::environment::Environment;
use crate::error::Error;
use crate::patch::unified::MAX_TEXT;
use crate::patch::{Change as NodeChange, Entry, Patch};
use crate::planner::Stop;
use crate::refusal::{Reason, Refusal};
use crate::tool::edit::{Change, New};
use crate::tree::inventory::CARRIED_MODE;
use crate::tree::{self, Dir, Node, NotCarried, RelPath};

/// Of one file after an edit, and of all of them.
const FILE_BYTES: usize = 1 << 20;
const ALL_BYTES: usize = 4 << 20;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A file that was taken out of the copy and is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quarantined {
    pub(crate) id: CallId,
    pub(crate) path: RelPath,
    pub(crate) node: Node,
}

/// Works an edit out against one copy. Blocks.
pub(crate) struct Proposer<'a> {
    environment: &'a Environment,
    rulebook: &'a Rulebook,
    copy: Dir,
    entries: Vec<Entry>,
    directories: BTreeSet<RelPath>,
    not_carried: Vec<NotCarried>,
    supplies: BTreeMap<Digest, Supply>,
    before: BTreeMap<RelPath, Vec<u8>>,
}

impl<'a> Proposer<'a> {
    pub(crate) fn new(environment: &'a Environment, rulebook: &'a Rulebook) -> Result<Self, Error> {
        let path = environment.place.copy();
        let copy = Dir::open(&path).map_err(Error::file("the copy cannot be opened", path))?;
        Ok(Self {
            environment,
            rulebook,
            copy,
            entries: Vec::new(),
            directories: BTreeSet::new(),
            not_carried: Vec::new(),
            supplies: BTreeMap::new(),
            before: BTreeMap::new(),
        })
    }

    pub(crate) fn apply(mut self, changes: &[Change]) -> Result<Proposal, Stop> {
        let mut left = ALL_BYTES;
        for change in changes {
            let written = self.change(change, left)?;
            left = left.saturating_sub(written);
        }
        if self.entries.is_empty() {
            return Err(Reason::EditEmpty.into());
        }
        Ok(self.finish(Operation::Apply))
    }

    pub(crate) fn relocate(
        mut self,
        source: &RelPath,
        destination: &RelPath,
        expected: Digest,
    ) -> Result<Proposal, Stop> {
        let (_, node) = self.expected(source, expected)?;
        self.arrive(destination, &node, Supply::Copy(source.clone()))?;
        self.push(source, NodeChange::Delete { before: node });
        let (source, destination) = (source.clone(), destination.clone());
        Ok(self.finish(Operation::Move { source, destination }))
    }

    pub(crate) fn quarantine(
        mut self,
        id: CallId,
        path: &RelPath,
        expected: Digest,
    ) -> Result<Proposal, Stop> {
        let (seen, node) = self.expected(path, expected)?;
        self.remember(path, &seen)?;
        self.supplies.insert(node.digest(), Supply::Copy(path.clone()));
        self.push(path, NodeChange::Delete { before: node });
        Ok(self.finish(Operation::Quarantine { id }))
    }

    pub(crate) fn restore(
        mut self,
        kept: &Quarantined,
        destination: Option<&RelPath>,
        expected: Option<Digest>,
    ) -> Result<Proposal, Stop> {
        let Quarantined { id, path, node } = kept;
        if let Some(expected) = expected.filter(|expected| *expected != node.digest()) {
            return Err(stale(path, Some(expected), Some(node.digest())).into());
        }
        self.arrive(destination.unwrap_or(path), node, Supply::Kept)?;
        Ok(self.finish(Operation::Restore { id: *id }))
    }

    fn finish(mut self, operation: Operation) -> Proposal {
        for path in std::mem::take(&mut self.directories) {
            let after = Node::Directory { mode: DIRECTORY_MODE };
            self.push(&path, NodeChange::Create { after });
        }
        self.entries.sort_by(|one, other| one.path.cmp(&other.path));
        self.not_carried.sort_by(|one, other| one.path.cmp(&other.path));
        let (entries, not_carried) = (self.entries, self.not_carried);
        let patch = Patch { entries, not_carried, stripped: Vec::new() };
        Proposal::new(operation, patch, self.supplies, &self.before)
    }

    fn push(&mut self, path: &RelPath, change: NodeChange) {
        self.entries.push(Entry { path: path.clone(), change });
    }

    /// One file of an apply; says how many bytes it would have.
    fn change(&mut self, change: &Change, left: usize) -> Result<usize, Stop> {
        let Change { path, expected, new } = change;
        let most = FILE_BYTES.min(left);
        let Some(expected) = expected else { return self.create(path, new, most) };
        let (seen, before) = self.expected(path, *expected)?;
        let bytes = match new {
            New::Whole(content) => whole(path, content, most)?,
            New::Edits(edits) => {
                let old = self.text_of(path, &seen)?;
                text::apply(&old, edits, most).map_err(|error| bad(path, &error))?
            }
        };
        let after = file(before.mode() & CARRIED_MODE, &bytes);
        if after.digest() == before.digest() {
            return Ok(0);
        }
        self.remember(path, &seen)?;
        self.judge_content(path, &bytes);
        let size = bytes.len();
        self.supplies.insert(after.digest(), Supply::Bytes(bytes));
        self.push(path, NodeChange::Update { before, after });
        Ok(size)
    }

    fn create(&mut self, path: &RelPath, new: &New, most: usize) -> Result<usize, Stop> {
        let New::Whole(content) = new else { return Err(Reason::ArgumentsInvalid.into()) };
        let bytes = whole(path, content, most)?;
        if let Standing::File(seen) = look(&self.copy, path)? {
            self.is_open(path)?;
            let actual = seen.node(path)?.digest();
            return Err(stale(path, None, Some(actual)).into());
        }
        let (size, node) = (bytes.len(), file(FILE_MODE, &bytes));
        self.arrive(path, &node, Supply::Bytes(bytes))?;
        Ok(size)
    }

    /// A new file at a place that must be free.
    fn arrive(&mut self, path: &RelPath, node: &Node, supply: Supply) -> Result<(), Stop> {
        let missing = match look(&self.copy, path)? {
            Standing::Free { missing } => missing,
            Standing::File(_) => {
                let detail = format!("{path} is there, and nothing is overwritten");
                return Err(Refusal::new(Reason::PathExists, detail).into());
            }
        };
        match self.environment.kept_out(self.rulebook, path) {
            Some(tree::Reason::ServiceState) => {
                let detail = format!("{path} is a name that only the service uses");
                return Err(Refusal::new(Reason::PathNotWritable, detail).into());
            }
            Some(reason) => self.not_carried.push(NotCarried { path: path.clone(), reason }),
            None => {
                if let Supply::Bytes(bytes) = &supply {
                    self.judge_content(path, bytes);
                }
            }
        }
        self.directories.extend(missing);
        let after = node.carried();
        self.supplies.insert(after.digest(), supply);
        self.push(path, NodeChange::Create { after });
        Ok(())
    }

    fn judge_content(&mut self, path: &RelPath, bytes: &[u8]) {
        if self.environment.is_secret(path, bytes) {
            let reason = tree::Reason::SecretContent;
            self.not_carried.push(NotCarried { path: path.clone(), reason });
        }
    }

    /// The file that is there, if it is the one that the call is about.
    fn expected<'p>(&self, path: &'p RelPath, expected: Digest) -> Result<(Seen<'p>, Node), Stop> {
        let Standing::File(seen) = look(&self.copy, path)? else {
            return Err(match self.environment.withheld(path) {
                Some(reason) => closed(path, reason).into(),
                None => stale(path, Some(expected), None).into(),
            });
        };
        self.is_open(path)?;
        let node = seen.node(path)?;
        if node.digest() != expected {
            return Err(stale(path, Some(expected), Some(node.digest())).into());
        }
        Ok((seen, node))
    }

    /// Nothing is told of a file that may not be read, not even its digest.
    fn is_open(&self, path: &RelPath) -> Result<(), Refusal> {
        match self.environment.kept_out(self.rulebook, path) {
            Some(reason) => Err(closed(path, reason)),
            None => Ok(()),
        }
    }

    fn text_of(&self, path: &RelPath, seen: &Seen<'_>) -> Result<Vec<u8>, Refusal> {
        if seen.size() > FILE_BYTES as u64 {
            let detail = format!("{path} is larger than {FILE_BYTES} bytes; use a command");
            return Err(Refusal::new(Reason::EditTooLarge, detail));
        }
        let bytes = seen.bytes(path)?;
        if self.environment.is_secret(path, &bytes) {
            return Err(closed(path, tree::Reason::SecretContent));
        }
        Ok(bytes)
    }

    /// For the diff.
    fn remember(&mut self, path: &RelPath, seen: &Seen<'_>) -> Result<(), Refusal> {
        if seen.size() <= MAX_TEXT {
            let bytes = seen.bytes(path)?;
            if !self.environment.is_secret(path, &bytes) {
                self.before.insert(path.clone(), bytes);
            }
        }
        Ok(())
    }
}

fn file(mode: u32, bytes: &[u8]) -> Node {
    Node::File { mode, size: bytes.len() as u64, digest: Digest::of(bytes) }
}

fn whole(path: &RelPath, content: &str, most: usize) -> Result<Vec<u8>, Refusal> {
    if content.len() > most {
        return Err(bad(path, &BadEdit::TooLarge(most)));
    }
    Ok(content.as_bytes().to_vec())
}

fn bad(path: &RelPath, error: &BadEdit) -> Refusal {
    let reason = match error {
        BadEdit::NotText => Reason::EditNotText,
        BadEdit::TooLarge(_) => Reason::EditTooLarge,
        BadEdit::NoSuchLines { .. }
        | BadEdit::NotFound(_)
        | BadEdit::Ambiguous { .. }
        | BadEdit::Overlap
        | BadEdit::Control(_) => Reason::EditNotPossible,
    };
    Refusal::new(reason, format!("{path}: {error}"))
}

fn closed(path: &RelPath, reason: tree::Reason) -> Refusal {
    let detail = format!("{path} is not open to edits: {}", reason.as_str());
    Refusal::new(Reason::PathNotWritable, detail)
}

/// With both digests, for the model and for the record.
pub(crate) fn stale(path: &RelPath, expected: Option<Digest>, actual: Option<Digest>) -> Refusal {
    let told = |digest: Option<Digest>| match digest {
        Some(digest) => digest.to_string(),
        None => "no file".to_owned(),
    };
    let detail = format!("{path}: expected {}, found {}", told(expected), told(actual));
    let differs = Differs { path: Some(path.to_string()), expected, actual };
    Refusal { differs: Some(Box::new(differs)), ..Refusal::new(Reason::EditStale, detail) }
}
