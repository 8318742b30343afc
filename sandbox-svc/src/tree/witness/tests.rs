//! What a command may try so that a changed file passes for the one that was taken. None may; and what nobody touched is
//! known without reading it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::{Known, Watch};
use crate::patch::Before;
use crate::tree::carry::Carry;
use crate::tree::scan::{Bounds, Found, Target, scan, scan_known};
use crate::tree::{Blobs, Dir, RelPath, Rules};

const BOUNDS: Bounds = Bounds {
    entries: 100_000,
    directory_entries: 50_000,
    depth: 64,
    file_bytes: 1 << 20,
    total_bytes: 1 << 26,
};
const FILES: [&str; 4] = ["a", "b", "d/a", "e/a"];
const SIZE: usize = 8192;

/// Changes bytes in every way that there is; `store` reads a page before it writes to it, which leaves the times of a
/// tmpfs file as they are.
const PROGRAM: &str = r#"
import mmap, os, sys
def store(path):
    fd = os.open(path, os.O_RDWR)
    map = mmap.mmap(fd, 0)
    assert map[0] and map[5000]
    map[0] = 66
    map[5000] = 67
    map.close()
    os.close(fd)
def write(path, how=os.O_WRONLY):
    before = os.stat(path)
    fd = os.open(path, how)
    os.write(fd, b"B")
    os.close(fd)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
os.chdir(sys.argv[1])
exec(sys.argv[2])
"#;

const ATTEMPTS: [(&str, &str); 13] = [
    ("a write whose time is set back", "write('a')"),
    ("a store through a mapping", "store('a')"),
    ("a store through a mapping, deeper", "store('d/a')"),
    (
        "another file with the same size and times in its place",
        "s = os.stat('a'); open('n', 'wb').write(b'B' * s.st_size); \
         os.utime('n', ns=(s.st_atime_ns, s.st_mtime_ns)); os.chmod('n', s.st_mode); os.rename('n', 'a')",
    ),
    ("two files exchanged", "os.rename('a', 'n'); os.rename('b', 'a'); os.rename('n', 'b')"),
    ("two directories exchanged", "os.rename('d', 'n'); os.rename('e', 'd'); os.rename('n', 'e')"),
    (
        "cut by its path and filled again",
        "s = os.stat('a'); os.truncate('a', 1); os.truncate('a', s.st_size); \
         os.utime('a', ns=(s.st_atime_ns, s.st_mtime_ns))",
    ),
    (
        "a store where nobody listens, and back",
        "os.mkdir('new'); os.rename('a', 'new/a'); store('new/a'); os.rename('new/a', 'a'); os.rmdir('new')",
    ),
    (
        "a store through another link where nobody listens",
        "os.mkdir('new'); os.link('a', 'new/l'); store('new/l'); os.unlink('new/l'); os.rmdir('new')",
    ),
    (
        "a store while its directory is elsewhere",
        "os.mkdir('new'); os.rename('d', 'new/d'); store('new/d/a'); os.rename('new/d', 'd'); os.rmdir('new')",
    ),
    (
        "opened again through another descriptor",
        "fd = os.open('a', os.O_PATH); store('/proc/self/fd/%d' % fd)",
    ),
    (
        "more openings than are told of, then a store",
        "[os.close(os.open(FILES[i % 4], os.O_RDONLY)) for FILES in [('b', 'd/a', 'e/a', 'b')] \
         for i in range(40000)]; store('a')",
    ),
    (
        "appended and cut",
        "s = os.stat('a'); write('a', os.O_WRONLY | os.O_APPEND); os.truncate('a', s.st_size); store('a')",
    ),
];

struct Copy {
    _dirs: [tempfile::TempDir; 3],
    at: PathBuf,
    known: Known,
}

fn look<T>(walk: impl FnOnce(&Rules<'_>) -> T) -> T {
    let rules = Rules {
        read_denied: &|_| false,
        own: &[],
        before: &Before::new(),
        carry: &Carry::default(),
    };
    walk(&rules)
}

fn copy(below: &Path) -> Copy {
    let dir = || tempfile::tempdir_in(below).unwrap();
    let (source, copy, kept) = (dir(), dir(), dir());
    for (at, name) in FILES.iter().enumerate() {
        let path = source.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'a' + u8::try_from(at).unwrap(); SIZE]).unwrap();
    }
    let blobs = Blobs::open(kept.path()).unwrap();
    let (watch, tree) = (Watch::begin().unwrap(), Dir::open(copy.path()).unwrap());
    let target = Target { tree: &tree, blobs: &blobs, owner: None, watch: Some(&watch) };
    let found = look(|rules| {
        scan(&Dir::open(source.path()).unwrap(), rules, &BOUNDS, Some(&target)).unwrap()
    });
    let known = watch.end(Arc::new(found.inventory)).unwrap();
    Copy { at: copy.path().to_owned(), _dirs: [source, copy, kept], known }
}

impl Copy {
    fn read(&self, known: Option<&Known>) -> Found {
        look(|rules| scan_known(&Dir::open(&self.at).unwrap(), rules, &BOUNDS, known).unwrap())
    }

    fn unread(&self) -> Vec<&'static str> {
        let root = Dir::open(&self.at).unwrap();
        self.known.listen();
        let is_unread = |name: &&str| {
            let path = RelPath::parse(name.as_bytes()).unwrap();
            let (parent, entry) = path.split().unwrap();
            let meta = root.descend(&parent).unwrap().look(entry).unwrap().unwrap();
            self.known.node(&path, &meta).is_some()
        };
        FILES.into_iter().filter(is_unread).collect()
    }

    fn change(&self, statement: &str) {
        let place = self.at.to_str().unwrap();
        let status = Command::new("python3").args(["-c", PROGRAM, place, statement]).status();
        assert!(status.unwrap().success(), "{statement}");
    }
}

/// A tmpfs, as copies are in, and the file system of the state directory.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

#[test]
fn a_changed_file_never_passes_for_the_one_that_was_taken() {
    for place in places() {
        for (what, statement) in ATTEMPTS {
            let copy = copy(&place);
            let before = copy.read(Some(&copy.known));
            copy.change(statement);
            let whole = copy.read(None);
            assert_ne!(whole, before, "{what} changes nothing in {place:?}");
            assert_eq!(copy.read(Some(&copy.known)), whole, "{what} in {place:?}");
        }
    }
}

#[test]
fn what_nobody_opened_is_known_and_what_was_opened_is_read() {
    for place in places() {
        let copy = copy(&place);
        assert_eq!(copy.unread(), FILES, "{place:?}");
        assert_eq!(copy.read(Some(&copy.known)), copy.read(None));
        // Reading everything opened everything.
        assert_eq!(copy.unread(), [""; 0], "{place:?}");
    }
    for place in places() {
        let copy = copy(&place);
        copy.change("store('d/a')");
        assert_eq!(copy.unread(), ["a", "b", "e/a"], "{place:?}");
    }
}

#[test]
fn lost_events_make_everything_unknown() {
    let copy = copy(Path::new("/dev/shm"));
    let (_, flood) = ATTEMPTS[11];
    copy.change(flood);
    assert_eq!(copy.unread(), [""; 0]);
}
