//! Hostile trees: every strange entry is named, none is followed, none blocks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};

use super::{Bounds, Found, ScanError, Target, scan};
use crate::patch::Before;
use crate::tree::carry::Carry;
use crate::tree::{Blobs, Dir, NotCarried, Reason, RelPath, Rules};

const BOUNDS: Bounds = Bounds {
    entries: 1_000,
    directory_entries: 200,
    depth: 64,
    file_bytes: 1 << 20,
    total_bytes: 1 << 22,
};

fn path(bytes: &[u8]) -> RelPath {
    RelPath::parse(bytes).unwrap()
}

fn look(at: &Path, bounds: &Bounds) -> Result<Found, ScanError> {
    let rules = Rules {
        read_denied: &|path| path.as_bytes().starts_with(b"private/"),
        own: &[Dir::open(&at.join("state")).unwrap().meta().unwrap().identity()],
        before: &Before::new(),
        carry: &Carry::default(),
    };
    scan(&Dir::open(at).unwrap(), &rules, bounds, None)
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("state")).unwrap();
    dir
}

#[test]
fn strange_entries_are_left_out_each_with_its_reason() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    let dir = tree();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("plain"), "x").unwrap();
    fs::write(at(".env"), "A=1").unwrap();
    fs::write(at("note"), "-----BEGIN OPENSSH PRIVATE KEY-----\nx").unwrap();
    for name in [".git", ".git ", "private", "sub"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("config"), "x").unwrap();
    }
    fs::hard_link(outside.path().join("secret"), at("linked")).unwrap();
    let root = Dir::open(dir.path()).unwrap();
    rustix::fs::mknodat(&root, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::File::create(at("sparse")).unwrap().set_len(1 << 19).unwrap();
    fs::File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
    symlink(outside.path(), at("out")).unwrap();
    symlink("../x", at("up")).unwrap();
    symlink("sub/config", at("in")).unwrap();
    fs::write(at("setuid"), "x").unwrap();
    fs::set_permissions(at("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();

    let found = look(dir.path(), &BOUNDS).unwrap();
    let expected = [
        (".env", Reason::SecretName),
        (".git", Reason::GitMetadata),
        (".git ", Reason::GitMetadata),
        ("fifo", Reason::Special),
        ("huge", Reason::TooLarge),
        ("linked", Reason::Linked),
        ("note", Reason::SecretContent),
        ("out", Reason::LinkOutside),
        ("private/config", Reason::ReadDenied),
        ("socket", Reason::Special),
        ("sparse", Reason::Sparse),
        ("state", Reason::ServiceState),
        ("up", Reason::LinkOutside),
    ]
    .map(|(name, reason)| NotCarried { path: path(name.as_bytes()), reason });
    assert_eq!(found.not_carried, expected);
    assert_eq!(found.stripped, [path(b"setuid")]);
    let carried: Vec<_> = found.inventory.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(carried, ["in", "plain", "private", "setuid", "sub", "sub/config"]);
}

#[test]
fn odd_names_arrive_byte_for_byte() {
    let names: [&[u8]; 8] = [
        b"a\nb",
        b"a\tb",
        b"\xff.txt",
        b"CON",
        b"-rf",
        b"back\\slash",
        "cafe\u{301}".as_bytes(),
        b"\x1b]0;",
    ];
    let dir = tree();
    for name in names {
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let found = look(dir.path(), &BOUNDS).unwrap();
    let mut expected: Vec<_> = names.iter().map(|name| path(name)).collect();
    expected.sort();
    let carried: Vec<_> = found.inventory.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(carried, expected);
}

#[test]
fn a_tree_that_is_too_large_fails_and_says_what_for() {
    let dir = tree();
    for number in 0..10 {
        fs::write(dir.path().join(format!("f{number}")), vec![1; 100]).unwrap();
    }
    let refused = |bounds: Bounds| look(dir.path(), &bounds).unwrap_err();
    assert!(matches!(refused(Bounds { entries: 5, ..BOUNDS }), ScanError::Entries(5)));
    assert!(matches!(refused(Bounds { total_bytes: 950, ..BOUNDS }), ScanError::Bytes(950)));
    let mut deep = dir.path().join("d");
    for _ in 0..70 {
        fs::create_dir(&deep).unwrap();
        deep.push("d");
    }
    assert!(matches!(refused(BOUNDS), ScanError::Depth(64)));
}

#[test]
fn a_copy_is_what_was_hashed_and_keeps_modes_without_set_id() {
    let dir = tree();
    let (copy, blobs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/run"), b"\xff\r\n").unwrap();
    fs::set_permissions(dir.path().join("d/run"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("d/run", dir.path().join("l")).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::set_permissions(dir.path().join("d"), fs::Permissions::from_mode(0o555)).unwrap();

    let kept = Blobs::open(blobs.path()).unwrap();
    let target = Target {
        tree: &Dir::open(copy.path()).unwrap(),
        blobs: &kept,
        owner: Some(200_001),
        watch: None,
    };
    let rules = Rules {
        read_denied: &|_| false,
        own: &[],
        before: &Before::new(),
        carry: &Carry::default(),
    };
    let found = scan(&Dir::open(dir.path()).unwrap(), &rules, &BOUNDS, Some(&target)).unwrap();
    let again = scan(&Dir::open(copy.path()).unwrap(), &rules, &BOUNDS, None).unwrap();
    let carried: Vec<_> =
        found.inventory.iter().map(|(path, node)| (path.clone(), node.carried())).collect();
    let copied: Vec<_> =
        again.inventory.iter().map(|(path, node)| (path.clone(), node.clone())).collect();
    assert_eq!(copied, carried);
    for (_, node) in found.inventory.iter() {
        if let crate::tree::Node::File { size, digest, .. } = node {
            assert_eq!(event::Digest::of(&kept.read(*digest, *size).unwrap()), *digest);
        }
    }
    let owner =
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(copy.path().join("d/run")).unwrap());
    assert_eq!(owner, 200_001);
}

/// Runs `body` while the entries of each pair take each other's place, over and over.
fn swapped(at: &Path, pairs: &[(&str, &str)], body: impl FnOnce()) {
    let root = Dir::open(at).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            while !done.load(Ordering::Relaxed) {
                for (one, other) in pairs {
                    rustix::fs::renameat_with(&root, *one, &root, *other, flags).unwrap();
                }
            }
        });
        body();
        done.store(true, Ordering::Relaxed);
    });
}

/// A tree whose files all hold `inside`, with a link out, a FIFO and another link to trade places with.
fn hostile() -> (tempfile::TempDir, tempfile::TempDir) {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let dir = tree();
    fs::create_dir(dir.path().join("d")).unwrap();
    for name in ["d/file", "file", "other"] {
        fs::write(dir.path().join(name), "inside").unwrap();
    }
    symlink(outside.path(), dir.path().join("l")).unwrap();
    symlink(outside.path().join("file"), dir.path().join("m")).unwrap();
    let root = Dir::open(dir.path()).unwrap();
    rustix::fs::mknodat(&root, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    (dir, outside)
}

const TRADES: [(&str, &str); 3] = [("d", "l"), ("file", "m"), ("other", "fifo")];

#[test]
fn copies_of_a_tree_whose_entries_trade_places_hold_nothing_from_outside() {
    let (dir, _outside) = hostile();
    let inside = event::Digest::of(b"inside");
    let rules = Rules {
        read_denied: &|_| false,
        own: &[],
        before: &Before::new(),
        carry: &Carry::default(),
    };
    let began = Instant::now();
    swapped(dir.path(), &TRADES, || {
        for _ in 0..400 {
            let (copy, blobs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let target = Target {
                tree: &Dir::open(copy.path()).unwrap(),
                blobs: &Blobs::open(blobs.path()).unwrap(),
                owner: None,
                watch: None,
            };
            let root = Dir::open(dir.path()).unwrap();
            let found = scan(&root, &rules, &BOUNDS, Some(&target)).unwrap();
            for (path, node) in found.inventory.iter() {
                match node {
                    crate::tree::Node::File { digest, .. } => assert_eq!(*digest, inside, "{path}"),
                    crate::tree::Node::Directory { .. } => (),
                    crate::tree::Node::Link { target } => panic!("{path} leads to {target:?}"),
                }
            }
            for (_, item) in crate::tree::testing::Tree::read(copy.path()).0 {
                if let crate::tree::testing::Item::File { bytes, .. } = item {
                    assert_eq!(bytes, b"inside");
                }
            }
        }
    });
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[test]
fn ten_thousand_reads_and_writes_through_a_trading_directory_stay_inside() {
    let (dir, outside) = hostile();
    let path = path(b"d/file");
    let (mut read, mut refused) = (0, 0);
    swapped(dir.path(), &TRADES[..1], || {
        let root = Dir::open(dir.path()).unwrap();
        for number in 0..10_000 {
            let opened = root.descend(&path.parent().unwrap()).and_then(|parent| {
                if number % 10 == 0 {
                    // A name that is taken is refused, wherever the directory is.
                    if let Ok(mut file) = parent.create_file(format!("x{number}").as_bytes()) {
                        file.write_all(b"inside").unwrap();
                    }
                }
                let seen = parent.look(b"file")?.ok_or(Reason::Raced)?;
                parent.open_file(b"file", &seen)
            });
            match opened {
                Ok(mut file) => {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).unwrap();
                    assert_eq!(bytes, b"inside");
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    });
    assert!(read > 0, "{read} read, {refused} refused");
    let left: Vec<_> =
        fs::read_dir(outside.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"outside");
}

#[test]
fn neither_a_fifo_nor_a_sparse_file_of_a_tebibyte_takes_time() {
    let dir = tree();
    let root = Dir::open(dir.path()).unwrap();
    rustix::fs::mknodat(&root, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
    let wide = Bounds { file_bytes: u64::MAX, total_bytes: u64::MAX, ..BOUNDS };
    let began = Instant::now();
    for (bounds, reason) in [(BOUNDS, Reason::TooLarge), (wide, Reason::Sparse)] {
        let found = look(dir.path(), &bounds).unwrap();
        let expected =
            [("fifo", Reason::Special), ("huge", reason), ("state", Reason::ServiceState)]
                .map(|(name, reason)| NotCarried { path: path(name.as_bytes()), reason });
        assert_eq!(found.not_carried, expected);
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_mount_inside_the_tree_is_left_out_whatever_it_shows() {
    let (dir, other) = (tree(), tempfile::tempdir().unwrap());
    fs::write(other.path().join("file"), "outside").unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("mounted")).unwrap();
    fs::write(at("bound"), "").unwrap();
    let bind = |from: &Path, to: &Path| rustix::mount::mount_bind(from, to).unwrap();
    bind(other.path(), &at("mounted"));
    bind(&other.path().join("file"), &at("bound"));
    let found = look(dir.path(), &BOUNDS);
    for name in ["mounted", "bound"] {
        rustix::mount::unmount(at(name), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    let expected = [
        ("bound", Reason::OtherFileSystem),
        ("mounted", Reason::OtherFileSystem),
        ("state", Reason::ServiceState),
    ]
    .map(|(name, reason)| NotCarried { path: path(name.as_bytes()), reason });
    assert_eq!(found.unwrap().not_carried, expected);
}

#[test]
fn a_directory_with_too_many_entries_fails_and_says_so() {
    let dir = tree();
    fs::create_dir(dir.path().join("d")).unwrap();
    for number in 0..201 {
        fs::write(dir.path().join(format!("d/{number}")), "").unwrap();
    }
    let refused = look(dir.path(), &BOUNDS).unwrap_err();
    assert!(matches!(refused, ScanError::DirectoryEntries(200)), "{refused}");
    let deep = Bounds { depth: 1, directory_entries: 300, ..BOUNDS };
    assert!(matches!(look(dir.path(), &deep).unwrap_err(), ScanError::Depth(1)));
}

#[test]
fn a_large_flat_directory_and_many_small_ones_are_read_whole() {
    let dir = tree();
    for number in 0..700 {
        let part = dir.path().join(format!("p{}", number % 90));
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("f"), number.to_string()).unwrap();
        fs::write(dir.path().join(format!("f{number}")), number.to_string()).unwrap();
    }
    let bounds = Bounds { directory_entries: 10_000, entries: 10_000, ..BOUNDS };
    let found = look(dir.path(), &bounds).unwrap();
    assert_eq!(found.inventory.iter().count(), 700 + 2 * 90);
    let paths: Vec<_> = found.inventory.iter().map(|(path, _)| path.clone()).collect();
    assert!(paths.is_sorted());
}
