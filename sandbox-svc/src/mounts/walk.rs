//! A walk over a tree of the host as it is, entry by entry: its stamps, or the first entry that may not be
//! mounted. It opens no file that the judge does not ask for, and follows no link.

use rustix::fd::OwnedFd;
use rustix::fs::FileType;

use crate::tree::{Closer, Dir, Kind, Reason, RelPath, Stamps};

const DEPTH: usize = 64;

/// Why a path cannot be mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    #[error("does not exist")]
    Missing,
    #[error("is a symbolic link, or is reached through one")]
    Link,
    #[error("is not a directory")]
    NotADirectory,
    #[error("is a directory; write it as dir/ or dir/**")]
    Directory,
    #[error("is the whole workspace")]
    WholeWorkspace,
    #[error("is a mount point or on another file system")]
    OtherFileSystem,
    #[error("has more than one hard link")]
    Linked,
    #[error("is a socket")]
    Socket,
    #[error("is a device")]
    Device,
    #[error("is a named pipe")]
    Pipe,
    #[error("cannot be read by the workspace's owner")]
    Unreadable,
    #[error("is or holds what no command may see: {}", .0.as_str())]
    Withheld(Reason),
    #[error("may be written by everybody on this host")]
    Open,
    #[error("belongs to the user of the command, who could write it")]
    OfTheCommand,
    #[error("makes more than {0} entries; name less, or raise execution.limits.workspace_inodes")]
    Entries(u64),
    #[error("is deeper than {DEPTH} directories")]
    Depth,
    #[error("changed while it was looked at")]
    Raced,
    #[error("could be replaced before the start by someone who may write the directory it is in")]
    Replaceable,
    #[error("cannot be looked at")]
    Failed,
}

/// A path, and why it cannot be mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {why}")]
pub(crate) struct Unfit {
    pub(crate) path: String,
    pub(crate) why: Why,
}

/// What a mount begins with, open.
#[derive(Debug)]
pub(crate) enum Top {
    Directory(Dir),
    File(OwnedFd),
}

/// One entry on the way, before it is opened.
pub(crate) struct Entry<'a> {
    pub(crate) path: &'a RelPath,
    pub(crate) seen: &'a Closer,
    /// The directory that it is in; absent for the top itself.
    pub(crate) parent: Option<&'a Dir>,
}

type Judge<'a> = dyn FnMut(&Entry<'_>) -> Result<(), Why> + 'a;

struct Frame {
    path: RelPath,
    here: Dir,
    names: std::vec::IntoIter<Vec<u8>>,
}

/// The stamps of everything from `top` on, which is called `at`.
pub(crate) fn walk(
    top: &Top,
    at: &RelPath,
    most: u64,
    judge: &mut Judge<'_>,
) -> Result<Stamps, Unfit> {
    let mut stamps = Stamps::default();
    let unfit = |path: &RelPath, why| Unfit { path: path.to_string(), why };
    let failed = |_| unfit(at, Why::Failed);
    let seen = match top {
        Top::Directory(dir) => Closer::of_open(dir).map_err(failed)?,
        Top::File(file) => Closer::of_open(file).map_err(failed)?,
    };
    judge(&Entry { path: at, seen: &seen, parent: None }).map_err(|why| unfit(at, why))?;
    stamps.insert(at.clone(), seen.stamp);
    let Top::Directory(dir) = top else { return Ok(stamps) };
    let device = seen.stamp.device();
    let here = dir.descend(&RelPath::root()).map_err(|_| unfit(at, Why::Failed))?;
    let mut stack = vec![frame(at.clone(), here)?];
    loop {
        let depth = stack.len();
        let Some(Frame { path: parent, here, names }) = stack.last_mut() else { break };
        let Some(name) = names.next() else {
            stack.pop();
            continue;
        };
        let path = parent.join(&name);
        let unfit = |why| Unfit { path: path.to_string(), why };
        if u64::try_from(stamps.len()).unwrap_or(u64::MAX) >= most {
            return Err(unfit(Why::Entries(most)));
        }
        let seen = here.look_closer(&name).map_err(|reason| unfit(why(reason)))?;
        let seen = seen.ok_or_else(|| unfit(Why::Raced))?;
        if seen.is_mount || seen.stamp.device() != device {
            return Err(unfit(Why::OtherFileSystem));
        }
        judge(&Entry { path: &path, seen: &seen, parent: Some(here) }).map_err(unfit)?;
        stamps.insert(path.clone(), seen.stamp);
        if seen.meta.kind == Kind::Directory {
            if depth >= DEPTH {
                return Err(unfit(Why::Depth));
            }
            let below = open_directory(here, &name, &seen).map_err(unfit)?;
            stack.push(frame(path, below)?);
        }
    }
    Ok(stamps)
}

fn frame(path: RelPath, here: Dir) -> Result<Frame, Unfit> {
    match here.names(usize::MAX) {
        Ok(names) => Ok(Frame { path, here, names: names.unwrap_or_default().into_iter() }),
        Err(reason) => Err(Unfit { path: path.to_string(), why: why(reason) }),
    }
}

/// What opened is what was seen.
pub(crate) fn open_directory(parent: &Dir, name: &[u8], seen: &Closer) -> Result<Dir, Why> {
    let open = parent.open_directory(name).map_err(why)?;
    let now = Closer::of_open(&open).map_err(|_| Why::Failed)?;
    match now.stamp.is_same_entry(&seen.stamp) {
        true => Ok(open),
        false => Err(Why::Raced),
    }
}

/// Sockets, devices and pipes are usable through any mount, also one for reading only.
pub(crate) fn special(seen: &Closer) -> Result<(), Why> {
    match seen.stamp.file_type() {
        FileType::Socket => Err(Why::Socket),
        FileType::CharacterDevice | FileType::BlockDevice => Err(Why::Device),
        FileType::Fifo => Err(Why::Pipe),
        FileType::Unknown => Err(Why::Failed),
        FileType::RegularFile | FileType::Directory | FileType::Symlink => Ok(()),
    }
}

pub(crate) fn why(reason: Reason) -> Why {
    match reason {
        Reason::OtherFileSystem => Why::OtherFileSystem,
        Reason::Raced => Why::Raced,
        Reason::Linked => Why::Linked,
        Reason::SecretName
        | Reason::SecretContent
        | Reason::GitMetadata
        | Reason::ServiceState
        | Reason::ReadDenied
        | Reason::WithheldBefore
        | Reason::HoldsWithheld => Why::Withheld(reason),
        _ => Why::Failed,
    }
}
