//! Random trees, random patches, and a stop at every place where a kill could be.

mod host;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::{
    Bytes, Import, ImportError, Left, Outcome, Owners, Phase, Resumed, StagingName, apply, owners,
    resume, run, stage, undo,
};
use crate::failpoint::Failpoint;
use crate::import_call::advanced;
use crate::patch::{Before, Patch, diff};
use crate::tree::testing::look;
use crate::tree::{Blobs, Dir, Inventory, Node, RelPath};

#[derive(Debug, Clone)]
enum Sketch {
    File(Vec<u8>, u32),
    Link(&'static str),
    Directory(Vec<(&'static str, Sketch)>, u32),
}

const NAMES: [&str; 6] = ["a", "b", "A", "a.txt", "caf\u{e9}", "x\ny"];

fn sketch() -> impl Strategy<Value = Vec<(&'static str, Sketch)>> {
    let file = (
        prop_oneof![
            Just(b"".to_vec()),
            Just(b"one\r\ntwo".to_vec()),
            Just(vec![0xef, 0xbb, 0xbf, b'a', 0xe9, 0x20, 0xff]),
            prop::collection::vec(any::<u8>(), 0..64),
        ],
        prop_oneof![Just(0o644), Just(0o755), Just(0o600), Just(0o444)],
    )
        .prop_map(|(bytes, mode)| Sketch::File(bytes, mode));
    let link = prop_oneof![Just("a"), Just("./b"), Just("a.txt")].prop_map(Sketch::Link);
    let leaf = prop_oneof![4 => file, 1 => link];
    let node = leaf.prop_recursive(3, 24, 4, |node| {
        let children = prop::collection::btree_map(prop::sample::select(&NAMES[..]), node, 0..4);
        (children, prop_oneof![Just(0o755), Just(0o700), Just(0o555)])
            .prop_map(|(children, mode)| Sketch::Directory(children.into_iter().collect(), mode))
    });
    prop::collection::btree_map(prop::sample::select(&NAMES[..]), node, 0..5)
        .prop_map(|children| children.into_iter().collect())
}

fn draw(at: &Path, children: &[(&'static str, Sketch)]) {
    for (name, node) in children {
        let path = at.join(name);
        match node {
            Sketch::File(bytes, mode) => {
                fs::write(&path, bytes).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Sketch::Link(target) => symlink(target, &path).unwrap(),
            Sketch::Directory(children, mode) => {
                fs::create_dir(&path).unwrap();
                draw(&path, children);
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
    }
}

fn inventory(at: &Path) -> Inventory {
    look(at).inventory
}

/// A workspace, its changed copy, and the patch between them.
struct Scene {
    dir: tempfile::TempDir,
    before: Inventory,
    after: Inventory,
    patch: Patch,
}

impl Scene {
    fn new(before: &[(&'static str, Sketch)], after: &[(&'static str, Sketch)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, children) in [("host", before), ("copy", after)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            draw(&dir.path().join(name), children);
        }
        let base = look(&dir.path().join("host"));
        let found = look(&dir.path().join("copy"));
        let patch = diff(&base.inventory, &Before::new(), &found);
        Self { dir, before: base.inventory, after: found.inventory, patch }
    }

    fn host(&self) -> Dir {
        Dir::open(&self.dir.path().join("host")).unwrap()
    }

    fn copy(&self) -> Dir {
        Dir::open(&self.dir.path().join("copy")).unwrap()
    }

    fn host_file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("host").join(name)
    }

    /// The bytes of every file on either side, by digest.
    fn kept(&self) -> Blobs {
        let place = self.dir.path().join("kept");
        fs::create_dir(&place).unwrap();
        let blobs = Blobs::open(&place).unwrap();
        for (tree, inventory) in [("host", &self.before), ("copy", &self.after)] {
            for (path, node) in inventory.iter() {
                if let Node::File { .. } = node {
                    let name = std::ffi::OsStr::from_bytes(path.as_bytes());
                    let file = fs::File::open(self.dir.path().join(tree).join(name)).unwrap();
                    blobs.put_file(file).unwrap();
                }
            }
        }
        blobs
    }

    fn now(&self) -> Inventory {
        inventory(&self.dir.path().join("host"))
    }

    fn staging_is_gone(&self) -> bool {
        !self.host_file(&staging().0).exists()
    }
}

fn staging() -> StagingName {
    StagingName::of(event::id::CallId::nil())
}

fn import<'a>(
    host: &'a Dir,
    patch: &'a Patch,
    staging: &'a StagingName,
    failpoint: &'a Failpoint,
) -> Import<'a> {
    static NOBODY: Owners = Owners::new();
    Import { host, entries: &patch.entries, owners: &NOBODY, staging, failpoint }
}

fn file(text: &str) -> Sketch {
    Sketch::File(text.as_bytes().to_vec(), 0o644)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn an_import_makes_the_workspace_equal_to_the_copy(before in sketch(), after in sketch()) {
        let scene = Scene::new(&before, &after);
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        let import = import(&host, &scene.patch, &staging, &off);
        let outcome = run(&import, Bytes::Copy(&scene.copy()), &mut |_| Ok(())).unwrap();
        prop_assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
        prop_assert_eq!(scene.now(), scene.after.clone());
        prop_assert!(scene.staging_is_gone());
    }

    #[test]
    fn an_import_that_is_taken_back_leaves_the_workspace_as_it_was(
        before in sketch(),
        after in sketch(),
    ) {
        let scene = Scene::new(&before, &after);
        let kept = scene.kept();
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        let there = import(&host, &scene.patch, &staging, &off);
        let owners = owners(&there);
        let outcome = run(&there, Bytes::Copy(&scene.copy()), &mut |_| Ok(())).unwrap();
        prop_assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");

        let reversed = scene.patch.reversed();
        let back = Import { owners: &owners, ..import(&host, &reversed, &staging, &off) };
        let outcome = run(&back, Bytes::Kept(&kept), &mut |_| Ok(())).unwrap();
        prop_assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
        prop_assert_eq!(scene.now(), scene.before.clone());
        prop_assert!(scene.staging_is_gone());
    }

    #[test]
    fn parts_of_a_patch_compose_to_the_whole(
        before in sketch(),
        after in sketch(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
    ) {
        let scene = Scene::new(&before, &after);
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        let mut base = scene.before.clone();
        for pick in picks {
            let rest = diff(&base, &Before::new(), &look(&scene.dir.path().join("copy")));
            let Some(named) = rest.paths().get(pick.index(rest.paths().len().max(1))).copied()
            else { break };
            let part = rest.select(&[named.clone()].into()).unwrap();
            prop_assert!(part.entries.iter().all(|entry| rest.entries.contains(entry)));
            let there = import(&host, &part, &staging, &off);
            let outcome = run(&there, Bytes::Copy(&scene.copy()), &mut |_| Ok(())).unwrap();
            prop_assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
            base = advanced(&base, &part.entries);
            prop_assert_eq!(scene.now(), base.clone());
            // What is left is exactly what was not chosen.
            let left = diff(&base, &Before::new(), &look(&scene.dir.path().join("copy")));
            let others: Vec<_> = rest
                .entries
                .iter()
                .filter(|entry| !part.entries.contains(entry))
                .cloned()
                .collect();
            prop_assert_eq!(left.entries, others);
        }
        let rest = diff(&base, &Before::new(), &look(&scene.dir.path().join("copy")));
        let there = import(&host, &rest, &staging, &off);
        let outcome = run(&there, Bytes::Copy(&scene.copy()), &mut |_| Ok(())).unwrap();
        prop_assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
        prop_assert_eq!(scene.now(), scene.after.clone());
    }

    #[test]
    fn a_patch_survives_its_encoding(before in sketch(), after in sketch()) {
        let scene = Scene::new(&before, &after);
        let bytes = crate::patch::encode(&scene.patch.entries);
        prop_assert_eq!(crate::patch::decode(&bytes), Ok(scene.patch.entries));
    }
}

/// One change of every kind.
fn busy() -> Scene {
    let before = [
        ("a", file("becomes a directory")),
        ("a.txt", file("changes")),
        ("b", Sketch::Directory(vec![("a", file("goes")), ("b", file("too"))], 0o755)),
        ("A", Sketch::Directory(vec![], 0o755)),
        ("x\ny", Sketch::Link("a.txt")),
    ];
    let after = [
        (
            "a",
            Sketch::Directory(
                vec![("a", Sketch::Directory(vec![("b", file("deep"))], 0o555))],
                0o700,
            ),
        ),
        ("a.txt", Sketch::File(b"changed\r\n\xff".to_vec(), 0o755)),
        ("b", file("was a directory")),
        ("A", Sketch::Directory(vec![], 0o700)),
        ("x\ny", file("was a link")),
        ("caf\u{e9}", Sketch::Link("a/a/b")),
    ];
    Scene::new(&before, &after)
}

/// Goes on after a kill, as the service does at its start.
fn recover(
    scene: &Scene,
    phase: &mut Option<Phase>,
    failpoint: &Failpoint,
) -> Result<(), ImportError> {
    let Some(entered) = *phase else { return Ok(()) };
    let (host, staging) = (scene.host(), staging());
    let import = import(&host, &scene.patch, &staging, failpoint);
    let resumed = resume(&import, entered, &mut |entered| {
        *phase = Some(entered);
        Ok(())
    })?;
    let expected = match resumed {
        Resumed::Untouched => &scene.before,
        Resumed::Ended(Outcome::Applied) => &scene.after,
        Resumed::Ended(Outcome::Undone { cause, left }) => panic!("{cause} {left:?}"),
    };
    assert_eq!(&scene.now(), expected);
    assert!(scene.staging_is_gone());
    Ok(())
}

#[test]
fn a_kill_at_any_place_leaves_all_or_nothing() {
    let mut kills = 0;
    loop {
        let scene = busy();
        let (host, staging, stop) = (scene.host(), staging(), Failpoint::stop_at(kills));
        let import = import(&host, &scene.patch, &staging, &stop);
        let mut phase = None;
        let ended = run(&import, Bytes::Copy(&scene.copy()), &mut |entered| {
            phase = Some(entered);
            Ok(())
        });
        match ended {
            Ok(Outcome::Applied) => break,
            Err(ImportError::Stopped(_)) => recover(&scene, &mut phase, &Failpoint::off()).unwrap(),
            other => panic!("{other:?}"),
        }
        kills += 1;
    }
    assert!(kills > 20, "only {kills} places were tried");
}

#[test]
fn a_second_kill_at_any_place_changes_nothing() {
    let mut pairs = 0;
    for first in (0..).step_by(3) {
        let mut second = 0;
        loop {
            let scene = busy();
            let (host, staging) = (scene.host(), staging());
            let stop = Failpoint::stop_at(first);
            let mut phase = None;
            let there = import(&host, &scene.patch, &staging, &stop);
            let ended = run(&there, Bytes::Copy(&scene.copy()), &mut |entered| {
                phase = Some(entered);
                Ok(())
            });
            if matches!(ended, Ok(Outcome::Applied)) {
                assert!(pairs > 100, "only {pairs} pairs of places were tried");
                return;
            }
            assert!(matches!(ended, Err(ImportError::Stopped(_))), "{ended:?}");
            match recover(&scene, &mut phase, &Failpoint::stop_at(second)) {
                Ok(()) => break,
                Err(ImportError::Stopped(_)) => {
                    recover(&scene, &mut phase, &Failpoint::off()).unwrap();
                }
                Err(other) => panic!("{other}"),
            }
            second += 1;
            pairs += 1;
        }
    }
}

#[test]
fn a_kill_while_going_back_still_goes_back() {
    for stops in 0..30 {
        let scene = busy();
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        stage(&import(&host, &scene.patch, &staging, &off), Bytes::Copy(&scene.copy())).unwrap();
        apply(&import(&host, &scene.patch, &staging, &off)).unwrap();
        let stop = Failpoint::stop_at(stops);
        let stopped = undo(&import(&host, &scene.patch, &staging, &stop));
        let again = import(&host, &scene.patch, &staging, &off);
        let resumed = resume(&again, Phase::Undoing, &mut |_| Ok(())).unwrap();
        match resumed {
            Resumed::Ended(Outcome::Undone { left, .. }) => assert_eq!(left.paths, []),
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.now(), scene.before);
        assert!(scene.staging_is_gone());
        if stopped.is_ok() {
            return;
        }
    }
    panic!("it never went back");
}
