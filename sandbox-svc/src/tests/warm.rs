//! Containers that wait: each is started before its command is known, runs one or none, and is gone afterwards.

use std::fs;
use std::process::Command;
use std::time::Duration;

use event::id::{RunId, SessionId};
use serde_json::json;

use super::run::{Run, Told};
use super::world::{World, containers, open_manifest};

async fn warm() -> World {
    let mut world = World::new(&[("a", "x")]).await;
    world.warm = 2;
    world.kill();
    world.start().await;
    world
}

async fn waits(run: &Run<'_>) -> String {
    let filled = run.world.sandbox().pool.filled(run.run);
    let id = tokio::time::timeout(super::world::LIMIT, filled).await.expect("one waits");
    id.as_str().to_owned()
}

/// The container that the ledger was told of.
fn container(told: &Told) -> String {
    let data: serde_json::Value = serde_json::from_slice(told.started.as_ref().unwrap()).unwrap();
    let stopped: serde_json::Value = serde_json::from_slice(&told.finished.stopped_data).unwrap();
    assert_eq!(data["containerName"], stopped["containerName"]);
    data["containerName"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_the_container_that_waited_and_the_next_one_in_another() {
    let world = warm().await;
    let run = world.run(&open_manifest()).await;
    let first = waits(&run).await;
    assert_eq!(world.containers(), std::slice::from_ref(&first));
    let told = run.sh("cat a; echo y > b; exit 3").await;
    assert_eq!((told.end(), told.text()), ("exited 3".to_owned(), "x".to_owned()));
    assert!(container(&told).starts_with("sbx-p"));
    assert_eq!(fs::read_to_string(run.copy().join("b")).unwrap(), "y\n");
    let second = waits(&run).await;
    assert_ne!(first, second);
    assert_eq!(world.containers(), std::slice::from_ref(&second));
    // Nothing of a run that waits is a leftover.
    world.sandbox().reconcile().await.unwrap();
    assert_eq!(world.containers(), [second]);
    assert!(container(&run.sh("true").await).starts_with("sbx-p"));
    waits(&run).await;
    run.close().await.unwrap();
    assert_eq!(world.containers(), Vec::<String>::new());
    let kinds = world.ledger.kinds(&run.stream_id());
    assert_eq!(kinds.iter().filter(|kind| **kind == "sandbox.started").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_container_that_died_is_nobodys_end() {
    let world = warm().await;
    let run = world.run(&open_manifest()).await;
    let id = waits(&run).await;
    Command::new("docker").args(["kill", &id]).output().unwrap();
    let told = run.sh("cat a").await;
    assert_eq!((told.end(), told.text()), ("exited 0".to_owned(), "x".to_owned()));
    assert!(!container(&told).starts_with("sbx-p"));
    // A shorter time is no other container; the clock is the frame's.
    waits(&run).await;
    let call =
        run.plan("process.exec", json!({ "argv": ["sleep", "60"], "timeoutSeconds": 1 })).await;
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "timed_out");
    assert!(container(&told).starts_with("sbx-p"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_goes_with_time_with_a_stop_and_with_a_kill() {
    let mut world = warm().await;
    let run = world.run(&open_manifest()).await;
    waits(&run).await;
    world.sandbox().cool_older(Duration::ZERO).await;
    assert_eq!(world.containers(), Vec::<String>::new());
    run.sh("true").await;
    waits(&run).await;
    let instance = world.sandbox().instance.to_string();
    world.stop().await;
    assert_eq!(containers(&instance), Vec::<String>::new());

    world.start().await;
    let run = world.run(&open_manifest()).await;
    let id = waits(&run).await;
    world.kill();
    // Nobody holds its way in any more, so it ends by itself, without having run anything.
    let ended = Command::new("docker").args(["wait", &id]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "125\n");
    world.start().await;
    world.sandbox().reconcile().await.unwrap();
    world.emptied().await;
}

/// The same run, driven through the present process.
fn of(world: &World, session: SessionId, run: RunId) -> Run<'_> {
    let owner = proto::common::v1::Owner {
        session_id: session.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    Run { world, session, owner, run }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_waiting_container_runs_at_most_once_whatever_dies() {
    for place in 0.. {
        let mut world = World::new(&[]).await;
        let run = world.run(&open_manifest()).await;
        let id = (run.session, run.run);
        run.close().await.unwrap();
        world.warm = 1;
        world.kill();
        world.start_stopping_at(place).await;
        let opened = Run { run: RunId::new(), ..of(&world, id.0, id.1) };
        let id = (id.0, opened.run);
        let mut planned = None;
        let mut whole = false;
        if opened.open().await.is_ok() {
            // None waits when it died on the way.
            let filled = world.sandbox().pool.filled(opened.run);
            tokio::time::timeout(Duration::from_secs(3), filled).await.ok();
            let call = opened.plan_exec(&["sh", "-c", "echo x >> count"]).await;
            whole = opened.send(opened.order(&call, None)).await.is_ok();
            planned = Some(call);
        }
        world.kill();
        world.start().await;
        let run = of(&world, id.0, id.1);
        let call = match planned {
            Some(call) => call,
            None => {
                run.open().await.unwrap();
                run.plan_exec(&["sh", "-c", "echo x >> count"]).await
            }
        };
        assert_eq!(run.execute(&call, None).await.end(), "exited 0", "killed at place {place}");
        assert_eq!(fs::read_to_string(run.copy().join("count")).unwrap(), "x\n", "place {place}");
        let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
        world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
        run.close().await.unwrap();
        world.sandbox().reconcile().await.unwrap();
        world.emptied().await;
        if whole {
            assert!(place >= 9, "only {place} places were tried");
            return;
        }
    }
}
