//! Random trees and random edits of them, for tests that must hold for every tree: what a workspace may hold that
//! is carried, in every kind, with odd names, modes and bytes. It never makes what a walk leaves out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};

use crate::patch::Before;
use crate::tree::carry::Carry;
use crate::tree::rules::STAGING_PREFIX;
use crate::tree::scan::{Bounds, Found, scan};
use crate::tree::{Dir, RelPath, Rules, link, name};

const ENTRIES: usize = 24;
const EDITS: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { target: Vec<u8> },
}

/// Every entry by its path; the directory of each entry is there too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree(pub(crate) BTreeMap<RelPath, Item>);

/// One change; places are chosen among what is there when it is made.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// A new entry, or another one in the place of what has that name.
    Put { directory: Index, name: Vec<u8>, item: Item },
    /// Other bytes in a file.
    Write { file: Index, bytes: Vec<u8> },
    /// Another mode of a file or directory.
    Mode { entry: Index, mode: u32 },
    /// An entry with everything in it goes.
    Delete { entry: Index },
    /// An entry with everything in it gets another place.
    Move { entry: Index, directory: Index, name: Vec<u8> },
    /// An entry becomes another, whatever its kind was.
    Become { entry: Index, item: Item },
}

/// What a walk finds when nothing is withheld and no bound is met.
pub(crate) fn look(root: &Path) -> Found {
    let bounds = Bounds {
        entries: 10_000,
        directory_entries: 10_000,
        depth: 64,
        file_bytes: 1 << 24,
        total_bytes: 1 << 26,
    };
    let rules = Rules {
        read_denied: &|_| false,
        own: &[],
        before: &Before::new(),
        carry: &Carry::default(),
    };
    scan(&Dir::open(root).unwrap(), &rules, &bounds, None).unwrap()
}

pub(crate) fn trees() -> impl Strategy<Value = Tree> {
    vec((any::<Index>(), names(), items()), 0..ENTRIES).prop_map(|entries| {
        let mut tree = Tree::default();
        for (directory, name, item) in entries {
            tree.put(directory, &name, item);
        }
        tree
    })
}

pub(crate) fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = any::<Index>;
    let edit = prop_oneof![
        3 => (place(), names(), items())
            .prop_map(|(directory, name, item)| Edit::Put { directory, name, item }),
        3 => (place(), contents()).prop_map(|(file, bytes)| Edit::Write { file, bytes }),
        2 => (place(), modes()).prop_map(|(entry, mode)| Edit::Mode { entry, mode }),
        2 => place().prop_map(|entry| Edit::Delete { entry }),
        2 => (place(), place(), names())
            .prop_map(|(entry, directory, name)| Edit::Move { entry, directory, name }),
        2 => (place(), items()).prop_map(|(entry, item)| Edit::Become { entry, item }),
    ];
    vec(edit, 0..EDITS)
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let odd: [&[u8]; 18] = [
        b"a",
        b"b",
        b"a.txt",
        b"A.txt",
        b"a-b",
        b"a\nb",
        b"a\tb c",
        b"\xff\xfe.txt",
        b"-rf",
        b"back\\slash",
        b"CON",
        b"\x1b]0;",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        "\u{202e}gpj.txt".as_bytes(),
        b".gitignore",
        b"...",
        b"\"'$(x)`",
    ];
    let any_bytes = vec(any::<u8>(), 1..12);
    prop_oneof![6 => select(odd.map(<[u8]>::to_vec).to_vec()), 1 => any_bytes, 1 => Just(vec![b'n'; 255])]
        .prop_filter("a name that is carried", |bytes| is_carried(bytes))
}

fn is_carried(bytes: &[u8]) -> bool {
    !bytes.contains(&b'/')
        && RelPath::parse(bytes).is_ok()
        && !name::is_git(bytes)
        && !name::is_secret(None, bytes, false)
        && !name::is_secret(None, bytes, true)
        && !bytes.starts_with(STAGING_PREFIX.as_bytes())
}

fn modes() -> impl Strategy<Value = u32> {
    select(vec![0o644, 0o600, 0o755, 0o444, 0o555, 0o700, 0o664, 0o777])
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    let plain: [&[u8]; 8] = [
        b"",
        b"\n",
        b"one\ntwo\nthree\n",
        b"one\r\ntwo\nno end",
        b"\xef\xbb\xbfa\r\n",
        b"caf\xe9 \xff\r\n",
        b"\0binary\0\x01",
        b"one\nTWO\nthree\n",
    ];
    prop_oneof![
        6 => select(plain.map(<[u8]>::to_vec).to_vec()),
        2 => vec(any::<u8>(), 0..300),
        1 => (any::<u8>(), 60_000..140_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn items() -> impl Strategy<Value = Item> {
    let targets = ["a", "./b", "a/b", "../a", "../../a.txt", "a b\n", ".", "nowhere"];
    prop_oneof![
        3 => modes().prop_map(|mode| Item::Directory { mode }),
        5 => (modes(), contents()).prop_map(|(mode, bytes)| Item::File { mode, bytes }),
        1 => select(targets.to_vec()).prop_map(|text| Item::Link { target: text.into() }),
    ]
}

impl Tree {
    pub(crate) fn edited(&self, edits: &[Edit]) -> Self {
        let mut tree = self.clone();
        for edit in edits {
            tree.edit(edit);
        }
        tree
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Put { directory, name, item } => self.put(*directory, name, item.clone()),
            Edit::Write { file, bytes: new } => {
                let files = self.0.values_mut().filter_map(|item| match item {
                    Item::File { bytes, .. } => Some(bytes),
                    Item::Directory { .. } | Item::Link { .. } => None,
                });
                let mut files: Vec<_> = files.collect();
                if !files.is_empty() {
                    let at = file.index(files.len());
                    files[at].clone_from(new);
                }
            }
            Edit::Mode { entry, mode: new } => {
                let Some(path) = self.chosen(*entry) else { return };
                if let Some(Item::File { mode, .. } | Item::Directory { mode }) =
                    self.0.get_mut(&path)
                {
                    *mode = *new;
                }
            }
            Edit::Delete { entry } => {
                if let Some(path) = self.chosen(*entry) {
                    self.remove(&path);
                }
            }
            Edit::Move { entry, directory, name } => {
                let Some(path) = self.chosen(*entry) else { return };
                let to = self.directory(*directory).join(name);
                if to != path && !to.is_below(&path) && !path.is_below(&to) && fits(&to) {
                    self.rename(&path, &to);
                }
            }
            Edit::Become { entry, item } => {
                if let Some(path) = self.chosen(*entry) {
                    self.set(path, item.clone());
                }
            }
        }
    }

    fn put(&mut self, directory: Index, name: &[u8], item: Item) {
        let path = self.directory(directory).join(name);
        self.set(path, item);
    }

    fn set(&mut self, path: RelPath, item: Item) {
        let carried = match &item {
            Item::Link { target } => link::stays_inside(&path, target),
            Item::Directory { .. } | Item::File { .. } => true,
        };
        if carried && fits(&path) {
            if !matches!(item, Item::Directory { .. }) {
                self.remove(&path);
            }
            self.0.insert(path, item);
        }
    }

    fn rename(&mut self, from: &RelPath, to: &RelPath) {
        let below: Vec<RelPath> =
            self.0.keys().filter(|path| *path == from || path.is_below(from)).cloned().collect();
        let moved: Vec<_> =
            below.iter().filter_map(|path| self.0.remove(path).map(|item| (path, item))).collect();
        self.remove(to);
        for (path, item) in moved {
            let mut bytes = to.as_bytes().to_vec();
            bytes.extend_from_slice(&path.as_bytes()[from.as_bytes().len()..]);
            if let Ok(path) = RelPath::parse(&bytes) {
                self.set(path, item);
            }
        }
    }

    fn remove(&mut self, path: &RelPath) {
        self.0.retain(|other, _| other != path && !other.is_below(path));
    }

    fn chosen(&self, index: Index) -> Option<RelPath> {
        (!self.0.is_empty()).then(|| self.0.keys().nth(index.index(self.0.len())).cloned())?
    }

    fn directory(&self, index: Index) -> RelPath {
        let inside = self.0.iter().filter(|(_, item)| matches!(item, Item::Directory { .. }));
        let all: Vec<_> =
            std::iter::once(RelPath::root()).chain(inside.map(|(path, _)| path.clone())).collect();
        all[index.index(all.len())].clone()
    }

    /// Makes all of it in an empty directory.
    pub(crate) fn make(&self, root: &Path) {
        Self::default().turn_into(self, root);
    }

    /// `root` holds this tree and holds `after` then; what is the same is not touched, and bytes of a file are
    /// replaced in place.
    pub(crate) fn turn_into(&self, after: &Self, root: &Path) {
        for (path, was) in self.0.iter().rev() {
            let stays = match (was, after.0.get(path)) {
                (Item::Directory { .. }, Some(Item::Directory { .. }))
                | (Item::File { .. }, Some(Item::File { .. })) => true,
                (was, now) => Some(was) == now,
            };
            match was {
                _ if stays => (),
                Item::Directory { .. } => fs::remove_dir(at(root, path)).unwrap(),
                Item::File { .. } | Item::Link { .. } => fs::remove_file(at(root, path)).unwrap(),
            }
        }
        for (path, item) in &after.0 {
            let place = at(root, path);
            let was = self.0.get(path).filter(|was| *was != item);
            match item {
                _ if self.0.get(path) == Some(item) => (),
                Item::Directory { .. } if matches!(was, Some(Item::Directory { .. })) => (),
                Item::Directory { .. } => fs::create_dir(&place).unwrap(),
                Item::File { bytes, .. } => fs::write(&place, bytes).unwrap(),
                Item::Link { target } => symlink(OsStr::from_bytes(target), &place).unwrap(),
            }
        }
        for (path, item) in after.0.iter().rev() {
            if let (false, Item::Directory { mode } | Item::File { mode, .. }) =
                (self.0.get(path) == Some(item), item)
            {
                fs::set_permissions(at(root, path), Permissions::from_mode(*mode)).unwrap();
            }
        }
    }

    /// What is below `root`, read without any code that is under test.
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        let mut left = vec![(RelPath::root(), root.to_owned())];
        while let Some((path, place)) = left.pop() {
            for entry in fs::read_dir(&place).unwrap() {
                let entry = entry.unwrap();
                let (path, place) = (path.join(entry.file_name().as_bytes()), entry.path());
                let meta = entry.metadata().unwrap();
                let mode = meta.mode() & 0o7777;
                let item = if meta.is_dir() {
                    left.push((path.clone(), place));
                    Item::Directory { mode }
                } else if meta.is_symlink() {
                    let target = fs::read_link(&place).unwrap();
                    Item::Link { target: target.into_os_string().as_bytes().to_vec() }
                } else {
                    assert!(meta.is_file(), "{place:?}");
                    Item::File { mode, bytes: fs::read(&place).unwrap() }
                };
                tree.0.insert(path, item);
            }
        }
        tree
    }
}

/// Short enough for a host's own paths in front of it.
fn fits(path: &RelPath) -> bool {
    path.as_bytes().len() < 2_000 && path.depth() < 20
}

fn at(root: &Path, path: &RelPath) -> PathBuf {
    root.join(OsStr::from_bytes(path.as_bytes()))
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    #[test]
    fn a_tree_is_on_disk_what_it_says_before_and_after_edits(tree in trees(), edits in edits()) {
        let dir = tempfile::tempdir().unwrap();
        tree.make(dir.path());
        proptest::prop_assert_eq!(&Tree::read(dir.path()), &tree);
        let after = tree.edited(&edits);
        tree.turn_into(&after, dir.path());
        proptest::prop_assert_eq!(Tree::read(dir.path()), after);
    }
}
