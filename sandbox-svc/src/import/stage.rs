//! Makes the new files and directories in staging, durable and complete, before anything of the workspace
//! is touched.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use rustix::fs::{AtFlags, Gid, Mode, Uid};

use crate::import::host::find;
use crate::import::{Bytes, Import, ImportError, Owner, conflict, new_name, write_error};
use crate::patch::{Change, Entry};
use crate::tree::blobs::Hasher;
use crate::tree::{Dir, Kind, Node, RelPath};

const CHUNK: usize = 64 * 1024;

/// The bytes must be those that were reviewed.
pub(crate) fn stage(import: &Import<'_>, bytes: Bytes<'_>) -> Result<(), ImportError> {
    let staging =
        import.host.create_directory(import.staging.as_bytes()).map_err(ImportError::Staging)?;
    import.failpoint.hit("import-staging-made")?;
    for (at, entry) in import.entries.iter().enumerate() {
        let Some(after) = entry.change.after() else { continue };
        let update_of_directory =
            after.is_directory() && matches!(entry.change, Change::Update { .. });
        if update_of_directory {
            continue;
        }
        let owner = owner(import, entry)?;
        let name = new_name(at);
        let made = match after {
            Node::Directory { mode } => staging.create_directory(&name).and_then(|dir| {
                own(&dir, owner)?;
                // Writable for us until everything is in it.
                Ok(rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode | 0o700))?)
            }),
            Node::Link { target } => link(&staging, &name, target, owner),
            Node::File { mode, .. } => {
                let mut file =
                    staging.create_file(&name).map_err(|error| write_error(&entry.path, error))?;
                fill(&mut file, bytes, &entry.path, after)?;
                import.failpoint.hit("import-file-written")?;
                own(&file, owner)
                    .and_then(|()| Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(*mode))?))
                    .and_then(|()| file.sync_all())
            }
        };
        made.map_err(|error| write_error(&entry.path, error))?;
        import.failpoint.hit("import-entry-staged")?;
    }
    rustix::fs::fsync(&staging)
        .and_then(|()| rustix::fs::fsync(import.host))
        .map_err(|error| ImportError::Staging(error.into()))
}

/// An update keeps its owner; what is new belongs to whom it belonged, if that is known, or to whom its nearest
/// directory belongs.
fn owner(import: &Import<'_>, entry: &Entry) -> Result<Owner, ImportError> {
    let unreachable = |_| conflict(&entry.path, "cannot be reached");
    if matches!(entry.change, Change::Update { .. }) {
        let place = find(import.host, &entry.path).map_err(unreachable)?;
        let meta = place.and_then(|place| place.look(&entry.path).transpose()).transpose()?;
        let meta = meta.ok_or_else(|| conflict(&entry.path, "is gone"))?;
        return Ok(Owner { uid: meta.uid, gid: meta.gid });
    }
    if let Some(owner) = import.owners.get(&entry.path) {
        return Ok(*owner);
    }
    let mut here = entry.path.parent();
    while let Some(directory) = here.filter(|directory| !directory.is_root()) {
        if let Some(place) = find(import.host, &directory).map_err(unreachable)?
            && let Some(meta) = place.look(&directory)?
            && meta.kind == Kind::Directory
        {
            return Ok(Owner { uid: meta.uid, gid: meta.gid });
        }
        here = directory.parent();
    }
    let meta = import.host.meta().map_err(|error| write_error(&entry.path, error))?;
    Ok(Owner { uid: meta.uid, gid: meta.gid })
}

fn own(file: impl rustix::fd::AsFd, owner: Owner) -> io::Result<()> {
    if owner == ours() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?)
}

fn ours() -> Owner {
    Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

fn link(staging: &Dir, name: &[u8], target: &[u8], owner: Owner) -> io::Result<()> {
    rustix::fs::symlinkat(target, staging, name)?;
    if owner != ours() {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        rustix::fs::chownat(staging, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn source(bytes: Bytes<'_>, path: &RelPath, after: &Node) -> Option<io::Take<File>> {
    match bytes {
        Bytes::Kept(blobs) => blobs.open_bytes(after.digest(), after.size()).ok(),
        Bytes::Copy(copy) => {
            let place = find(copy, path).ok()??;
            let meta = place.dir.look(place.name).ok()??;
            let same = meta.kind == Kind::File && meta.size == after.size();
            let file =
                if same { place.dir.open_file(place.name, &meta).ok()? } else { return None };
            Some(file.take(after.size().saturating_add(1)))
        }
    }
}

fn fill(
    file: &mut File,
    bytes: Bytes<'_>,
    path: &RelPath,
    after: &Node,
) -> Result<(), ImportError> {
    let changed = || ImportError::CopyChanged { path: path.clone() };
    let mut source = source(bytes, path, after).ok_or_else(changed)?;
    let mut hasher = Hasher::default();
    let mut chunk = vec![0; CHUNK];
    let mut left = after.size();
    loop {
        let length = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(changed()),
        };
        left = left.checked_sub(length as u64).ok_or_else(changed)?;
        hasher.update(&chunk[..length]);
        file.write_all(&chunk[..length]).map_err(|error| write_error(path, error))?;
    }
    let digest = hasher.finish().map_err(|error| write_error(path, error))?;
    if left == 0 && digest == after.digest() { Ok(()) } else { Err(changed()) }
}
