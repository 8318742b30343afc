//! A copy that an earlier process made is taken up again only when everything that it was bound to is what it was.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::run::Run;
use super::world::{IMAGE, World, open_manifest};
use crate::binding::Binding;
use crate::config::{Config, StagingKind};

/// A run's copy, and its service killed.
async fn killed(manifest: &str) -> (World, (event::id::SessionId, event::id::RunId), PathBuf) {
    let mut world = World::governed(&[("a", "one\n")]).await;
    let run = world.run(manifest).await;
    let (copy, of) = (run.copy(), (run.session, run.run));
    world.kill();
    (world, of, copy)
}

async fn in_store(world: &World, statement: &str) {
    let file = world.dir.path().join("state/sandbox.sqlite");
    let options = SqliteConnectOptions::new().filename(file).foreign_keys(false);
    let mut store = SqliteConnection::connect_with(&options).await.unwrap();
    let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut store).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{statement}");
    store.close().await.unwrap();
}

/// The copy is lost by that binding for whoever asks, and nothing of it is left.
async fn is_lost(
    world: &World,
    of: (event::id::SessionId, event::id::RunId),
    copy: &std::path::Path,
    binding: Binding,
) {
    let owner = proto::common::v1::Owner {
        session_id: of.0.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    let row = world.sandbox().store.environment(of.1).await.unwrap().unwrap();
    assert_eq!(row.lost, Some(binding));
    world.sandbox().reconcile().await.unwrap();
    assert!(!copy.parent().unwrap().exists(), "{binding}");
    if matches!(binding, Binding::Session | Binding::Manifest) {
        return;
    }
    let run = Run { world, session: of.0, owner, run: of.1 };
    let fault = run.open().await.unwrap_err();
    assert_eq!(fault.reason, "ENVIRONMENT_LOST");
    assert!(fault.message.contains(&format!("its {binding} is not what it was")), "{fault:?}");
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_LOST");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_boot_is_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    in_store(&world, "UPDATE environment SET boot = 'another'").await;
    world.start().await;
    is_lost(&world, of, &copy, Binding::Boot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_another_kind_of_place_is_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    let config = Config { staging: StagingKind::Dirs, ..world.config() };
    world.start_with(config).await;
    is_lost(&world, of, &copy, Binding::Staging).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mount_in_the_place_of_a_copy_is_not_taken_for_it() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    unmount(&copy, UnmountFlags::empty()).unwrap();
    mount("tmpfs", &copy, "tmpfs", MountFlags::empty(), None).unwrap();
    world.start().await;
    is_lost(&world, of, &copy, Binding::Copy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_does_not_pass_to_another_session() {
    let mut world = World::governed(&[("a", "one\n")]).await;
    let other = world.run(&open_manifest()).await.session;
    let run = world.run(&open_manifest()).await;
    let (copy, of) = (run.copy(), (run.session, run.run));
    world.kill();
    let statement = format!("UPDATE environment SET session = '{other}' WHERE run = '{}'", of.1);
    in_store(&world, &statement).await;
    world.start().await;
    is_lost(&world, of, &copy, Binding::Session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_directory_in_the_place_of_the_workspace_makes_the_copy_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    fs::rename(world.workspace(), world.dir.path().join("before")).unwrap();
    fs::create_dir(world.workspace()).unwrap();
    fs::write(world.workspace().join("a"), "one\n").unwrap();
    world.start().await;
    is_lost(&world, of, &copy, Binding::Workspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_leads_elsewhere_makes_the_copy_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    let moved = world.dir.path().join("moved");
    fs::rename(world.workspace(), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, world.workspace()).unwrap();
    world.start().await;
    is_lost(&world, of, &copy, Binding::Workspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_another_manifest_is_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    in_store(&world, "UPDATE session SET manifest = CAST(manifest || x'0a' AS BLOB)").await;
    world.start().await;
    is_lost(&world, of, &copy, Binding::Manifest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_another_ceiling_is_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    world.ceiling("permissions:\n  fs.read: {secret/**: deny}");
    world.start().await;
    is_lost(&world, of, &copy, Binding::Policy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_with_other_credentials_carried_is_lost() {
    let (mut world, of, copy) = killed(&open_manifest()).await;
    let config = Config { carry: vec!["demo=.env".parse().unwrap()], ..world.config() };
    world.start_with(config).await;
    is_lost(&world, of, &copy, Binding::Policy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_image_is_another_is_lost() {
    let docker = |args: &[&str]| {
        assert!(Command::new("docker").args(args).output().unwrap().status.success(), "{args:?}");
    };
    let seen = World::new(&[]).await;
    // Tests of another process may run beside this one.
    let own = format!("harness/sandbox-svc-test:bindings-{}", std::process::id());
    docker(&["tag", IMAGE, &own]);
    drop(seen);
    let (mut world, of, copy) = killed(&open_manifest().replace(IMAGE, &own)).await;
    docker(&["rmi", "--no-prune", &own]);
    world.start().await;
    is_lost(&world, of, &copy, Binding::Image).await;
}
