//! Trees of the host that a command gets beside its private copy, or in place of parts of it: which, whether they may
//! be mounted, and that what is mounted is what was looked at. It writes to none of them.

pub(crate) mod allowed;
pub(crate) mod dependency;
mod pin;
pub(crate) mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use event::Digest;
use manifest::{Manifest, Mode};
use receipt::{Mount, MountMode};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::config::StagingKind;
use crate::engine::{Bind, User};
use crate::error::Error;
use crate::mounts::allowed::{Allowed, Shape};
use crate::mounts::dependency::{DEPENDENCIES, Dependencies};
use crate::mounts::walk::{Top, Unfit, Why, walk};
use crate::refusal::{Reason, Refusal};
use crate::staging::mounts_below;
use crate::tree::inventory::put;
use crate::tree::stamp::Changes;
use crate::tree::{Closer, Dir, RelPath, Stamps};

const DOMAIN: &str = "harness.mounts.v1";

/// A tree that the manifest names, by where it is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    source: Source,
    pub(crate) shown: Mount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Dependency { name: String, dir: PathBuf },
    Workspace { host: PathBuf, allowed: Allowed },
}

/// What decides whether a tree may be mounted for a run.
pub(crate) struct Guard<'a> {
    /// Whom the command runs as.
    pub(crate) user: User,
    /// Entries in all writable mounts together.
    pub(crate) most: u64,
    /// The service's own directories.
    pub(crate) own: &'a [(u64, u64)],
    pub(crate) read_denied: &'a (dyn Fn(&RelPath) -> bool + Sync),
}

/// What is mounted, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) digest: Digest,
    /// Of the workspace's own entries.
    pub(crate) stamps: Stamps,
}

/// Trees that are held for one command.
#[derive(Debug)]
pub(crate) struct Held(Vec<Holding>);

#[derive(Debug)]
struct Holding {
    wanted: Wanted,
    /// What the engine is told: a pin, or the path itself where that cannot change.
    source: PathBuf,
    stamps: Stamps,
}

/// Whom commands run as where they write the workspace itself: its owner, who is not root.
pub(crate) fn owner(host: &Path, kind: StagingKind) -> Result<User, Error> {
    let refused = |reason, detail: &str| Error::Session { reason, detail: detail.to_owned() };
    let meta = Dir::open(host).and_then(|dir| dir.meta());
    let meta = meta.map_err(Error::file("the workspace cannot be opened", host))?;
    if meta.uid == 0 {
        let detail = "the workspace belongs to root, and no command of mode mount runs as root";
        return Err(refused("WORKSPACE_OF_ROOT", detail));
    }
    let own = rustix::process::geteuid().as_raw();
    if kind == StagingKind::Dirs && own != 0 && own != meta.uid {
        let detail =
            "this service may not make the private copy the workspace owner's; use snapshot";
        return Err(refused("MODE_UNSUPPORTED", detail));
    }
    Ok(User { uid: meta.uid, gid: meta.gid })
}

/// Everything that the manifest has mounted, in the order of the plan.
pub(crate) fn wanted(
    manifest: &Manifest,
    host: &Path,
    dependencies: &Dependencies,
) -> Result<Vec<Wanted>, Refusal> {
    let mut all = Vec::new();
    for name in manifest.execution.dependencies.iter().collect::<BTreeSet<_>>() {
        let dir = dependencies.get(name).ok_or_else(|| {
            Refusal::new(Reason::DependencyUnknown, format!("this host has no dependency {name}"))
        })?;
        let target = format!("{DEPENDENCIES}/{name}");
        all.push(Wanted {
            source: Source::Dependency { name: name.clone(), dir: dir.to_owned() },
            shown: Mount { source: name.clone(), target, mode: MountMode::Ro },
        });
    }
    if manifest.execution.mode == Mode::Mount {
        for allowed in allowed::all(&manifest.allowed_paths)? {
            let shown = allowed.shown();
            let source = Source::Workspace { host: host.to_owned(), allowed };
            all.push(Wanted { source, shown });
        }
    }
    Ok(all)
}

/// Looks at all of them; the first that may not be mounted refuses them all. Blocks.
pub(crate) fn look(all: &[Wanted], guard: &Guard<'_>) -> Result<Looked, Refusal> {
    let mut stamps = Stamps::default();
    let mut each = Vec::new();
    for wanted in all {
        let left = guard.most.saturating_sub(u64::try_from(stamps.len()).unwrap_or(u64::MAX));
        let own = wanted.look(guard, left).map_err(|unfit| wanted.refusal(&unfit))?;
        each.push((wanted, own.digest()));
        if wanted.allowed().is_some() {
            stamps.extend(own);
        }
    }
    Ok(Looked { digest: digest(each.iter().map(|(wanted, digest)| (*wanted, *digest))), stamps })
}

/// Holds all of them below `place`; they must be what was planned. Blocks.
pub(crate) fn hold(all: Vec<Wanted>, planned: Digest, place: &Path) -> Result<Held, Refusal> {
    let mut holdings = Vec::new();
    for (number, wanted) in all.into_iter().enumerate() {
        match wanted.hold(place, number) {
            Ok(holding) => holdings.push(holding),
            Err(unfit) => return Err(wanted.refusal(&unfit)),
        }
    }
    let each = holdings.iter().map(|holding| (&holding.wanted, holding.stamps.digest()));
    match digest(each) == planned {
        true => Ok(Held(holdings)),
        false => Err(Reason::MountChanged.into()),
    }
}

/// Lets go of everything that was held below `place`; succeeds when nothing is left. May be repeated. Blocks.
pub(crate) fn release(place: &Path) -> io::Result<()> {
    for mount in mounts_below(place)?.into_iter().rev() {
        match rustix::mount::unmount(&mount, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => (),
            Err(error) => return Err(error.into()),
        }
    }
    if !mounts_below(place)?.is_empty() {
        return Err(io::Error::other("a tree that was held for a command is still mounted"));
    }
    let listed = match fs::read_dir(place) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in listed {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir(place)
}

fn digest<'a>(each: impl Iterator<Item = (&'a Wanted, Digest)>) -> Digest {
    let mut bytes = Vec::new();
    for (wanted, digest) in each {
        put(&mut bytes, wanted.shown.target.as_bytes());
        put(&mut bytes, digest.as_bytes());
    }
    Digest::of_parts(DOMAIN, &bytes)
}

impl Wanted {
    /// The part of the workspace that it is, if it is one.
    pub(crate) fn allowed(&self) -> Option<&Allowed> {
        match &self.source {
            Source::Dependency { .. } => None,
            Source::Workspace { allowed, .. } => Some(allowed),
        }
    }

    fn look(&self, guard: &Guard<'_>, most: u64) -> Result<Stamps, Unfit> {
        let (top, at) = self.open(Some(guard))?;
        match &self.source {
            Source::Dependency { .. } => alone(&top, &at),
            Source::Workspace { .. } => {
                walk(&top, &at, most, &mut |entry| allowed::judge(entry, guard))
            }
        }
    }

    fn hold(&self, place: &Path, number: usize) -> Result<Holding, Unfit> {
        let (top, at) = self.open(None)?;
        let unfit = |why| Unfit { path: at.to_string(), why };
        let pinned = pin::pin(&top, place, number).map_err(|_| unfit(Why::Failed))?;
        let source = match pinned {
            Some(pinned) => pinned,
            None => {
                let path = self.path();
                match pin::is_fixed(&path).map_err(|_| unfit(Why::Failed))? {
                    true => path,
                    false => return Err(unfit(Why::Replaceable)),
                }
            }
        };
        let stamps = self.stamps(&source, &at)?;
        Ok(Holding { wanted: self.clone(), source, stamps })
    }

    /// As it is at `source`, without judging it again: what is the same may be mounted.
    fn stamps(&self, source: &Path, at: &RelPath) -> Result<Stamps, Unfit> {
        let failed = |_| Unfit { path: at.to_string(), why: Why::Failed };
        let top = match self.allowed().map(Allowed::shape) {
            Some(Shape::File) => Top::File(fs::File::open(source).map_err(failed)?.into()),
            Some(Shape::Directory) | None => Top::Directory(Dir::open(source).map_err(failed)?),
        };
        match &self.source {
            Source::Dependency { .. } => alone(&top, at),
            Source::Workspace { .. } => walk(&top, at, u64::MAX, &mut |_| Ok(())),
        }
    }

    /// By its name, and what its entries are called.
    fn open(&self, guard: Option<&Guard<'_>>) -> Result<(Top, RelPath), Unfit> {
        match &self.source {
            Source::Workspace { host, allowed } => {
                Ok((allowed.open(host, guard)?, allowed.path().clone()))
            }
            Source::Dependency { name, dir } => {
                let top = dependency::open(name, dir)?;
                if let (Some(guard), Top::Directory(dir)) = (guard, &top) {
                    let why = dependency::may_be_read(dir, guard.user).err();
                    if let Some(why) = why {
                        return Err(Unfit { path: name.clone(), why });
                    }
                }
                Ok((top, RelPath::parse(name.as_bytes()).unwrap_or_default()))
            }
        }
    }

    fn path(&self) -> PathBuf {
        match &self.source {
            Source::Dependency { dir, .. } => dir.clone(),
            Source::Workspace { host, allowed } => allowed.on(host),
        }
    }

    fn refusal(&self, unfit: &Unfit) -> Refusal {
        let reason = match (&self.source, &unfit.why) {
            (Source::Dependency { .. }, _) => Reason::DependencyUnsafe,
            (_, Why::Missing) => Reason::MountNotFound,
            (_, Why::Raced) => Reason::MountChanged,
            (_, Why::Withheld(_)) => Reason::MountWithheld,
            _ => Reason::MountUnsafe,
        };
        Refusal::new(reason, unfit)
    }
}

impl Held {
    pub(crate) fn binds(&self) -> impl Iterator<Item = Bind> {
        self.0.iter().map(|Holding { wanted, source, .. }| Bind {
            source: source.clone(),
            target: wanted.shown.target.clone(),
            mode: wanted.shown.mode,
        })
    }

    /// Whether everything still is what was held, under its name too. Blocks.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for Holding { wanted, source, stamps } in &self.0 {
            let changed = || Refusal::from(Reason::MountChanged);
            let (top, at) = wanted.open(None).map_err(|unfit| wanted.refusal(&unfit))?;
            let by_name = alone(&top, &at).map_err(|_| changed())?;
            let same = by_name.iter().all(|(path, stamp)| stamps.get(path) == Some(stamp));
            let now = wanted.stamps(source, &at).map_err(|_| changed())?;
            if !same || now != *stamps {
                return Err(changed());
            }
        }
        Ok(())
    }

    /// What has happened in the workspace's own trees since they were held. Blocks.
    pub(crate) fn changes(&self) -> Result<Changes, Unfit> {
        let (mut before, mut after) = (Stamps::default(), Stamps::default());
        for Holding { wanted, source, stamps } in &self.0 {
            if let Some(allowed) = wanted.allowed() {
                before.extend(stamps.clone());
                after.extend(wanted.stamps(source, allowed.path())?);
            }
        }
        Ok(before.changes(&after))
    }
}

/// The stamp of the top and of nothing in it.
fn alone(top: &Top, at: &RelPath) -> Result<Stamps, Unfit> {
    let seen = match top {
        Top::Directory(dir) => Closer::of_open(dir),
        Top::File(file) => Closer::of_open(file),
    };
    let seen = seen.map_err(|_| Unfit { path: at.to_string(), why: Why::Failed })?;
    let mut stamps = Stamps::default();
    stamps.insert(at.clone(), seen.stamp);
    Ok(stamps)
}
