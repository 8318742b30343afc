//! Moves what was staged into place, or everything back. Every step first finds out from the disk whether
//! it has been done, so that both can be repeated after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use crate::import::host::{Place, find, holds};
use crate::import::{Import, ImportError, Step, conflict, new_name, old_name, write_error};
use crate::patch::{Change, Entry};
use crate::tree::{Dir, Kind, Node, RelPath};

/// Brings every entry to its state after. An error means that some may be and some not: undo.
pub(crate) fn apply(import: &Import<'_>) -> Result<(), ImportError> {
    let staging = open_staging(import)?;
    for step in import.steps() {
        let entry = &import.entries[step.at()];
        match step {
            Step::MoveOut(at) => move_out(import, &staging, at, entry)?,
            Step::MoveIn(at) => move_in(&staging, at, entry, &target(import, entry)?)?,
            Step::Swap(at) => swap(&staging, at, entry, &target(import, entry)?)?,
            Step::SetMode(_) => set_mode(entry, &target(import, entry)?)?,
        }
        import.failpoint.hit("import-step-applied")?;
    }
    verify(import)?;
    sync(import, &staging)
}

/// Every path as it is on disk now that all are in place: what is told of the host is what was seen there.
fn verify(import: &Import<'_>) -> Result<(), ImportError> {
    for (path, after) in final_states(import.entries) {
        let there = match (find(import.host, path), after) {
            (Ok(None), None) => true,
            (Ok(Some(place)), None) => place.look(path)?.is_none(),
            (Ok(Some(place)), Some(node)) => place.holds(path, node)?,
            (Ok(None), Some(_)) | (Err(_), _) => false,
        };
        if !there {
            return Err(conflict(path, "changed on the host"));
        }
    }
    Ok(())
}

/// Each path of the entries once, with what is to be there afterwards.
pub(crate) fn final_states(entries: &[Entry]) -> BTreeMap<&RelPath, Option<&Node>> {
    // A path that is deleted and made anew has its state in the create, which comes later.
    entries.iter().map(|entry| (&entry.path, entry.change.after())).collect()
}

/// What is not as it was before, though it was to be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Left {
    pub(crate) paths: Vec<RelPath>,
    /// Whether the old entries are still in staging.
    pub(crate) kept: bool,
}

/// Brings every entry back to its state before. What somebody else changed meanwhile is left alone and
/// named; then the old files stay in staging.
pub(crate) fn undo(import: &Import<'_>) -> Result<Left, ImportError> {
    let Some(staging) = staging(import)? else {
        return Ok(Left { paths: changed(import), kept: false });
    };
    let mut left = Vec::new();
    for step in import.steps().into_iter().rev() {
        let at = step.at();
        let entry = &import.entries[at];
        let restored = match (step, find(import.host, &entry.path)) {
            (Step::MoveOut(_), Ok(Some(place))) => move_back(&staging, at, entry, &place)?,
            (Step::MoveIn(_), Ok(Some(place))) => take_back(&staging, at, entry, &place)?,
            (Step::Swap(_), Ok(Some(place))) => swap_back(&staging, at, entry, &place)?,
            (Step::SetMode(_), Ok(Some(place))) => reset_mode(entry, &place)?,
            // Its directory is gone: there is nothing to take away, and no place to bring back to.
            (Step::MoveOut(_), Ok(None) | Err(_)) => {
                !is_there(&staging, &old_name(at), &entry.path)?
            }
            (Step::Swap(_), Ok(None) | Err(_)) => !is_swapped(&staging, at, entry),
            (Step::MoveIn(_) | Step::SetMode(_), Ok(None) | Err(_)) => true,
        };
        if !restored {
            left.push(entry.path.clone());
        }
        import.failpoint.hit("import-step-undone")?;
    }
    sync(import, &staging)?;
    import.failpoint.hit("import-undone-synced")?;
    left.sort();
    left.dedup();
    Ok(Left { paths: left, kept: true })
}

/// Without staging nothing can be taken back. Either that was done before, or somebody removed the old
/// entries: what is on disk decides, and what cannot be looked at counts as changed.
fn changed(import: &Import<'_>) -> Vec<RelPath> {
    let mut befores: BTreeMap<&RelPath, Option<&Node>> = BTreeMap::new();
    for entry in import.entries {
        // A path that is deleted and made anew has its state before in the delete.
        let before = befores.entry(&entry.path).or_default();
        *before = before.or(entry.change.before());
    }
    let is_before = |path: &RelPath, before: Option<&Node>| match (find(import.host, path), before)
    {
        (Ok(None), before) => before.is_none(),
        (Ok(Some(place)), None) => matches!(place.look(path), Ok(None)),
        (Ok(Some(place)), Some(node)) => matches!(place.holds(path, node), Ok(true)),
        (Err(_), _) => false,
    };
    let differs = befores.into_iter().filter(|(path, before)| !is_before(path, *before));
    differs.map(|(path, _)| path.clone()).collect()
}

/// Removes the staging directory with what is left in it.
pub(crate) fn clean(import: &Import<'_>) -> Result<(), ImportError> {
    let Some(staging) = staging(import)? else { return Ok(()) };
    let names = staging.names(usize::MAX).map_err(|_| ImportError::Staging(unreadable()))?;
    for name in names.unwrap_or_default() {
        remove(&staging, &name).map_err(ImportError::Staging)?;
        import.failpoint.hit("import-entry-cleaned")?;
    }
    let gone = rustix::fs::unlinkat(import.host, import.staging.as_bytes(), AtFlags::REMOVEDIR);
    gone.map_err(|error| ImportError::Staging(error.into()))?;
    import.failpoint.hit("import-staging-removed")?;
    rustix::fs::fsync(import.host).map_err(|error| ImportError::Staging(error.into()))
}

fn remove(staging: &Dir, name: &[u8]) -> io::Result<()> {
    let seen = staging.look(name).map_err(|_| unreadable())?;
    let flags = match seen.map(|meta| meta.kind) {
        Some(Kind::Directory) => AtFlags::REMOVEDIR,
        Some(Kind::File | Kind::Link | Kind::Special) | None => AtFlags::empty(),
    };
    Ok(rustix::fs::unlinkat(staging, name, flags)?)
}

fn unreadable() -> io::Error {
    io::Error::other("an entry of the staging directory cannot be read")
}

impl Step {
    fn at(self) -> usize {
        match self {
            Self::MoveOut(at) | Self::MoveIn(at) | Self::Swap(at) | Self::SetMode(at) => at,
        }
    }
}

fn staging(import: &Import<'_>) -> Result<Option<Dir>, ImportError> {
    let name = import.staging.as_bytes();
    match import.host.look(name) {
        Ok(None) => Ok(None),
        Ok(Some(_)) | Err(_) => import
            .host
            .open_directory(name)
            .map(Some)
            .map_err(|_| ImportError::Staging(unreadable())),
    }
}

fn open_staging(import: &Import<'_>) -> Result<Dir, ImportError> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the staging directory is gone");
    staging(import)?.ok_or_else(|| ImportError::Staging(missing()))
}

fn target<'a>(import: &Import<'_>, entry: &'a Entry) -> Result<Place<'a>, ImportError> {
    match find(import.host, &entry.path) {
        Ok(Some(place)) => Ok(place),
        Ok(None) => Err(conflict(&entry.path, "has no directory to be in")),
        Err(_) => Err(conflict(&entry.path, "cannot be reached")),
    }
}

fn is_there(staging: &Dir, name: &[u8], path: &RelPath) -> Result<bool, ImportError> {
    let seen = staging.look(name).map_err(|_| conflict(path, "cannot be looked at in staging"))?;
    Ok(seen.is_some())
}

fn is(dir: &Dir, name: &[u8], path: &RelPath, node: &Node) -> Result<bool, ImportError> {
    holds(dir, name, node).map_err(|_| conflict(path, "cannot be read"))
}

fn rename(
    from: (&Dir, &[u8]),
    to: (&Dir, &[u8]),
    flags: RenameFlags,
    path: &RelPath,
) -> Result<(), ImportError> {
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(conflict(path, "exists")),
        Err(Errno::NOENT) => Err(conflict(path, "is gone")),
        Err(error) => Err(write_error(path, error)),
    }
}

fn move_out(
    import: &Import<'_>,
    staging: &Dir,
    at: usize,
    entry: &Entry,
) -> Result<(), ImportError> {
    let Change::Delete { before } = &entry.change else { return Ok(()) };
    let (path, name) = (&entry.path, old_name(at));
    // Once it is out, its directory may be out as well.
    if !is_there(staging, &name, path)? {
        let place = target(import, entry)?;
        if !place.holds(path, before)? {
            return Err(conflict(path, "changed on the host"));
        }
        rename((&place.dir, place.name), (staging, &name), RenameFlags::NOREPLACE, path)?;
    }
    // Somebody may have changed it between the look and the move.
    let unchanged = is(staging, &name, path, before)?
        && (!before.is_directory() || is_empty(staging, &name, path)?);
    if unchanged { Ok(()) } else { Err(conflict(path, "changed on the host")) }
}

fn is_empty(dir: &Dir, name: &[u8], path: &RelPath) -> Result<bool, ImportError> {
    match dir.open_directory(name).and_then(|directory| directory.names(1)) {
        Ok(names) => Ok(names.is_some_and(|names| names.is_empty())),
        Err(_) => Err(conflict(path, "cannot be read")),
    }
}

fn move_back(
    staging: &Dir,
    at: usize,
    entry: &Entry,
    place: &Place<'_>,
) -> Result<bool, ImportError> {
    let name = old_name(at);
    if !is_there(staging, &name, &entry.path)? {
        // It never left, or somebody has removed it since.
        return Ok(place.look(&entry.path)?.is_some());
    }
    settled(rename((staging, &name), (&place.dir, place.name), RenameFlags::NOREPLACE, &entry.path))
}

fn move_in(staging: &Dir, at: usize, entry: &Entry, place: &Place<'_>) -> Result<(), ImportError> {
    let Change::Create { after } = &entry.change else { return Ok(()) };
    let (path, name) = (&entry.path, new_name(at));
    if is_there(staging, &name, path)? {
        rename((staging, &name), (&place.dir, place.name), RenameFlags::NOREPLACE, path)?;
    }
    let arrived = if after.is_directory() {
        // Its mode comes last.
        place.look(path)?.is_some_and(|meta| meta.kind == Kind::Directory)
    } else {
        place.holds(path, after)?
    };
    if arrived { Ok(()) } else { Err(conflict(path, "changed on the host")) }
}

fn take_back(
    staging: &Dir,
    at: usize,
    entry: &Entry,
    place: &Place<'_>,
) -> Result<bool, ImportError> {
    let Change::Create { after } = &entry.change else { return Ok(true) };
    let (path, name) = (&entry.path, new_name(at));
    if is_there(staging, &name, path)? {
        return Ok(true);
    }
    if after.is_directory() {
        return take_directory_back(staging, &name, entry, place);
    }
    if place.look(path)?.is_none() {
        return Ok(true);
    }
    if !place.holds(path, after)? {
        return Ok(false);
    }
    settled(rename((&place.dir, place.name), (staging, &name), RenameFlags::NOREPLACE, path))
}

/// Moved and not removed, so that a second look finds it in staging. What somebody put into it stays.
fn take_directory_back(
    staging: &Dir,
    name: &[u8],
    entry: &Entry,
    place: &Place<'_>,
) -> Result<bool, ImportError> {
    let path = &entry.path;
    match place.look(path)? {
        None => return Ok(true),
        Some(meta) if meta.kind == Kind::Directory => (),
        Some(_) => return Ok(false),
    }
    let (here, there) = ((&place.dir, place.name), (staging, name));
    if !is_empty(&place.dir, place.name, path)? {
        return Ok(false);
    }
    if !settled(rename(here, there, RenameFlags::NOREPLACE, path))? {
        return Ok(false);
    }
    if is_empty(staging, name, path)? {
        return Ok(true);
    }
    rename(there, here, RenameFlags::NOREPLACE, path).map(|()| false)
}

fn swap(staging: &Dir, at: usize, entry: &Entry, place: &Place<'_>) -> Result<(), ImportError> {
    let Change::Update { before, after } = &entry.change else { return Ok(()) };
    let (path, name) = (&entry.path, new_name(at));
    if is(staging, &name, path, after)? {
        if !place.holds(path, before)? {
            return Err(conflict(path, "changed on the host"));
        }
        rename((staging, &name), (&place.dir, place.name), RenameFlags::EXCHANGE, path)?;
    }
    // Somebody may have changed it between the look and the swap, or since.
    if is(staging, &name, path, before)? && place.holds(path, after)? {
        Ok(())
    } else {
        Err(conflict(path, "changed on the host"))
    }
}

fn swap_back(
    staging: &Dir,
    at: usize,
    entry: &Entry,
    place: &Place<'_>,
) -> Result<bool, ImportError> {
    let Change::Update { after, .. } = &entry.change else { return Ok(true) };
    let (path, name) = (&entry.path, new_name(at));
    if !is_swapped(staging, at, entry) {
        return Ok(true);
    }
    if !place.holds(path, after)? {
        return Ok(false);
    }
    settled(rename((staging, &name), (&place.dir, place.name), RenameFlags::EXCHANGE, path))
}

/// Staging holds the new entry until it is swapped, whatever came for it.
fn is_swapped(staging: &Dir, at: usize, entry: &Entry) -> bool {
    let waits = entry.change.after().map(|after| holds(staging, &new_name(at), after));
    !matches!(waits, Some(Ok(true)))
}

/// A conflict while going back is something of somebody else's in the way.
fn settled(done: Result<(), ImportError>) -> Result<bool, ImportError> {
    match done {
        Ok(()) => Ok(true),
        Err(ImportError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_mode(entry: &Entry, place: &Place<'_>) -> Result<(), ImportError> {
    let path = &entry.path;
    let Some(Node::Directory { mode }) = entry.change.after() else { return Ok(()) };
    let seen = place.look(path)?.filter(|meta| meta.kind == Kind::Directory);
    let seen = seen.ok_or_else(|| conflict(path, "is no directory"))?;
    if seen.mode == *mode {
        return Ok(());
    }
    if let Change::Update { before: Node::Directory { mode: before }, .. } = &entry.change
        && seen.mode != *before
    {
        return Err(conflict(path, "changed on the host"));
    }
    chmod(place, path, *mode)
}

fn reset_mode(entry: &Entry, place: &Place<'_>) -> Result<bool, ImportError> {
    let path = &entry.path;
    let Some(Node::Directory { mode: after }) = entry.change.after() else { return Ok(true) };
    let seen = place.look(path)?.filter(|meta| meta.kind == Kind::Directory).map(|meta| meta.mode);
    match (&entry.change, seen) {
        (Change::Update { before: Node::Directory { mode: before }, .. }, Some(seen)) => match seen
        {
            seen if seen == *after => chmod(place, path, *before).map(|()| true),
            seen => Ok(seen == *before),
        },
        // It goes away; until then its entries must be able to.
        (Change::Create { .. }, Some(seen)) => chmod(place, path, seen | 0o700).map(|()| true),
        (_, Some(_) | None) => Ok(true),
    }
}

fn chmod(place: &Place<'_>, path: &RelPath, mode: u32) -> Result<(), ImportError> {
    let dir =
        place.dir.open_directory(place.name).map_err(|_| conflict(path, "cannot be opened"))?;
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode)).map_err(|error| write_error(path, error))
}

/// Every directory that an entry left or entered.
fn sync(import: &Import<'_>, staging: &Dir) -> Result<(), ImportError> {
    let parents: BTreeSet<RelPath> =
        import.entries.iter().filter_map(|entry| entry.path.parent()).collect();
    for parent in parents {
        // A directory that is gone has nothing to be made durable; its own directory has.
        if let Ok(directory) = import.host.descend(&parent) {
            rustix::fs::fsync(&directory).map_err(|error| write_error(&parent, error))?;
            import.failpoint.hit("import-directory-synced")?;
        }
    }
    rustix::fs::fsync(staging).map_err(|error| ImportError::Staging(error.into()))
}
