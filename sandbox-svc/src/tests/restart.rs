//! Another process goes on: what runs is taken over, what ended is collected, what is gone is lost.

use std::fs;
use std::process::Command;
use transport::state_dir::Unusable;

use futures::StreamExt as _;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;

use super::run::{Call, Run};
use super::world::{IMAGE, World, open_manifest};

/// A command that runs until the file `go` appears, and the copy it runs over.
async fn started(run: &Run<'_>, then: &str) -> (Call, std::path::PathBuf) {
    let script = format!("echo begin; until [ -e go ]; do sleep 0.05; done; {then}");
    let call = run.plan_exec(&["sh", "-c", &script]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    while !matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Output(_))) {}
    (call, run.copy())
}

/// The same run, driven through the new process.
fn again<'a>(world: &'a World, of: (event::id::SessionId, event::id::RunId)) -> Run<'a> {
    let owner = proto::common::v1::Owner {
        session_id: of.0.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    Run { world, session: of.0, owner, run: of.1 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_command_is_taken_over() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let (call, copy) = started(&run, "echo end; exit 4").await;
    let of = (run.session, run.run);
    world.kill();
    world.start().await;
    let run = again(&world, of);
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "RUN_BUSY");
    fs::write(copy.join("go"), "").unwrap();
    let told = run.execute(&call, None).await;
    assert_eq!((told.end(), told.finished.output_incomplete), ("exited 4".to_owned(), true));
    assert!(told.started.is_some());
    assert_eq!(world.containers(), Vec::<String>::new());
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
    assert_eq!(run.sh("cat go && echo on").await.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ended_meanwhile_is_collected() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let (call, copy) = started(&run, "echo done > made; exit 5").await;
    let of = (run.session, run.run);
    let container = world.containers().remove(0);
    world.kill();
    fs::write(copy.join("go"), "").unwrap();
    assert!(Command::new("docker").args(["wait", &container]).output().unwrap().status.success());
    world.start().await;
    let run = again(&world, of);
    let told = run.execute(&call, None).await;
    assert_eq!((told.end(), told.finished.output_incomplete), ("exited 5".to_owned(), true));
    assert_eq!(world.containers(), Vec::<String>::new());
    let patch = run.plan("inspect_patch", json!({})).await.result.unwrap();
    assert_eq!(patch["totals"]["entries"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_leaves_no_command_without_a_clock() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let arguments = json!({ "argv": ["sh", "-c", "echo begin; sleep 600"], "timeoutSeconds": 1 });
    let call = run.plan("process.exec", arguments).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    while !matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Output(_))) {}
    let of = (run.session, run.run);
    let container = world.containers().remove(0);
    world.kill();
    let ended = Command::new("docker").args(["wait", &container]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "124\n");
    world.start().await;
    assert_eq!(again(&world, of).execute(&call, None).await.end(), "timed_out");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_that_nobody_reads_ends_when_somebody_does() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let flood = "i=0; while [ $i -lt 3000 ]; do echo line-$i; echo $i > at; i=$((i+1)); done";
    let (call, copy) = started(&run, flood).await;
    let of = (run.session, run.run);
    world.kill();
    fs::write(copy.join("go"), "").unwrap();
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.execute(&call, None).await.end(), "exited 0");
    assert_eq!(fs::read_to_string(copy.join("at")).unwrap(), "2999\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_container_is_gone_is_lost_and_may_be_tried_again() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let (call, _) = started(&run, "true").await;
    let of = (run.session, run.run);
    let container = world.containers().remove(0);
    world.kill();
    Command::new("docker").args(["rm", "-f", &container]).output().unwrap();
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.execute(&call, None).await.end(), "lost true");
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;

    fs::write(run.copy().join("go"), "").unwrap();
    let mut next = run.order(&call, None);
    next.call.as_mut().unwrap().attempt = 2;
    // That it cannot begin over another copy says nothing of the attempt that may have changed it.
    assert_eq!(run.send(next.clone()).await.unwrap().end(), "lost true");
    fs::remove_file(run.copy().join("go")).unwrap();
    world.sandbox().environment(run.session, run.run).unwrap().forget_seen();
    let stream = run.stream(next).await.unwrap();
    fs::write(run.copy().join("go"), "").unwrap();
    assert_eq!(super::run::read(stream).await.unwrap().end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_for_the_ledger_runs_once_when_it_may() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "echo x >> count"]).await;
    world.ledger.set_away(true);
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    drop(stream);
    let of = (run.session, run.run);
    world.kill();
    world.start().await;
    world.ledger.set_away(false);
    let run = again(&world, of);
    assert_eq!(run.execute(&call, None).await.end(), "exited 0");
    assert_eq!(fs::read_to_string(run.copy().join("count")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_and_bases_outlive_the_process() {
    let mut world = World::new(&[("a", "one\n"), (".env", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let opened = run.open().await.unwrap();
    run.sh("echo two > a").await;
    let of = (run.session, run.run);
    world.kill();
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.open().await.unwrap(), opened);
    let call = run.plan("import_patch", json!({})).await;
    assert_eq!(run.execute(&call, None).await.end(), "done");
    assert_eq!(fs::read_to_string(world.workspace().join("a")).unwrap(), "two\n");
    world.kill();
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.try_plan("import_patch", &json!({})).await.unwrap_err(), "PATCH_EMPTY");
    run.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_owns_any_more_is_removed_at_the_start() {
    let mut world = World::new(&[("a", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let (copy, of) = (run.copy(), (run.session, run.run));
    let instance = world.sandbox().instance.to_string();
    world.kill();
    // A copy that is gone, a directory of no run, a container of no lease.
    rustix::mount::unmount(&copy, rustix::mount::UnmountFlags::empty()).unwrap();
    let stray = world.dir.path().join("state/environments/0123456789abcdef0123456789abcdef");
    fs::create_dir_all(stray.join("copy/deep")).unwrap();
    let labels = [
        "--label=harness.owner=sandbox-svc".to_owned(),
        format!("--label=harness.instance={instance}"),
        "--label=harness.lease=gone".to_owned(),
    ];
    let made = Command::new("docker").arg("create").args(labels).args([IMAGE, "true"]).output();
    assert!(made.unwrap().status.success());
    world.start().await;
    world.sandbox().reconcile().await.unwrap();
    assert!(!stray.exists());
    world.emptied().await;
    let run = again(&world, of);
    assert_eq!(run.open().await.unwrap_err().reason, "ENVIRONMENT_LOST");
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_LOST");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_has_one_process() {
    let world = World::new(&[]).await;
    let config = world.config();
    let context = world.pki.context(transport::Service::SandboxSvc).unwrap();
    let refused = crate::bind(config, context).await.unwrap_err();
    assert!(matches!(refused, crate::Error::StateDir(Unusable::Owned { .. })), "{refused}");
}
