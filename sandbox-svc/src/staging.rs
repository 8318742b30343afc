//! Where private copies live on the host, and the proof that they are gone: a tmpfs per run with limits of
//! its own, or plain directories. It never looks into a copy.

use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use event::id::{CallId, RunId};
use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::config::StagingKind;
use crate::tree::{Dir, Kind};

/// The first user of the containers; a slot is added.
const FIRST_USER: u32 = 200_000;
const ENVIRONMENTS: &str = "environments";
/// How long a mount may be busy that nothing of ours uses any more.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Makes and removes the places of one service.
#[derive(Debug, Clone)]
pub(crate) struct Staging {
    kind: StagingKind,
    root: PathBuf,
}

/// One run's directories.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    kind: StagingKind,
    root: PathBuf,
}

/// What a copy may grow to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl Staging {
    /// Makes the root below the state directory, and tries what the kind needs.
    pub(crate) fn open(kind: StagingKind, state_dir: &Path) -> io::Result<Self> {
        let root = state_dir.join(ENVIRONMENTS);
        private_directory(&root)?;
        let staging = Self { kind, root };
        if kind == StagingKind::HostTmpfs {
            let probe = Place { kind, root: staging.root.join("probe") };
            probe.remove()?;
            probe.make(owner_of(kind, 0), Size { bytes: 1 << 16, inodes: 8 })?;
            probe.remove()?;
        }
        Ok(staging)
    }

    /// What an earlier process left, without trying anything.
    pub(crate) fn found(kind: StagingKind, state_dir: &Path) -> Self {
        Self { kind, root: state_dir.join(ENVIRONMENTS) }
    }

    pub(crate) fn kind(&self) -> StagingKind {
        self.kind
    }

    pub(crate) fn place(&self, run: RunId, kind: StagingKind) -> Place {
        Place { kind, root: self.root.join(run.as_uuid().simple().to_string()) }
    }

    /// Directories that belong to no run of `known`: leftovers of a start that never was.
    pub(crate) fn strangers(&self, known: &[RunId]) -> io::Result<Vec<Place>> {
        let known: Vec<_> = known.iter().map(|run| self.place(*run, self.kind).root).collect();
        let mut strangers = Vec::new();
        let listed = match fs::read_dir(&self.root) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(strangers),
            Err(error) => return Err(error),
        };
        for entry in listed {
            let root = entry?.path();
            if !known.contains(&root) {
                strangers.push(Place { kind: self.kind, root });
            }
        }
        Ok(strangers)
    }
}

/// Whose a copy is: one user per slot, or ourselves where we may not give files away.
pub(crate) fn owner_of(kind: StagingKind, slot: u32) -> u32 {
    let own = rustix::process::geteuid().as_raw();
    match kind {
        StagingKind::Dirs if own != 0 => own,
        StagingKind::Dirs | StagingKind::HostTmpfs => FIRST_USER.saturating_add(slot),
    }
}

impl Place {
    /// The copy, which becomes the container's working directory.
    pub(crate) fn copy(&self) -> PathBuf {
        self.root.join("copy")
    }

    /// The bytes of the base, which no container sees.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("base")
    }

    /// Trees of the host that are held for a command.
    pub(crate) fn mounts(&self) -> PathBuf {
        self.root.join("mounts")
    }

    /// The container's `/tmp`, for an engine whose own has no limit on entries. Made anew for each command.
    pub(crate) fn make_tmp(&self, bytes: u64, inodes: u64) -> io::Result<PathBuf> {
        let tmp = self.root.join("tmp");
        private_directory(&tmp)?;
        let options = CString::new(format!("size={bytes},nr_inodes={inodes},mode=1777"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("tmpfs", &tmp, "tmpfs", flags, options.as_c_str())?;
        Ok(tmp)
    }

    pub(crate) fn remove_tmp(&self) -> io::Result<()> {
        let tmp = self.root.join("tmp");
        unmount_below(&tmp)
    }

    /// Files that edits took out of the copy, or are about to write, by digest; no container sees them.
    pub(crate) fn kept(&self) -> io::Result<PathBuf> {
        let path = self.root.join("kept");
        private_directory(&path)?;
        Ok(path)
    }

    /// Where the broker of a call's attempt has its socket.
    pub(crate) fn egress(&self, call: CallId, attempt: u32) -> PathBuf {
        self.root.join(format!("egress-{}a{attempt}", call.as_uuid().simple()))
    }

    pub(crate) fn make(&self, owner: u32, size: Size) -> io::Result<()> {
        private_directory(&self.root)?;
        private_directory(&self.blobs())?;
        private_directory(&self.copy())?;
        match self.kind {
            StagingKind::HostTmpfs => self.mount(owner, size),
            StagingKind::Dirs if owner == rustix::process::geteuid().as_raw() => Ok(()),
            StagingKind::Dirs => {
                let copy = Dir::open(&self.copy())?;
                Ok(rustix::fs::fchown(
                    &copy,
                    Some(Uid::from_raw(owner)),
                    Some(Gid::from_raw(owner)),
                )?)
            }
        }
    }

    /// The directory below stays private to us, so that a mount that an engine does not see is an error
    /// there and not a directory without limits.
    fn mount(&self, owner: u32, size: Size) -> io::Result<()> {
        let options = format!(
            "size={},nr_inodes={},uid={owner},gid={owner},mode=0700",
            size.bytes, size.inodes
        );
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        Ok(rustix::mount::mount("tmpfs", self.copy(), "tmpfs", flags, options.as_c_str())?)
    }

    /// Whether the copy is where it was made.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        Ok(match self.kind {
            StagingKind::HostTmpfs => mounts_below(&self.root)?.contains(&self.copy()),
            StagingKind::Dirs => self.copy().is_dir(),
        })
    }

    /// Removes everything; succeeds when nothing is left, proven by another look. May be repeated.
    pub(crate) fn remove(&self) -> io::Result<()> {
        unmount_below(&self.root)?;
        if !mounts_below(&self.root)?.is_empty() {
            return Err(io::Error::other("a mount of the environment is still there"));
        }
        match Dir::open(&self.root) {
            Ok(root) => empty(&root)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        fs::remove_dir(&self.root)
    }
}

/// Deepest first. A mount is busy for a moment after its last user: a child that is being started has every open file
/// of this process until it runs its own program.
fn unmount_below(root: &Path) -> io::Result<()> {
    for mount in mounts_below(root)?.into_iter().rev() {
        let until = Instant::now() + PATIENCE;
        loop {
            match rustix::mount::unmount(&mount, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => break,
                Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn private_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Removes what is in the directory, by descriptor, without following anything.
fn empty(root: &Dir) -> io::Result<()> {
    let unreadable = |_| io::Error::other("a directory of the environment cannot be read");
    let names = |dir: &Dir| -> io::Result<Vec<Vec<u8>>> {
        // Its modes are a command's choice.
        rustix::fs::fchmod(dir, Mode::RWXU)?;
        Ok(dir.names(usize::MAX).map_err(unreadable)?.unwrap_or_default())
    };
    let here = root.descend(&crate::tree::RelPath::root()).map_err(unreadable)?;
    let mut stack = vec![(Vec::new(), names(&here)?, here)];
    while let Some((own, left, here)) = stack.last_mut() {
        let Some(name) = left.pop() else {
            let own = std::mem::take(own);
            stack.pop();
            if let Some((_, _, parent)) = stack.last() {
                rustix::fs::unlinkat(parent, own.as_slice(), AtFlags::REMOVEDIR)?;
            }
            continue;
        };
        match here.look(&name).map_err(unreadable)?.map(|meta| meta.kind) {
            Some(Kind::Directory) => {
                rustix::fs::chmodat(&*here, name.as_slice(), Mode::RWXU, AtFlags::empty())?;
                let below = here.open_directory(&name).map_err(unreadable)?;
                stack.push((name, names(&below)?, below));
            }
            Some(Kind::File | Kind::Link | Kind::Special) => {
                rustix::fs::unlinkat(&*here, name.as_slice(), AtFlags::empty())?;
            }
            None => (),
        }
    }
    Ok(())
}

/// Mount points at or below `root`, as the kernel lists them.
pub(crate) fn mounts_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let text = fs::read("/proc/self/mountinfo")?;
    let points = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(point))))
    });
    Ok(points.filter(|point| point.starts_with(&root)).collect())
}

/// mountinfo writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Names the present boot of the host.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use event::id::RunId;

    use super::{Size, Staging, mounts_below, unescape};
    use crate::config::StagingKind;

    const SIZE: Size = Size { bytes: 1 << 20, inodes: 64 };

    #[test]
    fn a_tmpfs_has_limits_and_leaves_nothing_behind() {
        let state = tempfile::tempdir().unwrap();
        let staging = Staging::open(StagingKind::HostTmpfs, state.path()).unwrap();
        let place = staging.place(RunId::new(), StagingKind::HostTmpfs);
        place.make(200_007, SIZE).unwrap();
        assert!(place.is_there().unwrap());
        assert_eq!(fs::metadata(place.copy()).unwrap().uid(), 200_007);
        assert!(fs::write(place.copy().join("big"), vec![1; 2 << 20]).is_err());
        let made = (0..100).take_while(|n| fs::write(place.copy().join(n.to_string()), "").is_ok());
        assert!(made.count() < 64);
        place.remove().unwrap();
        assert!(!place.root.exists());
        assert_eq!(mounts_below(state.path()).unwrap().len(), 0);
        place.remove().unwrap();
    }

    #[test]
    fn a_mount_that_is_busy_for_a_moment_is_waited_for_and_no_longer() {
        let state = tempfile::tempdir().unwrap();
        let staging = Staging::open(StagingKind::HostTmpfs, state.path()).unwrap();
        let place = staging.place(RunId::new(), StagingKind::HostTmpfs);
        place.make(200_007, SIZE).unwrap();
        let holding = |seconds: &str| {
            let copy = fs::File::open(place.copy()).unwrap();
            std::process::Command::new("sleep").arg(seconds).stdin(copy).spawn().unwrap()
        };
        let mut child = holding("60");
        assert!(place.remove().is_err());
        assert!(place.is_there().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut child = holding("0.3");
        place.remove().unwrap();
        assert!(!place.root.exists());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_plain_directory_is_emptied_without_following_anything() {
        let (state, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "x").unwrap();
        let staging = Staging::open(StagingKind::Dirs, state.path()).unwrap();
        let place = staging.place(RunId::new(), StagingKind::Dirs);
        place.make(200_000, SIZE).unwrap();
        fs::create_dir_all(place.copy().join("a/b/c")).unwrap();
        fs::write(place.copy().join("a/b/x"), "x").unwrap();
        symlink(outside.path(), place.copy().join("a/out")).unwrap();
        fs::set_permissions(place.copy().join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        place.remove().unwrap();
        assert!(!place.root.exists());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn strangers_are_what_no_run_owns() {
        let state = tempfile::tempdir().unwrap();
        let staging = Staging::open(StagingKind::Dirs, state.path()).unwrap();
        let (known, unknown) = (RunId::new(), RunId::new());
        for run in [known, unknown] {
            staging.place(run, StagingKind::Dirs).make(0, SIZE).unwrap();
        }
        let strangers = staging.strangers(&[known]).unwrap();
        let roots: Vec<_> = strangers.iter().map(|place| place.root.clone()).collect();
        assert_eq!(roots, [staging.place(unknown, StagingKind::Dirs).root]);
    }

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescape(br"/a\040b\134\011"), b"/a b\\\t");
        assert_eq!(unescape(br"/a\04"), br"/a\04");
    }
}
