//! What the kernel keeps of an entry, so that any change to it shows, and the same of a whole tree by path. It
//! holds no contents and reads nothing.

use std::collections::BTreeMap;

use event::Digest;
use rustix::fs::{FileType, RawMode, Statx};

use crate::tree::RelPath;
use crate::tree::inventory::put;

const DOMAIN: &str = "harness.stamps.v1";

/// Device, inode, type and mode, links, owner, group, the device that it stands for, size, and the times of its
/// last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: (u32, u32),
    inode: u64,
    mode: u16,
    links: u32,
    uid: u32,
    gid: u32,
    stands_for: (u32, u32),
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Stamp {
    pub(crate) fn of(stat: &Statx) -> Self {
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            mode: stat.stx_mode,
            links: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            stands_for: (stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(RawMode::from(self.mode))
    }

    /// Whether it is the same entry, whatever has happened to it.
    pub(crate) fn is_same_entry(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let Self { device, inode, mode, links, uid, gid, stands_for, size, modified, changed } =
            self;
        for number in [device.0, device.1, *links, *uid, *gid, stands_for.0, stands_for.1] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&inode.to_be_bytes());
        bytes.extend_from_slice(&mode.to_be_bytes());
        bytes.extend_from_slice(&size.to_be_bytes());
        for (seconds, nanoseconds) in [modified, changed] {
            bytes.extend_from_slice(&seconds.to_be_bytes());
            bytes.extend_from_slice(&nanoseconds.to_be_bytes());
        }
    }
}

/// The stamps of a tree, its own first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stamps(BTreeMap<RelPath, Stamp>);

/// What differs between two looks at a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    pub(crate) created: Vec<RelPath>,
    pub(crate) changed: Vec<RelPath>,
    pub(crate) removed: Vec<RelPath>,
}

impl Stamps {
    pub(crate) fn insert(&mut self, path: RelPath, stamp: Stamp) {
        self.0.insert(path, stamp);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, path: &RelPath) -> Option<&Stamp> {
        self.0.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RelPath, &Stamp)> {
        self.0.iter()
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        for (path, stamp) in &self.0 {
            put(&mut bytes, path.as_bytes());
            stamp.encode(&mut bytes);
        }
        Digest::of_parts(DOMAIN, &bytes)
    }

    /// An entry that was replaced by another of its name has changed.
    pub(crate) fn changes(&self, after: &Self) -> Changes {
        let missing = |of: &Self, path: &RelPath| !of.0.contains_key(path);
        let paths = |keep: &dyn Fn(&RelPath, &Stamp) -> bool, of: &Self| {
            let kept = of.0.iter().filter(|(path, stamp)| keep(path, stamp));
            kept.map(|(path, _)| path.clone()).collect()
        };
        Changes {
            created: paths(&|path, _| missing(self, path), after),
            changed: paths(&|path, new| self.0.get(path).is_some_and(|old| old != new), after),
            removed: paths(&|path, _| missing(after, path), self),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Changes, Stamps};
    use crate::tree::{Dir, RelPath};

    fn stamps(dir: &Dir) -> Stamps {
        let mut stamps = Stamps::default();
        for name in dir.names(10).unwrap().unwrap() {
            let seen = dir.look_closer(&name).unwrap().unwrap();
            stamps.insert(RelPath::root().join(&name), seen.stamp);
        }
        stamps
    }

    #[test]
    fn every_change_shows_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["gone", "kept", "mode", "written", "replaced"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let open = Dir::open(dir.path()).unwrap();
        let before = stamps(&open);
        assert_eq!(before.changes(&stamps(&open)), Changes::default());
        assert_eq!(before.digest(), stamps(&open).digest());

        let at = |name: &str| dir.path().join(name);
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("new"), "").unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("written"), "y").unwrap();
        fs::write(at("other"), "x").unwrap();
        fs::rename(at("other"), at("replaced")).unwrap();
        let after = stamps(&open);
        let paths = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| RelPath::parse(name.as_bytes()).unwrap()).collect()
        };
        let expected = Changes {
            created: paths(&["new"]),
            changed: paths(&["mode", "replaced", "written"]),
            removed: paths(&["gone"]),
        };
        assert_eq!(before.changes(&after), expected);
        assert_ne!(before.digest(), after.digest());
    }
}
