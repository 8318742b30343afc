//! Holds a tree of the host under a path that only this service and the engine can reach, so that what was looked
//! at is what is mounted, whatever happens to its name. It decides nothing about what may be mounted.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

use crate::mounts::walk::Top;

const STICKY: u32 = 0o1000;
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;

/// Mounts `top` at `place/number`; nothing where this process may not mount.
pub(super) fn pin(top: &Top, place: &Path, number: usize) -> io::Result<Option<PathBuf>> {
    match DirBuilder::new().mode(0o700).create(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    let (open, at) = match top {
        Top::Directory(dir) => (dir.as_fd(), place.join(number.to_string())),
        Top::File(file) => (file.as_fd(), place.join(number.to_string())),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let held = match rustix::mount::open_tree(open, "", flags) {
        Ok(held) => held,
        Err(Errno::PERM | Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match top {
        Top::Directory(_) => DirBuilder::new().mode(0o700).create(&at)?,
        Top::File(_) => drop(File::create_new(&at)?),
    }
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(held, "", rustix::fs::CWD, &at, empty)?;
    // Nothing that is mounted on the host later appears in it.
    rustix::mount::mount_change(&at, MountPropagationFlags::PRIVATE)?;
    Ok(Some(at))
}

/// Whether only root and this process's own user could put something else at `path`: then a path may be mounted
/// by its name.
pub(super) fn is_fixed(path: &Path) -> io::Result<bool> {
    let own = rustix::process::geteuid().as_raw();
    let trusted = |uid: u32| uid == 0 || uid == own;
    for (entry, parent) in path.ancestors().zip(path.ancestors().skip(1)) {
        let (entry, parent) = (fs::symlink_metadata(entry)?, fs::symlink_metadata(parent)?);
        let closed = parent.mode() & GROUP_OR_OTHERS_WRITE == 0;
        let sticky = parent.mode() & STICKY != 0 && trusted(entry.uid());
        if !trusted(parent.uid()) || !(closed || sticky) || entry.is_symlink() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::mount::{UnmountFlags, unmount};

    use super::{is_fixed, pin};
    use crate::mounts::walk::Top;
    use crate::tree::Dir;

    #[test]
    fn a_pinned_tree_stays_what_it_was_when_its_name_goes_to_another() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("ours")).unwrap();
        fs::write(at("ours/file"), "ours").unwrap();
        fs::create_dir(at("theirs")).unwrap();
        fs::write(at("theirs/file"), "theirs").unwrap();
        let top = Top::Directory(Dir::open(&at("ours")).unwrap());
        let pinned = pin(&top, &at("pins"), 0).unwrap().unwrap();
        fs::rename(at("ours"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("theirs"), at("ours")).unwrap();
        let seen = fs::read_to_string(pinned.join("file"));
        unmount(&pinned, UnmountFlags::NOFOLLOW).unwrap();
        assert_eq!(seen.unwrap(), "ours");
    }

    #[test]
    fn a_name_that_others_may_give_away_is_not_fixed() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        assert!(is_fixed(&inner).unwrap());
        let mode =
            |mode| fs::set_permissions(dir.path().join("a"), PermissionsExt::from_mode(mode));
        mode(0o777).unwrap();
        assert!(!is_fixed(&inner).unwrap());
        mode(0o755).unwrap();
        std::os::unix::fs::chown(dir.path().join("a"), Some(4321), None).unwrap();
        assert!(!is_fixed(&inner).unwrap());
        std::os::unix::fs::symlink(&inner, dir.path().join("link")).unwrap();
        assert!(!is_fixed(&dir.path().join("link")).unwrap());
    }
}
