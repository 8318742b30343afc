//! Trees that a command may read and nobody may change: named by the host, mounted as they were planned.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use event::id::SessionId;
use proto::common::v1 as common;
use receipt::{Mount, MountMode};
use serde_json::json;

use super::world::{World, asking_manifest, open_manifest};

fn with_lib(manifest: &str) -> String {
    manifest.replace("backend: oci", "backend: oci\n  dependencies: [lib]")
}

/// Why a session that names the tree is refused.
async fn refused(world: &World) -> String {
    let (session, text) = (SessionId::new(), with_lib(&open_manifest()));
    let grant = world.sign(&world.grant(session, &text));
    let owner =
        common::Owner { session_id: session.to_string(), node: "node-a".to_owned(), epoch: 1 };
    let refused = world.fence(&owner, &grant, &text).await.unwrap_err();
    format!("{}: {}", refused.reason, refused.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_network_reads_its_dependencies_and_cannot_change_them() {
    let world = World::new(&[("build.sh", ". /dependencies/lib/greet.sh > built\n")]).await;
    let run = world.run(&with_lib(&open_manifest())).await;
    let call = run.plan_exec(&["sh", "build.sh"]).await;
    let mount = Mount {
        source: "lib".to_owned(),
        target: "/dependencies/lib".to_owned(),
        mode: MountMode::Ro,
    };
    assert_eq!(call.plan.mounts, [mount]);
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "exited 0", "{}", told.text());
    let started: event::SandboxStarted =
        serde_json::from_slice(&told.started.unwrap()).expect("what was started");
    let mounts: Vec<_> = started.mounts.iter().map(|it| (it.target.as_str(), it.mode)).collect();
    assert_eq!(mounts, [("/workspace", MountMode::Rw), ("/dependencies/lib", MountMode::Ro)]);
    let told = run.exec(&["cat", "built"]).await;
    assert_eq!(told.text(), "hello from the library\n");

    for attempt in [
        "echo x > /dependencies/lib/greet.sh",
        "echo x > /dependencies/lib/new",
        "rm /dependencies/lib/greet.sh",
        "mv /dependencies/lib /dependencies/other",
        "echo x > /dependencies/x",
    ] {
        let told = run.exec(&["sh", "-c", attempt]).await;
        assert_ne!(told.end(), "exited 0", "{attempt}");
    }
    let left = fs::read_dir(world.dependency()).unwrap().count();
    assert_eq!(left, 1);
    // Nothing stays held.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let held = world.dir.path().join("state").join("environments");
    let held = mounts.lines().filter(|line| line.contains(&*held.to_string_lossy()));
    assert_eq!(held.count(), 1, "the private copy alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_is_not_quiet_is_refused_at_the_fence() {
    let world = World::new(&[]).await;
    let at = |name: &str| world.dependency().join(name);
    let _socket = UnixListener::bind(at("engine.sock")).unwrap();
    assert_eq!(
        refused(&world).await,
        "DEPENDENCY_UNSAFE: the session cannot be served: lib/engine.sock is a socket"
    );
    fs::remove_file(at("engine.sock")).unwrap();
    let moved = world.dir.path().join("deps/moved");
    fs::rename(world.dependency(), &moved).unwrap();
    symlink(&moved, world.dependency()).unwrap();
    assert_eq!(
        refused(&world).await,
        "DEPENDENCY_UNSAFE: the session cannot be served: lib is a symbolic link, or is reached through one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_was_replaced_since_it_was_planned_is_not_mounted() {
    let world = World::new(&[]).await;
    let run = world.run(&with_lib(&asking_manifest())).await;
    let argv = ["sh", "-c", ". /dependencies/lib/greet.sh"];
    let call = run.plan_exec(&argv).await;
    let receipt = run.receipt(&call, receipt::Scope::Once);
    fs::rename(world.dependency(), world.dir.path().join("deps/old")).unwrap();
    fs::create_dir(world.dependency()).unwrap();
    fs::write(world.dependency().join("greet.sh"), "echo hello from elsewhere\n").unwrap();
    assert_eq!(run.execute_with(&call, &[&receipt]).await.end(), "PLAN_STALE");

    fs::remove_dir_all(world.dependency()).unwrap();
    let refused = run.try_plan("process.exec", &json!({ "argv": argv })).await;
    assert_eq!(refused.unwrap_err(), "DEPENDENCY_UNSAFE");
}
