//! Writes a reviewed patch into the workspace: all of it or nothing, also over a kill at any step. It
//! decides nothing; what it finds changed is a conflict, and then everything is as before.
//!
//! New files are made in a private staging directory at the workspace's root and moved into place; what
//! they replace is moved there and stays until the whole is done. Each step says from what is on disk
//! whether it is done, so that going on and going back both work from any point.

mod apply;
mod host;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use event::Digest;

use crate::failpoint::{Failpoint, Stopped};
use crate::patch::{Change, Entry};
use crate::tree::rules::STAGING_PREFIX;
use crate::tree::{Blobs, Dir, RelPath};

pub(crate) use apply::{Left, final_states};
use apply::{apply, clean, undo};
pub(crate) use host::{check, owners};
use stage::stage;

/// One import of one call.
pub(crate) struct Import<'a> {
    /// The workspace.
    pub(crate) host: &'a Dir,
    pub(crate) entries: &'a [Entry],
    /// Whose an entry that is made anew was, where that is known.
    pub(crate) owners: &'a Owners,
    pub(crate) staging: &'a StagingName,
    pub(crate) failpoint: &'a Failpoint,
}

/// Whose an entry of the workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

pub(crate) type Owners = BTreeMap<RelPath, Owner>;

/// Where the bytes of new files come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes<'a> {
    /// A tree that has them under the same paths.
    Copy(&'a Dir),
    /// Kept bytes, by digest.
    Kept(&'a Blobs),
}

/// The staging directory's name, unique to the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StagingName(String);

impl StagingName {
    pub(crate) fn of(call: event::id::CallId) -> Self {
        Self(format!("{STAGING_PREFIX}{}", call.as_uuid().simple()))
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// For people who look for what is kept there.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How many conflicts are named one by one.
const NAMED_CONFLICTS: usize = 50;

/// One path of the workspace that is not what the patch was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) path: RelPath,
    pub(crate) what: &'static str,
    /// Digests of what was and what is there, as far as there is anything and it was read.
    pub(crate) expected: Option<Digest>,
    pub(crate) actual: Option<Digest>,
}

/// At least one, in path order up to a bound, and how many there are beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflicts {
    pub(crate) first: Conflict,
    pub(crate) rest: Vec<Conflict>,
    pub(crate) more: usize,
}

impl Conflicts {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conflict> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Nothing when there is none.
    fn of(found: Vec<Conflict>) -> Option<Self> {
        let more = found.len().saturating_sub(NAMED_CONFLICTS);
        let mut named = found.into_iter().take(NAMED_CONFLICTS);
        Some(Self { first: named.next()?, rest: named.collect(), more })
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Conflict { path, what, .. }) in self.iter().enumerate() {
            let before = if at == 0 { "" } else { "; " };
            write!(f, "{before}{path} {what}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// The workspace is not what the patch was made for.
    #[error("{0}")]
    Conflict(Box<Conflicts>),
    /// The copy is not what the patch was made from.
    #[error("{path} changed in the copy")]
    CopyChanged { path: RelPath },
    #[error("{path} cannot be written")]
    Write {
        path: RelPath,
        #[source]
        source: io::Error,
    },
    #[error("the staging directory cannot be used")]
    Staging(#[source] io::Error),
    #[error("the journal cannot be written")]
    Journal(#[source] io::Error),
    #[error("the import was interrupted while it was taken back")]
    Interrupted,
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How far an import has come; written to the journal before what it names begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Staging,
    Applying,
    Undoing,
    /// Everything is in place; only staging is left to remove.
    Applied,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Staging => "staging",
            Self::Applying => "applying",
            Self::Undoing => "undoing",
            Self::Applied => "applied",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Staging, Self::Applying, Self::Undoing, Self::Applied]
            .into_iter()
            .find(|phase| phase.as_str() == text)
    }
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Applied,
    /// As before, but for what `left` names: somebody changed it meanwhile, or removed what was needed to
    /// take it back.
    Undone {
        cause: ImportError,
        left: Left,
    },
}

/// Makes a phase durable.
pub(crate) type Journal<'a> = dyn FnMut(Phase) -> io::Result<()> + 'a;

/// The whole import. An error before staging means that nothing was touched.
pub(crate) fn run(
    import: &Import<'_>,
    bytes: Bytes<'_>,
    journal: &mut Journal<'_>,
) -> Result<Outcome, ImportError> {
    check(import)?;
    enter(import, Phase::Staging, journal)?;
    match stage(import, bytes) {
        Ok(()) => (),
        Err(ImportError::Stopped(stopped)) => return Err(stopped.into()),
        Err(cause) => {
            clean(import)?;
            return Ok(Outcome::Undone { cause, left: Left::default() });
        }
    }
    enter(import, Phase::Applying, journal)?;
    go_on(import, journal)
}

/// After a kill: finishes what had begun to be applied, and takes back everything else.
pub(crate) fn resume(
    import: &Import<'_>,
    phase: Phase,
    journal: &mut Journal<'_>,
) -> Result<Resumed, ImportError> {
    match phase {
        Phase::Staging => clean(import).map(|()| Resumed::Untouched),
        Phase::Applying => go_on(import, journal).map(Resumed::Ended),
        Phase::Undoing => {
            let cause = ImportError::Interrupted;
            go_back(import, cause).map(Resumed::Ended)
        }
        Phase::Applied => clean(import).map(|()| Resumed::Ended(Outcome::Applied)),
    }
}

/// What a kill had left.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// The workspace had not been touched: the import may begin anew.
    Untouched,
    Ended(Outcome),
}

fn go_on(import: &Import<'_>, journal: &mut Journal<'_>) -> Result<Outcome, ImportError> {
    match apply(import) {
        Ok(()) => {
            enter(import, Phase::Applied, journal)?;
            clean(import)?;
            Ok(Outcome::Applied)
        }
        Err(ImportError::Stopped(stopped)) => Err(stopped.into()),
        Err(cause) => {
            enter(import, Phase::Undoing, journal)?;
            go_back(import, cause)
        }
    }
}

fn go_back(import: &Import<'_>, cause: ImportError) -> Result<Outcome, ImportError> {
    let left = undo(import)?;
    if left.paths.is_empty() {
        clean(import)?;
    }
    Ok(Outcome::Undone { cause, left })
}

fn enter(import: &Import<'_>, phase: Phase, journal: &mut Journal<'_>) -> Result<(), ImportError> {
    journal(phase).map_err(ImportError::Journal)?;
    import.failpoint.hit(phase.as_str())?;
    Ok(())
}

/// What happens to one entry, named by its place in the patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The old entry goes into staging.
    MoveOut(usize),
    /// The new entry comes from staging; nothing of its name may be there.
    MoveIn(usize),
    /// New and old change places.
    Swap(usize),
    /// A directory gets its mode.
    SetMode(usize),
}

impl Import<'_> {
    /// Deletes deepest first, then directories, then files and links, then modes of directories.
    fn steps(&self) -> Vec<Step> {
        let all = || self.entries.iter().enumerate();
        let deletes = all()
            .rev()
            .filter(|(_, entry)| matches!(entry.change, Change::Delete { .. }))
            .map(|(at, _)| Step::MoveOut(at));
        let directories = all().filter_map(|(at, entry)| match &entry.change {
            Change::Create { after } if after.is_directory() => Some(Step::MoveIn(at)),
            Change::Create { .. } | Change::Update { .. } | Change::Delete { .. } => None,
        });
        let files = all().filter_map(|(at, entry)| match &entry.change {
            Change::Create { after } if !after.is_directory() => Some(Step::MoveIn(at)),
            Change::Update { after, .. } if !after.is_directory() => Some(Step::Swap(at)),
            Change::Create { .. } | Change::Update { .. } | Change::Delete { .. } => None,
        });
        let modes = all().rev().filter_map(|(at, entry)| {
            entry
                .change
                .after()
                .is_some_and(crate::tree::Node::is_directory)
                .then_some(Step::SetMode(at))
        });
        deletes.chain(directories).chain(files).chain(modes).collect()
    }
}

/// A new entry in staging.
fn new_name(at: usize) -> Vec<u8> {
    format!("n{at}").into_bytes()
}

/// An old entry in staging.
fn old_name(at: usize) -> Vec<u8> {
    format!("o{at}").into_bytes()
}

fn conflict(path: &RelPath, what: &'static str) -> ImportError {
    let first = Conflict { path: path.clone(), what, expected: None, actual: None };
    ImportError::Conflict(Box::new(Conflicts { first, rest: Vec::new(), more: 0 }))
}

fn write_error(path: &RelPath, source: impl Into<io::Error>) -> ImportError {
    ImportError::Write { path: path.clone(), source: source.into() }
}
