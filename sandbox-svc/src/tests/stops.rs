//! The service is asked to stop, its sessions run out, its leftovers are purged: nothing runs unwatched, and
//! nothing is kept for ever.

use std::fs;
use std::time::Duration;

use futures::StreamExt as _;
use proto::sandbox::v1::execute_response::Message;
use serde_json::json;

use super::run::{Call, Run, read};
use super::world::{ENGINE, World, containers, open_manifest};
use crate::purge::{Purge, Purged};
use crate::session::now_secs;

/// The same run, driven through the new process.
fn again<'a>(world: &'a World, of: (event::id::SessionId, event::id::RunId)) -> Run<'a> {
    let owner = proto::common::v1::Owner {
        session_id: of.0.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    Run { world, session: of.0, owner, run: of.1 }
}

type Told = tonic::Streaming<proto::sandbox::v1::ExecuteResponse>;

async fn asleep(run: &Run<'_>) -> (Call, Told) {
    let call = run.plan_exec(&["sleep", "600"]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    assert!(matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Started(_))));
    (call, stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_what_runs_and_says_so() {
    let mut world = World::new(&[("a", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let of = (run.session, run.run);
    let (call, stream) = asleep(&run).await;
    let (instance, stream_id) = (world.sandbox().instance.to_string(), run.stream_id());
    assert_eq!(world.containers().len(), 1);
    let (told, ()) = tokio::join!(read(stream), world.stop());
    assert_eq!(containers(&instance), Vec::<String>::new());
    let told = told.unwrap();
    assert_eq!((told.end(), &told.result()["status"]), ("canceled".to_owned(), &json!("canceled")));
    // The ledger has it all before the process is gone.
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    assert_eq!(world.ledger.kinds(&stream_id), kinds);

    // The run itself goes on: its copy was kept, and the call has its one outcome.
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.execute(&call, None).await.finished, told.finished);
    assert_eq!(run.sh("cat a").await.result()["stdout"], json!("x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_recorded_though_the_ledger_is_away() {
    let mut world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let of = (run.session, run.run);
    let waiting = run.plan_exec(&["true"]).await;
    world.ledger.set_away(true);
    let stream = run.stream(run.order(&waiting, None)).await.unwrap();
    let (told, ()) = tokio::join!(read(stream), world.stop());
    assert_eq!(told.unwrap().end(), "canceled");
    world.ledger.set_away(false);
    world.start().await;
    let run = again(&world, of);
    world
        .ledger
        .wait(|_| world.ledger.kinds(&run.stream_id()) == ["call.started", "call.finished"])
        .await;
    assert_eq!(run.execute(&waiting, None).await.end(), "canceled");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_closed_when_its_grant_ran_out_long_ago() {
    let world = World::new(&[("a", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let copy = run.copy();
    let (expiry, kept) = (now_secs() + 3600, Duration::from_secs(7 * 86_400).as_secs());
    // Some seconds may have passed since the grant was signed.
    world.sandbox().sweep_environments(expiry + kept - 120).await.unwrap();
    assert_eq!(run.sh("cat a").await.end(), "exited 0");
    world.sandbox().sweep_environments(expiry + kept).await.unwrap();
    assert!(!copy.exists());
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    assert_eq!(run.open().await.unwrap_err().reason, "ENVIRONMENT_UNKNOWN");
}

fn purge(world: &World, engine: bool) -> Purge {
    Purge {
        purge: true,
        state_dir: world.dir.path().join("state"),
        engine_socket: engine.then(|| ENGINE.into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_ends_every_environment_of_a_stopped_service() {
    let mut world = World::new(&[("a", "x")]).await;
    let refused = purge(&world, true).run().await.unwrap_err();
    assert!(matches!(refused, crate::Error::StateDir(_)), "{refused}");

    let run = world.run(&open_manifest()).await;
    let of = (run.session, run.run);
    run.sh("echo y > a").await;
    let (call, stream) = asleep(&run).await;
    drop(stream);
    let (copy, instance) = (run.copy(), world.sandbox().instance.to_string());
    world.kill();
    assert_eq!(containers(&instance).len(), 1);

    let refused = purge(&world, false).run().await.unwrap_err();
    assert!(refused.to_string().contains("--engine-socket"), "{refused}");
    let purged = purge(&world, true).run().await.unwrap();
    assert_eq!(purged, Purged { containers: 1, environments: 1 });
    assert_eq!(containers(&instance), Vec::<String>::new());
    assert!(!copy.exists());
    let environments = world.dir.path().join("state/environments");
    assert_eq!(fs::read_dir(&environments).unwrap().count(), 0);
    let again_purged = purge(&world, true).run().await.unwrap();
    assert_eq!(again_purged, Purged::default());

    // The next start tells what became of the command; the closure is on record.
    world.start().await;
    let run = again(&world, of);
    assert_eq!(run.execute(&call, None).await.end(), "lost true");
    assert_eq!(run.open().await.unwrap_err().reason, "ENVIRONMENT_UNKNOWN");
    world.stop().await;
    fs::remove_dir_all(world.dir.path().join("state")).unwrap();
}
