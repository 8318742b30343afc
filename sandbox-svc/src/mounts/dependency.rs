//! Trees of this host that commands may read, by name: where each is, and whether it may be mounted. They are the
//! operator's; nothing here ever makes one writable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::engine::User;
use crate::mounts::walk::{Entry, Top, Unfit, Why, special, walk};
use crate::tree::{Closer, Dir, Kind, Reason, RelPath};

/// Where commands find them.
pub(crate) const DEPENDENCIES: &str = "/dependencies";
/// More than any package store that is read as a whole.
const ENTRIES: u64 = 2_000_000;
const WORLD_WRITE: u32 = 0o002;

/// A named tree that commands may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not NAME=DIR with a name of 1 to 128 of a-z A-Z 0-9 . _ - that begins with a letter or digit, and an \
     absolute directory"
)]
pub struct NotADependency;

impl FromStr for Dependency {
    type Err = NotADependency;

    fn from_str(text: &str) -> Result<Self, NotADependency> {
        let (name, dir) = text.split_once('=').ok_or(NotADependency)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        let dir = PathBuf::from(dir);
        if begins && name.len() <= 128 && name.bytes().all(plain) && dir.is_absolute() {
            Ok(Self { name: name.to_owned(), dir })
        } else {
            Err(NotADependency)
        }
    }
}

/// The trees of the configuration, each by the real path that it had at the start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies(BTreeMap<String, PathBuf>);

impl Dependencies {
    /// All that is wrong with what is configured. `private` are the service's own directories.
    pub(crate) fn open(given: &[Dependency], private: &[&Path]) -> Result<Self, Vec<String>> {
        let (mut all, mut faults) = (BTreeMap::new(), Vec::new());
        for Dependency { name, dir } in given {
            let fault = |what: &str| format!("--dependency {name}={}: {what}", dir.display());
            match real(dir, private) {
                Ok(real) => {
                    if all.insert(name.clone(), real).is_some() {
                        faults.push(fault("the name is given twice; give each tree its own"));
                    }
                }
                Err(what) => faults.push(fault(what)),
            }
        }
        if faults.is_empty() { Ok(Self(all)) } else { Err(faults) }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Path> {
        self.0.get(name).map(PathBuf::as_path)
    }
}

fn real(dir: &Path, private: &[&Path]) -> Result<PathBuf, &'static str> {
    let Ok(real) = dir.canonicalize() else {
        return Err("cannot be read; make the directory or correct the path");
    };
    if !real.is_dir() {
        return Err("not a directory; name one");
    }
    if real == Path::new("/") {
        return Err("the whole host; name one tree");
    }
    if real.to_str().is_none() {
        return Err("its path is not text; use another");
    }
    for own in private {
        let own = own.canonicalize().unwrap_or_else(|_| (*own).to_owned());
        if real.starts_with(&own) || own.starts_with(&real) {
            return Err("it meets the service's own directories; keep them apart");
        }
    }
    Ok(real)
}

/// Opens the tree by its real path, which must still be one.
pub(super) fn open(name: &str, dir: &Path) -> Result<Top, Unfit> {
    let unfit = |why| Unfit { path: name.to_owned(), why };
    if dir.canonicalize().map_err(|_| unfit(Why::Missing))? != dir {
        return Err(unfit(Why::Link));
    }
    Ok(Top::Directory(Dir::open(dir).map_err(|_| unfit(Why::Failed))?))
}

/// Nobody but its operator may be able to change it, whatever the mount says. Where the service runs as nobody else
/// than the command does, they are the operator.
pub(super) fn may_be_read(dir: &Dir, user: User) -> Result<(), Why> {
    let meta = dir.meta().map_err(|_| Why::Failed)?;
    if meta.mode & WORLD_WRITE != 0 {
        return Err(Why::Open);
    }
    let own = rustix::process::geteuid().as_raw();
    match meta.uid == user.uid && user.uid != own {
        true => Err(Why::OfTheCommand),
        false => Ok(()),
    }
}

/// Looks at all of it: nothing mounted inside, nothing that works through a mount for reading, nothing that anybody
/// may change, nothing of this service. Blocks.
pub(crate) fn inspect(name: &str, dir: &Path, own: &[(u64, u64)]) -> Result<(), Unfit> {
    let top = open(name, dir)?;
    let mut judge = |entry: &Entry<'_>| {
        let Closer { meta, .. } = entry.seen;
        special(entry.seen)?;
        if own.contains(&meta.identity()) {
            return Err(Why::Withheld(Reason::ServiceState));
        }
        let open = meta.kind != Kind::Link && meta.mode & WORLD_WRITE != 0;
        if open { Err(Why::Open) } else { Ok(()) }
    };
    let at = RelPath::parse(name.as_bytes()).unwrap_or_default();
    walk(&top, &at, ENTRIES, &mut judge).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::{Dependencies, Dependency, inspect};
    use crate::tree::Dir;

    #[test]
    fn a_dependency_has_a_plain_name_and_an_absolute_directory() {
        let parsed = "rust-1.0=/srv/deps".parse();
        assert_eq!(parsed, Ok(Dependency { name: "rust-1.0".into(), dir: "/srv/deps".into() }));
        for text in ["", "x", "=/srv", "..=/srv", ".=/srv", "-x=/srv", "a/b=/srv", "x=srv", "x="] {
            assert!(text.parse::<Dependency>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_meets_the_service_or_is_no_directory_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("state/in")).unwrap();
        fs::create_dir_all(at("deps")).unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("state"), at("link")).unwrap();
        let state = at("state");
        let faults = |dirs: &[&Path]| {
            let given = dirs.iter().map(|dir| Dependency { name: "x".into(), dir: dir.into() });
            let given: Vec<_> = given.collect();
            Dependencies::open(&given, &[&state]).map_or_else(|faults| faults.len(), |_| 0)
        };
        assert_eq!(faults(&[&at("deps")]), 0);
        assert_eq!(faults(&[&at("deps"), &at("deps")]), 1);
        for name in ["state", "state/in", "link", "link/in", "", "file", "absent"] {
            assert_eq!(faults(&[&at(name)]), 1, "{name}");
        }
        assert_eq!(faults(&[Path::new("/")]), 1);
    }

    #[test]
    fn only_a_quiet_tree_of_the_operator_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = |name: &str| [Dir::open(&at(name)).unwrap().meta().unwrap().identity()];
        fs::create_dir_all(at("deps/lib")).unwrap();
        fs::write(at("deps/lib/a"), "a").unwrap();
        fs::hard_link(at("deps/lib/a"), at("deps/b")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("deps/link")).unwrap();
        let said = |own: &[(u64, u64)]| inspect("x", &at("deps"), own).map_err(|e| e.to_string());
        assert_eq!(said(&[]), Ok(()));
        assert_eq!(
            said(&own("deps/lib")),
            Err("x/lib is or holds what no command may see: service_state".to_owned())
        );

        let mode = |mode| fs::set_permissions(at("deps/lib/a"), PermissionsExt::from_mode(mode));
        mode(0o646).unwrap();
        assert_eq!(said(&[]), Err("x/b may be written by everybody on this host".to_owned()));
        mode(0o644).unwrap();

        let socket = UnixListener::bind(at("deps/lib/engine.sock")).unwrap();
        assert_eq!(said(&[]), Err("x/lib/engine.sock is a socket".to_owned()));
        drop(socket);
        fs::remove_file(at("deps/lib/engine.sock")).unwrap();

        let flags = rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("tmpfs", at("deps/lib"), "tmpfs", flags, None).unwrap();
        let refused = said(&[]);
        rustix::mount::unmount(at("deps/lib"), rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
        assert_eq!(refused, Err("x/lib is a mount point or on another file system".to_owned()));

        std::os::unix::fs::symlink(at("deps"), at("link")).unwrap();
        let refused = inspect("x", &at("link"), &[]).unwrap_err().to_string();
        assert_eq!(refused, "x is a symbolic link, or is reached through one");
    }
}
