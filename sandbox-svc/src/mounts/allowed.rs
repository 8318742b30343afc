//! The manifest's `allowed_paths` as parts of the real workspace: how each is opened, and what in it forbids that a
//! command writes there. Text decides nothing here that the kernel can tell.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use manifest::{Manifest, Mode};
use receipt::{Mount, MountMode};

use crate::engine::WORKSPACE;
use crate::mounts::Guard;
use crate::mounts::walk::{Entry, Top, Unfit, Why, open_directory, special, why};
use crate::refusal::{Reason as Refused, Refusal};
use crate::tree::{Closer, Dir, Kind, Reason, RelPath, Rules, name};

/// How much of a file is looked at for a private key.
const HEAD: u64 = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    File,
    Directory,
}

/// One path of the workspace that a command may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    path: RelPath,
    shape: Shape,
}

/// Every entry as a path; what lies in another one is left out, so that nothing is mounted twice.
pub(super) fn all(entries: &[String]) -> Result<Vec<Allowed>, Refusal> {
    let mut all: Vec<Allowed> = Vec::new();
    for entry in entries {
        let refused = |why| {
            let unfit = Unfit { path: RelPath::root().join(entry.as_bytes()).to_string(), why };
            Refusal::new(Refused::MountUnsafe, unfit)
        };
        // The manifest was read strictly; this only takes apart what it let through.
        manifest::check_allowed_path(entry, Mode::Mount)
            .map_err(|bad| Refusal::new(Refused::MountUnsafe, format!("{entry} {bad}")))?;
        let stem = entry.strip_suffix("/**").or_else(|| entry.strip_suffix('/'));
        let shape = if stem.is_some() { Shape::Directory } else { Shape::File };
        let path = RelPath::parse(stem.unwrap_or(entry).as_bytes())
            .map_err(|_| refused(Why::WholeWorkspace))?;
        all.push(Allowed { path, shape });
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all.dedup();
    let contained = |one: &Allowed| {
        all.iter().any(|other| other.shape == Shape::Directory && one.path.is_below(&other.path))
    };
    Ok(all.iter().filter(|one| !contained(one)).cloned().collect())
}

/// Parts of the workspace that commands change at once, so that no patch holds what they did there.
pub(crate) fn written_directly(manifest: &Manifest) -> Vec<String> {
    match manifest.execution.mode {
        Mode::Snapshot => Vec::new(),
        Mode::Mount => {
            let named = all(&manifest.allowed_paths).unwrap_or_default();
            named.iter().map(Allowed::source).collect()
        }
    }
}

impl Allowed {
    pub(crate) fn path(&self) -> &RelPath {
        &self.path
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn on(&self, host: &Path) -> PathBuf {
        host.join(OsStr::from_bytes(self.path.as_bytes()))
    }

    /// As a person writes it.
    pub(crate) fn source(&self) -> String {
        let path = self.path.to_subject();
        match self.shape {
            Shape::Directory => path + "/",
            Shape::File => path,
        }
    }

    pub(super) fn shown(&self) -> Mount {
        Mount {
            source: self.source(),
            target: format!("{WORKSPACE}/{}", self.path.to_subject()),
            mode: MountMode::Rw,
        }
    }

    /// One component at a time from the workspace on, through no link and onto no other file system.
    pub(super) fn open(&self, host: &Path, guard: Option<&Guard<'_>>) -> Result<Top, Unfit> {
        let failed = |path: &RelPath, why| Unfit { path: path.to_string(), why };
        let root = Dir::open(host).map_err(|_| failed(&RelPath::root(), Why::Failed))?;
        let device = Closer::of_open(&root).map_err(|_| failed(&RelPath::root(), Why::Failed))?;
        let mut here = root;
        let mut path = RelPath::root();
        let mut left = self.path.components().count();
        for name in self.path.components() {
            path = path.join(name);
            left -= 1;
            let unfit = |why| failed(&path, why);
            let seen = here.look_closer(name).map_err(|reason| unfit(why(reason)))?;
            let seen = seen.ok_or_else(|| unfit(Why::Missing))?;
            if seen.is_mount || seen.stamp.device() != device.stamp.device() {
                return Err(unfit(Why::OtherFileSystem));
            }
            special(&seen).map_err(unfit)?;
            if let Some(guard) = guard {
                excluded(&path, &seen, guard).map_err(unfit)?;
            }
            match (seen.meta.kind, left, self.shape) {
                (Kind::Link, ..) => return Err(unfit(Why::Link)),
                (Kind::Directory, 0, Shape::File) => return Err(unfit(Why::Directory)),
                (Kind::Directory, 0, Shape::Directory) => {
                    return Ok(Top::Directory(open_directory(&here, name, &seen).map_err(unfit)?));
                }
                (Kind::Directory, ..) => {
                    here = open_directory(&here, name, &seen).map_err(unfit)?;
                }
                (Kind::File, 0, Shape::File) => {
                    if guard.is_some() {
                        no_private_key(&here, &path, &seen).map_err(unfit)?;
                    }
                    let open = here.open_as_seen(name, &seen.meta);
                    return Ok(Top::File(open.map_err(|reason| unfit(why(reason)))?));
                }
                (Kind::File | Kind::Special, ..) => return Err(unfit(Why::NotADirectory)),
            }
        }
        Err(failed(&self.path, Why::WholeWorkspace))
    }
}

/// What must not be in a tree that a command may write: anything that leads out of it, and anything that is
/// withheld from a private copy.
pub(super) fn judge(entry: &Entry<'_>, guard: &Guard<'_>) -> Result<(), Why> {
    let Entry { path, seen, parent } = entry;
    special(seen)?;
    excluded(path, seen, guard)?;
    match seen.meta.kind {
        Kind::Directory if !guard.user.may_enter(&seen.meta) => Err(Why::Unreadable),
        Kind::File => match parent {
            Some(parent) => no_private_key(parent, path, seen),
            None => Ok(()),
        },
        Kind::Directory | Kind::Link | Kind::Special => Ok(()),
    }
}

fn excluded(path: &RelPath, seen: &Closer, guard: &Guard<'_>) -> Result<(), Why> {
    // Nothing that is like a credential is carried in spite of it where a command writes.
    let rules = Rules {
        read_denied: guard.read_denied,
        own: guard.own,
        before: &Default::default(),
        carry: &Default::default(),
    };
    rules.judge(path, &seen.meta).map(|_| ()).map_err(why)
}

fn no_private_key(parent: &Dir, path: &RelPath, seen: &Closer) -> Result<(), Why> {
    let Some((_, name)) = path.split() else { return Ok(()) };
    let file = parent.open_as_seen(name, &seen.meta).map_err(why)?;
    let mut head = Vec::new();
    std::fs::File::from(file).take(HEAD).read_to_end(&mut head).map_err(|_| Why::Failed)?;
    match name::begins_like_a_private_key(&head) {
        true => Err(Why::Withheld(Reason::SecretContent)),
        false => Ok(()),
    }
}
