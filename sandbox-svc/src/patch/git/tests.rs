//! The export, given to the real git: it must make the tree after from the tree before.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::{Diff, Export};
use crate::patch::{Before, Patch, diff};
use crate::tree::testing::look;
use crate::tree::{Node, RelPath};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    File(Vec<u8>, u32),
    Link(&'static str),
}

type Tree = BTreeMap<Vec<u8>, Thing>;

fn place(root: &Path, name: &[u8]) -> std::path::PathBuf {
    root.join(OsStr::from_bytes(name))
}

fn draw(root: &Path, tree: &Tree) {
    for (name, thing) in tree {
        let path = place(root, name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match thing {
            Thing::File(bytes, mode) => {
                fs::write(&path, bytes).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Thing::Link(target) => symlink(target, &path).unwrap(),
        }
    }
}

/// As git sees a tree: no directories, and of a mode whether it may be executed.
fn seen_by_git(root: &Path) -> Tree {
    let seen = look(root).inventory;
    let thing = |(path, node): (&RelPath, &Node)| {
        let name = path.as_bytes().to_vec();
        match node {
            Node::Directory { .. } => None,
            Node::File { mode, .. } => {
                let mode = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
                Some((name.clone(), Thing::File(fs::read(place(root, &name)).unwrap(), mode)))
            }
            Node::Link { target } => {
                let target = String::from_utf8(target.clone()).unwrap();
                Some((name, Thing::Link(Box::leak(target.into_boxed_str()))))
            }
        }
    };
    seen.iter().filter_map(thing).collect()
}

fn git(root: &Path, args: &[&str], input: &str) {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(root)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", "/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}\n{input}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn patch_of(before: &Path, after: &Path) -> Patch {
    diff(&look(before).inventory, &Before::new(), &look(after))
}

/// The whole export, with bytes from the two trees.
fn export(patch: &Patch, before: &Path, after: &Path) -> String {
    let export = Export::of(&patch.entries);
    let mut text = export.preamble();
    let mut read = |path: &RelPath, node: &Node| -> Result<Vec<u8>, ()> {
        let there = [before, after].map(|root| fs::read(place(root, path.as_bytes())).ok());
        let fits = |bytes: &Vec<u8>| event::Digest::of(bytes) == node.digest();
        Ok(there.into_iter().flatten().find(fits).unwrap())
    };
    for at in 0.. {
        match export.render(at, &mut read).unwrap() {
            Some(diff) => text.push_str(&diff),
            None => break,
        }
    }
    text
}

/// Applies the export to a repository of the tree before.
fn git_makes_the_same(before: &Tree, after: &Tree) {
    let dir = tempfile::tempdir().unwrap();
    let [old, new, scratch] = ["old", "new", "scratch"].map(|name| dir.path().join(name));
    for (root, tree) in [(&old, before), (&new, after), (&scratch, before)] {
        fs::create_dir(root).unwrap();
        draw(root, tree);
    }
    // Outside of a repository git makes a file of every link.
    git(&scratch, &["init", "-q"], "");
    let patch = patch_of(&old, &new);
    let text = export(&patch, &old, &new);
    if Export::of(&patch.entries).diffs.is_empty() {
        assert_eq!(seen_by_git(&old), seen_by_git(&new));
        return;
    }
    git(&scratch, &["apply", "--binary", "--whitespace=nowarn", "-"], &text);
    assert_eq!(seen_by_git(&scratch), seen_by_git(&new), "{text}");
}

fn file(bytes: &[u8]) -> Thing {
    Thing::File(bytes.to_vec(), 0o644)
}

fn tree(things: &[(&[u8], Thing)]) -> Tree {
    things.iter().map(|(name, thing)| (name.to_vec(), thing.clone())).collect()
}

#[test]
fn git_makes_the_same_of_every_kind_of_change() {
    let lines: String = (0..200).map(|line| format!("line {line}\n")).collect();
    let long = [b'n'; 255];
    let before = tree(&[
        (b"text", file(lines.as_bytes())),
        (b"no-end", file(b"a\nb")),
        (b"gets-end", file(b"a\nb")),
        (b"latin", file(b"caf\xe9\n")),
        (b"zero", file(b"a\0b")),
        (b"empty", file(b"")),
        (b"empty-gone", file(b"")),
        (b"gone", file(b"gone\n")),
        (b"mode", file(b"same\n")),
        (b"mode-and-text", file(b"one\n")),
        (b"to-link", file(b"x\n")),
        (b"link-to-file", Thing::Link("text")),
        (b"link", Thing::Link("text")),
        (b"link-gone", Thing::Link("text")),
        (b"to-dir", file(b"x\n")),
        (b"dir/inner/f", file(b"x\n")),
        (b"moved-from", file(b"the very same bytes\n")),
        (b"crlf", file(b"a\r\nb\r\nc\r\n")),
        (b"bom", file(b"\xef\xbb\xbfa\r\n")),
        (b"lone-cr", file(b"a\rb\rc\n")),
        (b"odd \n\t\"\\name", file(b"1\n")),
        (b"\xff", file(b"1\n")),
        ("caf\u{e9}".as_bytes(), file(b"nfc\n")),
        ("cafe\u{301}".as_bytes(), file(b"nfd\n")),
        (b"-dash", file(b"1\n")),
        (b" lead and trail ", file(b"1\n")),
        (&long, file(b"1\n")),
        (b"separators", file("a\u{2028}b\u{85}c\n".as_bytes())),
        (b"a/b b/a", file(b"1\n")),
    ]);
    let changed = lines.replace("line 5\n", "LINE 5\n").replace("line 150\n", "");
    let after = tree(&[
        (b"text", file(changed.as_bytes())),
        (b"no-end", file(b"a\nc")),
        (b"gets-end", file(b"a\nb\n")),
        (b"latin", file(b"caf\xe9 \xff\r\n")),
        (b"zero", file(&[0, 1, 2, 3, 255, 254])),
        (b"empty", file(b"not any more")),
        (b"empty-new", Thing::File(b"".to_vec(), 0o755)),
        (b"mode", Thing::File(b"same\n".to_vec(), 0o755)),
        (b"mode-and-text", Thing::File(b"two\n".to_vec(), 0o755)),
        (b"to-link", Thing::Link("text")),
        (b"link-to-file", file(b"x")),
        (b"link", Thing::Link("mode")),
        (b"link-new", Thing::Link("mode")),
        (b"to-dir/f", file(b"y\n")),
        (b"dir", file(b"y\n")),
        (b"deep/er/moved to", file(b"the very same bytes\n")),
        (b"crlf", file(b"a\r\nB\r\nc\r\n")),
        (b"bom", file(b"\xef\xbb\xbfb\r\n")),
        (b"lone-cr", file(b"a\rb\rC\n")),
        (b"odd \n\t\"\\name", Thing::File(b"1\n".to_vec(), 0o755)),
        (b"\xff", file(b"2\n")),
        ("caf\u{e9}".as_bytes(), file(b"NFC\n")),
        ("cafe\u{301}".as_bytes(), file(b"NFD\n")),
        (b"-dash", file(b"2\n")),
        (b" lead and trail ", Thing::File(b"1\n".to_vec(), 0o755)),
        (&long, file(b"2\n")),
        (b"separators", file("a\u{2028}b\u{85}d\n".as_bytes())),
        (b"a/b b/a", Thing::File(b"1\n".to_vec(), 0o755)),
        (b"big", file(&(0..200_000_u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>())),
    ]);
    git_makes_the_same(&before, &after);
}

#[test]
fn equal_bytes_in_another_place_are_a_rename() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    let same = b"the same\n";
    for (root, things) in [
        (&old, tree(&[(b"a", file(same)), (b"b", file(same)), (b"e", file(b""))])),
        (&new, tree(&[(b"c d", file(same)), (b"x/y", file(same)), (b"f", file(b""))])),
    ] {
        fs::create_dir(root).unwrap();
        draw(root, &things);
    }
    let patch = patch_of(&old, &new);
    let export = Export::of(&patch.entries);
    let renamed = export.diffs.iter().filter(|diff| matches!(diff, Diff::Renamed(..))).count();
    assert_eq!((renamed, export.diffs.len()), (2, 4));
    let text = super::tests::export(&patch, &old, &new);
    assert!(text.starts_with(
        "diff --git a/b \"b/c d\"\nsimilarity index 100%\nrename from b\nrename to \"c d\"\n"
    ));
}

#[test]
fn what_git_cannot_carry_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    for root in [&old, &new] {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a"), "x").unwrap();
    }
    fs::create_dir(new.join("hollow")).unwrap();
    fs::set_permissions(new.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    let patch = patch_of(&old, &new);
    let export = Export::of(&patch.entries);
    assert_eq!(export.diffs, []);
    assert_eq!(
        export.preamble(),
        "# git does not carry: the mode 0600 of a\n\
         # git does not carry: the new directory hollow, which is empty\n"
    );
}

const NAMES: [&[u8]; 8] = [b"a", b"b", b"a b", b"x\ny", b"\xff", b"d/a", b"d/e/b", b"b~"];

fn random_tree() -> impl Strategy<Value = Tree> {
    let bytes = prop_oneof![
        Just(b"".to_vec()),
        Just(b"one\ntwo\nthree\n".to_vec()),
        Just(b"one\r\ntwo".to_vec()),
        prop::collection::vec(prop::sample::select(&b"ab\n\r\0\xff"[..]), 0..40),
    ];
    let thing = prop_oneof![
        6 => (bytes, prop_oneof![Just(0o644), Just(0o755)])
            .prop_map(|(bytes, mode)| Thing::File(bytes, mode)),
        1 => prop_oneof![Just("a"), Just("./b")].prop_map(Thing::Link),
    ];
    prop::collection::btree_map(
        prop::sample::select(&NAMES[..]).prop_map(<[u8]>::to_vec),
        thing,
        0..8,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn git_makes_the_same_of_random_trees(before in random_tree(), after in random_tree()) {
        git_makes_the_same(&before, &after);
    }
}
