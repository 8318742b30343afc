//! Hostile trees: every strange entry is named, none is followed, none blocks.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode};

use super::{Bounds, Found, ScanError, Target, scan};
use crate::patch::Before;
use crate::tree::{Blobs, Dir, NotCarried, Reason, RelPath, Rules};

const BOUNDS: Bounds = Bounds { entries: 1_000, file_bytes: 1 << 20, total_bytes: 1 << 22 };

fn path(bytes: &[u8]) -> RelPath {
    RelPath::parse(bytes).unwrap()
}

fn look(at: &Path, bounds: &Bounds) -> Result<Found, ScanError> {
    let rules = Rules {
        read_denied: &|path| path.as_bytes().starts_with(b"private/"),
        own: &[Dir::open(&at.join("state")).unwrap().meta().unwrap().identity()],
        before: &Before::new(),
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
    assert!(matches!(refused(BOUNDS), ScanError::Depth));
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
    let target =
        Target { tree: &Dir::open(copy.path()).unwrap(), blobs: &kept, owner: Some(200_001) };
    let rules = Rules { read_denied: &|_| false, own: &[], before: &Before::new() };
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

#[test]
fn a_directory_swapped_for_a_link_never_shows_what_is_outside() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let dir = tree();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/file"), "inside").unwrap();
    symlink(outside.path(), dir.path().join("l")).unwrap();
    let expected = event::Digest::of(b"inside");

    let root = Dir::open(dir.path()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(&root, "d", &root, "l", flags).unwrap();
            }
        });
        for _ in 0..400 {
            let found = look(dir.path(), &BOUNDS).unwrap();
            for (_, node) in found.inventory.iter() {
                if let crate::tree::Node::File { digest, .. } = node {
                    assert_eq!(*digest, expected);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
