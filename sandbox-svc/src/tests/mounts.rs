//! Mode mount: commands write parts of the real workspace, as its owner, and nothing else of this host; what cannot be
//! mounted is refused before the engine is asked.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use event::id::SessionId;
use manifest::system;
use proto::common::v1 as common;
use receipt::{Effect, EffectClass, Mount, MountMode, Scope};
use rustix::fs::{FileType, Mode};
use serde_json::{Value, json};

use super::run::{Call, Run};
use super::steps::{killed_at, of};
use super::world::{World, open_manifest};

/// The owner of the workspace: nobody of this host.
const UID: u32 = 43_210;
const GID: u32 = 43_211;

fn mount_manifest(allowed: &str) -> String {
    open_manifest()
        .replace("backend: oci", "backend: oci\n  mode: mount")
        .replace("allowed_paths: ['**']", &format!("allowed_paths: [{allowed}]"))
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(UID), Some(GID)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

/// A workspace of its owner, under a ceiling that protects no path.
async fn world(files: &[(&str, &str)]) -> World {
    let world = World::governed(files).await;
    world.ceiling("protected_paths: []");
    give(&world.workspace());
    world
}

async fn refusal(run: &Run<'_>) -> String {
    let refused = run.plan_or_refusal("process.exec", &json!({ "argv": ["true"] })).await;
    let common::Refused { reason, detail } = refused.unwrap_err();
    format!("{reason}: {detail}")
}

fn mounted_below(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let root = dir.to_string_lossy().into_owned();
    points.filter(|point| point.starts_with(&root)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_writes_the_named_parts_of_the_workspace_and_no_other() {
    let files =
        [("src/a", "a"), ("src/deep/b", "b"), ("one.txt", "1"), ("two.txt", "2"), (".env", "X=y")];
    let world = world(&files).await;
    let run = world.run(&mount_manifest("src/**, one.txt")).await;
    let script = "id -u; id -g; echo new > src/new; rm src/a; echo b2 > src/deep/b; echo 11 > one.txt; \
                  cat two.txt; cat .env; echo x > two.txt; echo x > three.txt; mv src moved; rm one.txt; true";
    let call = run.plan_exec(&["sh", "-c", script]).await;
    let mount = |source: &str, target: &str| Mount {
        source: source.to_owned(),
        target: target.to_owned(),
        mode: MountMode::Rw,
    };
    assert_eq!(
        call.plan.mounts,
        [mount("one.txt", "/workspace/one.txt"), mount("src/", "/workspace/src")]
    );
    assert_eq!(call.plan.effect_class, EffectClass::Irreversible);
    assert_eq!(call.plan.scopes, [Scope::Once]);
    let writes = call.plan.parts.iter().filter(|part| part.action == "fs.write");
    let subjects: Vec<_> = writes.map(|part| part.subject.as_ref().unwrap().to_string()).collect();
    assert_eq!(subjects, ["one.txt", "src/"]);

    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "exited 0", "{}", told.text());
    assert!(told.text().starts_with(&format!("{UID}\n{GID}\n")), "{}", told.text());
    assert!(told.text().contains("\n2\n") || told.text().contains("\n2"), "{}", told.text());
    let at = |name: &str| world.workspace().join(name);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!(
        (read("src/new"), read("src/deep/b"), read("one.txt")),
        ("new\n".into(), "b2\n".into(), "11\n".into())
    );
    assert_eq!((read("two.txt"), read(".env")), ("2".into(), "X=y".into()));
    assert!(!at("src/a").exists() && !at("three.txt").exists() && !at("moved").exists());
    let meta = fs::metadata(at("src/new")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (UID, GID));

    let paths = |paths: &[&str]| json!({ "total": paths.len(), "paths": paths });
    let expected = json!({
        "writtenDirectly": ["one.txt", "src/"],
        "note": "changes in these paths are in the workspace already; no patch holds them",
        "created": paths(&["src/new"]),
        "changed": paths(&["one.txt", "src", "src/deep/b"]),
        "removed": paths(&["src/a"]),
    });
    assert_eq!(told.result()["workspace"], expected);
    // What is read afterwards is what the workspace holds, and no patch holds it.
    let read = run.plan("read_file", json!({ "path": "src/new" })).await.result.unwrap();
    assert_eq!(read["content"], "new\n", "{read}");
    let patch = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(
        (&patch["entries"], &patch["writtenDirectly"]),
        (&json!([]), &json!(["one.txt", "src/"]))
    );
    assert_eq!(mounted_below(&world.dir.path().join("state")).len(), 1, "the copy alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_manifest_must_not_name_is_a_fault_of_the_manifest() {
    let world = world(&[("src/a", "a")]).await;
    for allowed in [
        "/",
        "/etc/**",
        "../x/**",
        "'**'",
        "'*'",
        "./",
        "'src/**,ro'",
        "\"a\\nb\"",
        "''",
        "'src/*'",
        "'s?c/'",
        "src//x",
        "src/../x",
        "'src\\x'",
    ] {
        let text = mount_manifest(allowed);
        let session = SessionId::new();
        let owner =
            common::Owner { session_id: session.to_string(), node: "a".to_owned(), epoch: 1 };
        let grant = world.sign(&world.grant(session, &text));
        let refused = world.fence(&owner, &grant, &text).await.unwrap_err();
        assert_eq!(refused.reason, "MANIFEST_INVALID", "{allowed}");
    }
}

/// One thing that is wrong with a workspace, and what is said of it.
struct Wrong {
    allowed: &'static str,
    make: fn(&Path),
    said: &'static str,
}

fn cases() -> Vec<Wrong> {
    fn socket(at: &Path) {
        drop(UnixListener::bind(at.join("src/s")).unwrap());
    }
    fn node(at: &Path, kind: FileType) {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, rustix::fs::makedev(1, 3)).unwrap();
    }
    fn tmpfs(at: &Path) {
        fs::create_dir_all(at).unwrap();
        rustix::mount::mount("tmpfs", at, "tmpfs", rustix::mount::MountFlags::NODEV, None).unwrap();
    }
    fn bound(at: &Path) {
        fs::create_dir_all(at).unwrap();
        rustix::mount::mount_bind(at.parent().unwrap().join("real"), at).unwrap();
    }
    vec![
        Wrong {
            allowed: "missing/",
            make: |_| (),
            said: "MOUNT_NOT_FOUND: missing does not exist",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::rename(at.join("src"), at.join("x")).unwrap(),
            said: "MOUNT_NOT_FOUND: src does not exist",
        },
        Wrong {
            allowed: "src",
            make: |_| (),
            said: "MOUNT_UNSAFE: src is a directory; write it as dir/ or dir/**",
        },
        Wrong { allowed: "src/a/", make: |_| (), said: "MOUNT_UNSAFE: src/a is not a directory" },
        Wrong {
            allowed: "link/**",
            make: |at| symlink("/etc", at.join("link")).unwrap(),
            said: "MOUNT_UNSAFE: link is a symbolic link, or is reached through one",
        },
        Wrong {
            allowed: "link/**",
            make: |at| symlink("src", at.join("link")).unwrap(),
            said: "MOUNT_UNSAFE: link is a symbolic link, or is reached through one",
        },
        Wrong {
            allowed: "link/x/",
            make: |at| symlink("/etc", at.join("link")).unwrap(),
            said: "MOUNT_UNSAFE: link is a symbolic link, or is reached through one",
        },
        Wrong {
            allowed: "link",
            make: |at| symlink("one.txt", at.join("link")).unwrap(),
            said: "MOUNT_UNSAFE: link is a symbolic link, or is reached through one",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::hard_link(at.join("src/a"), at.join("src/twin")).unwrap(),
            said: "MOUNT_UNSAFE: src/a has more than one hard link",
        },
        Wrong {
            allowed: "one.txt",
            make: |at| fs::hard_link(at.join("one.txt"), at.join("twin")).unwrap(),
            said: "MOUNT_UNSAFE: one.txt has more than one hard link",
        },
        Wrong { allowed: "src/", make: socket, said: "MOUNT_UNSAFE: src/s is a socket" },
        Wrong {
            allowed: "src/",
            make: |at| node(&at.join("src/f"), FileType::Fifo),
            said: "MOUNT_UNSAFE: src/f is a named pipe",
        },
        Wrong {
            allowed: "src/",
            make: |at| node(&at.join("src/deep/d"), FileType::CharacterDevice),
            said: "MOUNT_UNSAFE: src/deep/d is a device",
        },
        Wrong {
            allowed: "src/",
            make: |at| node(&at.join("src/d"), FileType::BlockDevice),
            said: "MOUNT_UNSAFE: src/d is a device",
        },
        Wrong {
            allowed: "f",
            make: |at| node(&at.join("f"), FileType::Fifo),
            said: "MOUNT_UNSAFE: f is a named pipe",
        },
        Wrong {
            allowed: "src/",
            make: |at| tmpfs(&at.join("src/m")),
            said: "MOUNT_UNSAFE: src/m is a mount point or on another file system",
        },
        Wrong {
            allowed: "src/",
            make: |at| bound(&at.join("src/bound")),
            said: "MOUNT_UNSAFE: src/bound is a mount point or on another file system",
        },
        Wrong {
            allowed: "m/",
            make: |at| tmpfs(&at.join("m")),
            said: "MOUNT_UNSAFE: m is a mount point or on another file system",
        },
        Wrong {
            allowed: "m/in/",
            make: |at| {
                tmpfs(&at.join("m"));
                fs::create_dir(at.join("m/in")).unwrap();
            },
            said: "MOUNT_UNSAFE: m is a mount point or on another file system",
        },
        Wrong {
            allowed: "src/",
            make: |at| {
                fs::set_permissions(at.join("src/deep"), Permissions::from_mode(0o000)).unwrap();
            },
            said: "MOUNT_UNSAFE: src/deep cannot be read by the workspace's owner",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::create_dir(at.join("src/.git")).unwrap(),
            said: "MOUNT_WITHHELD: src/.git is or holds what no command may see: git_metadata",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::write(at.join("src/.GiT"), "gitdir: x").unwrap(),
            said: "MOUNT_WITHHELD: src/.GiT is or holds what no command may see: git_metadata",
        },
        Wrong {
            allowed: ".git/",
            make: |at| fs::create_dir(at.join(".git")).unwrap(),
            said: "MOUNT_WITHHELD: .git is or holds what no command may see: git_metadata",
        },
        Wrong {
            allowed: "'git~1/hooks/'",
            make: |at| fs::create_dir_all(at.join("git~1/hooks")).unwrap(),
            said: "MOUNT_WITHHELD: git~1 is or holds what no command may see: git_metadata",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::write(at.join("src/.env"), "K=v").unwrap(),
            said: "MOUNT_WITHHELD: src/.env is or holds what no command may see: secret_name",
        },
        Wrong {
            allowed: "src/",
            make: |at| {
                fs::write(at.join("src/deep/notes"), "-----BEGIN OPENSSH PRIVATE KEY-----\n")
                    .unwrap();
            },
            said: "MOUNT_WITHHELD: src/deep/notes is or holds what no command may see: secret_content",
        },
        Wrong {
            allowed: "note",
            make: |at| fs::write(at.join("note"), "-----BEGIN RSA PRIVATE KEY-----\n").unwrap(),
            said: "MOUNT_WITHHELD: note is or holds what no command may see: secret_content",
        },
        Wrong {
            allowed: "src/",
            make: |at| fs::write(at.join("src/denied"), "x").unwrap(),
            said: "MOUNT_WITHHELD: src/denied is or holds what no command may see: read_denied",
        },
        Wrong {
            allowed: "late/",
            make: |at| fs::create_dir(at.join("late")).unwrap(),
            said: "MOUNT_NOT_FOUND: late is not in the run's private copy, which has its place",
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mounted_is_refused_by_name_and_nothing_is_made() {
    for Wrong { allowed, make, said } in cases() {
        let files = [("src/a", "a"), ("src/deep/b", "b"), ("src/real/x", "x"), ("one.txt", "1")];
        let world = world(&files).await;
        let text = mount_manifest(allowed)
            .replace("  fs.read: allow\n", "  fs.read: {'**': allow, 'src/denied': deny}\n");
        let run = world.run(&text).await;
        make(&world.workspace());
        give(&world.workspace());
        let refused = refusal(&run).await;
        let mounted = mounted_below(&world.workspace());
        for point in &mounted {
            rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        assert_eq!(refused, said, "{allowed}");
        assert_eq!(world.containers(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_of_root_is_refused_at_the_fence() {
    let world = World::new(&[("src/a", "a")]).await;
    let text = mount_manifest("src/");
    let session = SessionId::new();
    let owner = common::Owner { session_id: session.to_string(), node: "a".to_owned(), epoch: 1 };
    let grant = world.sign(&world.grant(session, &text));
    assert_eq!(world.fence(&owner, &grant, &text).await.unwrap_err().reason, "WORKSPACE_OF_ROOT");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_change_to_an_entry_between_plan_and_execution_is_a_stale_plan() {
    let changes: [fn(&Path); 5] = [
        |at| fs::write(at.join("src/a"), "other").unwrap(),
        |at| fs::set_permissions(at.join("src/a"), Permissions::from_mode(0o600)).unwrap(),
        |at| chown(at.join("src/deep"), Some(0), None).unwrap(),
        |at| fs::write(at.join("src/deep/new"), "").unwrap(),
        |at| {
            fs::rename(at.join("src"), at.join("kept")).unwrap();
            fs::create_dir_all(at.join("src/deep")).unwrap();
            fs::write(at.join("src/a"), "a").unwrap();
            give(&at.join("src"));
        },
    ];
    for change in changes {
        let world = world(&[("src/a", "a"), ("src/deep/b", "b")]).await;
        let run = world.run(&mount_manifest("src/")).await;
        let call = run.plan_exec(&["sh", "-c", "echo ran > src/ran"]).await;
        change(&world.workspace());
        assert_eq!(run.execute(&call, None).await.end(), "PLAN_STALE");
        assert!(!world.workspace().join("src/ran").exists());
    }
}

async fn swapped_at(place: &str, script: &str) -> (World, String) {
    let mut world = world(&[("src/a", "a")]).await;
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    give(&outside);
    world.kill();
    let root = world.dir.path().display().to_string();
    world.start_running_at(place, &format!("cd {root}; {script}")).await;
    let told = {
        let run = world.run(&mount_manifest("src/")).await;
        let call: Call = run.plan_exec(&["sh", "-c", "echo ran > src/ran"]).await;
        run.execute(&call, None).await.end()
    };
    (world, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_swapped_between_check_and_start_is_refused_and_nothing_runs() {
    let link = "mv workspace/src kept; ln -s ../outside workspace/src";
    let directory = "mv workspace/src kept; mv outside workspace/src";
    let file = "echo x > workspace/src/a";
    for place in ["exec-creating", "exec-held", "exec-attached"] {
        for script in [link, directory, file] {
            let (world, told) = swapped_at(place, script).await;
            let expected = match (place, script == link) {
                (_, true) => "MOUNT_UNSAFE",
                (_, false) => "MOUNT_CHANGED",
            };
            assert_eq!(told, expected, "{place} {script}");
            let ran = |name: &str| world.dir.path().join(name).join("ran").exists();
            assert!(!ran("outside") && !ran("kept") && !ran("workspace/src"), "{place} {script}");
            assert_eq!(world.containers(), Vec::<String>::new());
            assert_eq!(mounted_below(&world.dir.path().join("state")).len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_whose_name_goes_to_another_after_the_start_stays_the_one_that_was_checked() {
    let script = "mv workspace/src kept; ln -s ../outside workspace/src";
    let (world, told) = swapped_at("exec-started", script).await;
    assert_eq!(told, "exited 0");
    let ran = |name: &str| world.dir.path().join(name).join("ran").exists();
    assert!(ran("kept") && !ran("outside"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_does_not_start_over_changes_that_only_the_copy_holds() {
    let world = world(&[("src/a", "a"), ("other", "o")]).await;
    let run = world.run(&mount_manifest("src/")).await;
    let copy = run.copy();
    fs::write(copy.join("other"), "edited").unwrap();
    assert!(
        refusal(&run).await.starts_with("MOUNT_EDITED: the private copy holds changes, of other")
    );
    assert_eq!(fs::read_to_string(world.workspace().join("other")).unwrap(), "o");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_about_something_in_a_directory_holds_for_the_directory() {
    let world = world(&[("src/a", "a"), ("src/gen/b", "b"), ("Makefile", "all:")]).await;
    let allowed = |rules: &str| {
        mount_manifest("src/, Makefile")
            .replace("  fs.write: allow\n", &format!("  fs.write: {rules}\n"))
    };
    let run = world.run(&allowed("{'**': allow, 'src/gen/**': deny}")).await;
    assert_eq!(run.plan_exec(&["true"]).await.plan.effect, Effect::Deny);

    // With the built-in list every directory may come to hold something protected.
    world.ceiling("");
    let run = world.run(&allowed("allow")).await;
    let plan = run.plan_exec(&["true"]).await.plan;
    assert_eq!((plan.effect, plan.scopes), (Effect::Ask, vec![Scope::Once]));
    let protected = plan.parts.iter().filter(|part| part.rule == system::PROTECTED_PATHS);
    let subjects: Vec<Value> =
        protected.map(|part| serde_json::to_value(&part.subject).unwrap()).collect();
    assert_eq!(subjects, [json!("Makefile"), json!("src/"), json!("Makefile")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_write_happens_once_and_nothing_stays_held_whatever_dies() {
    for place in 0.. {
        let mut world = world(&[("src/count", "")]).await;
        let run = world.run(&mount_manifest("src/")).await;
        let call = run.plan_exec(&["sh", "-c", "echo x >> src/count"]).await;
        let id = (run.session, run.run);
        let (whole, end) = killed_at(&mut world, id, &call, place).await;
        assert_eq!(end, "exited 0", "killed at place {place}");
        let count = fs::read_to_string(world.workspace().join("src/count")).unwrap();
        assert_eq!(count, "x\n", "killed at place {place}");
        assert_eq!(world.containers(), Vec::<String>::new(), "place {place}");
        assert_eq!(mounted_below(&world.dir.path().join("state")).len(), 1, "place {place}");
        // The copy follows, whoever saw the end.
        let run = of(&world, id.0, id.1);
        let read = run.plan("read_file", json!({ "path": "src/count" })).await.result.unwrap();
        assert_eq!(read["content"], "x\n", "place {place}");
        if whole {
            assert!(place >= 9, "only {place} places were tried");
            return;
        }
    }
}
