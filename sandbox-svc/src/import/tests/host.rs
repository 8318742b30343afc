//! A host that changes before, while and after an import, and one whose disk is full.

use super::*;

#[test]
fn a_host_that_changed_before_is_a_conflict_and_stays() {
    type Change = fn(&Scene);
    let changes: [(&str, Change); 5] = [
        ("a.txt", |scene| fs::write(scene.host_file("a.txt"), "theirs").unwrap()),
        ("a.txt", |scene| {
            let mode = fs::Permissions::from_mode(0o640);
            fs::set_permissions(scene.host_file("a.txt"), mode).unwrap();
        }),
        ("b/c", |scene| fs::write(scene.host_file("b/c"), "theirs").unwrap()),
        ("café", |scene| fs::write(scene.host_file("caf\u{e9}"), "theirs").unwrap()),
        ("a", |scene| fs::remove_file(scene.host_file("a")).unwrap()),
    ];
    for (place, change) in changes {
        let scene = busy();
        change(&scene);
        let changed = scene.now();
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        let refused = run(
            &import(&host, &scene.patch, &staging, &off),
            Bytes::Copy(&scene.copy()),
            &mut |_| Ok(()),
        );
        match refused {
            Err(ImportError::Conflict(conflicts)) => {
                let paths: Vec<_> = conflicts.iter().map(|it| it.path.to_string()).collect();
                assert_eq!((paths, conflicts.more), (vec![place.to_owned()], 0));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.now(), changed);
        assert!(scene.staging_is_gone());
    }
}

#[test]
fn a_host_that_changes_in_between_is_taken_back_to_what_it_changed_to() {
    for (name, bytes) in [("a.txt", "theirs"), ("x\ny", "theirs"), ("b/b", "theirs")] {
        let scene = busy();
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        let import = import(&host, &scene.patch, &staging, &off);
        stage(&import, Bytes::Copy(&scene.copy())).unwrap();
        if name == "x\ny" {
            fs::remove_file(scene.host_file(name)).unwrap();
        }
        fs::write(scene.host_file(name), bytes).unwrap();
        let resumed = resume(&import, Phase::Applying, &mut |_| Ok(())).unwrap();
        match resumed {
            Resumed::Ended(Outcome::Undone { cause: ImportError::Conflict(_), left }) => {
                assert_eq!(left.paths, []);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read_to_string(scene.host_file(name)).unwrap(), bytes);
        assert!(scene.staging_is_gone());
        assert_eq!(fs::read_to_string(scene.host_file("a")).unwrap(), "becomes a directory");
    }
}

#[test]
fn what_somebody_changed_after_the_swap_is_left_and_the_old_entry_is_kept() {
    let scene = busy();
    let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
    let import = import(&host, &scene.patch, &staging, &off);
    stage(&import, Bytes::Copy(&scene.copy())).unwrap();
    apply(&import).unwrap();
    fs::write(scene.host_file("a.txt"), "theirs").unwrap();
    let left = undo(&import).unwrap();
    assert_eq!(left, Left { paths: vec![RelPath::parse(b"a.txt").unwrap()], kept: true });
    assert_eq!(fs::read_to_string(scene.host_file("a.txt")).unwrap(), "theirs");
    let kept: Vec<_> = fs::read_dir(scene.host_file(&staging.0))
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default())
        .collect();
    assert!(kept.contains(&b"changes".to_vec()));
}

#[test]
fn without_staging_everything_that_is_not_as_before_is_named() {
    let places = busy().patch.entries.len() * 2;
    let mut incomplete = 0;
    for stops in 0..places {
        let scene = busy();
        let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
        stage(&import(&host, &scene.patch, &staging, &off), Bytes::Copy(&scene.copy())).unwrap();
        let stop = Failpoint::stop_at(stops);
        let stopped = apply(&import(&host, &scene.patch, &staging, &stop));
        fs::remove_dir_all(scene.host_file(&staging.0)).unwrap();
        let changed = scene.now();

        let mut phases = Vec::new();
        let resumed =
            resume(&import(&host, &scene.patch, &staging, &off), Phase::Applying, &mut |phase| {
                phases.push(phase);
                Ok(())
            })
            .unwrap();
        let Resumed::Ended(Outcome::Undone { left, .. }) = resumed else { panic!("{resumed:?}") };
        let paths: std::collections::BTreeSet<_> =
            scene.patch.entries.iter().map(|entry| &entry.path).collect();
        let differs = |path: &&&RelPath| changed.get(path) != scene.before.get(path);
        let expected: Vec<_> = paths.iter().filter(differs).map(|path| (*path).clone()).collect();
        assert_eq!(left, Left { paths: expected, kept: false });
        assert_eq!(phases, [Phase::Undoing]);
        incomplete += usize::from(!left.paths.is_empty());
        if stopped.is_ok() {
            break;
        }
    }
    assert!(incomplete > 8, "only {incomplete} places were tried");
}

#[test]
fn an_old_entry_that_somebody_removed_from_staging_is_named() {
    let scene = busy();
    let (host, staging, off) = (scene.host(), staging(), Failpoint::off());
    let import = import(&host, &scene.patch, &staging, &off);
    stage(&import, Bytes::Copy(&scene.copy())).unwrap();
    apply(&import).unwrap();
    let kept =
        fs::read_dir(scene.host_file(&staging.0)).unwrap().map(|entry| entry.unwrap().path());
    let lost: Vec<_> = kept
        .filter(|path| fs::read(path).is_ok_and(|bytes| bytes == b"becomes a directory"))
        .collect();
    assert_eq!(lost.len(), 1);
    fs::remove_file(&lost[0]).unwrap();
    let left = undo(&import).unwrap();
    assert_eq!(left, Left { paths: vec![RelPath::parse(b"a").unwrap()], kept: true });
}

#[test]
fn a_full_disk_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("small");
    fs::create_dir(&host).unwrap();
    let size = c"size=64k,nr_inodes=32";
    rustix::mount::mount("tmpfs", &host, "tmpfs", rustix::mount::MountFlags::empty(), size)
        .unwrap();
    let _unmount = Unmount(host.clone());
    fs::write(host.join("a"), "one").unwrap();
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("a"), "two").unwrap();
    fs::write(copy.join("b"), vec![7; 256 * 1024]).unwrap();

    let before = inventory(&host);
    let patch = diff(&before, &Before::new(), &look(&copy));
    let (root, staging, off) = (Dir::open(&host).unwrap(), staging(), Failpoint::off());
    let import = import(&root, &patch, &staging, &off);
    let outcome = run(&import, Bytes::Copy(&Dir::open(&copy).unwrap()), &mut |_| Ok(())).unwrap();
    assert!(
        matches!(&outcome, Outcome::Undone { cause: ImportError::Write { .. }, left } if left.paths.is_empty()),
        "{outcome:?}"
    );
    assert_eq!(inventory(&host), before);
    assert!(!host.join(&staging.0).exists());
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(&self.0, flags).unwrap();
    }
}
