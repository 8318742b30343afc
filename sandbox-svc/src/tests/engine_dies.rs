//! The engine itself dies and comes back, before a command and in the middle of one: what is told is what is known,
//! nothing is left, and the next command runs. The engine is the test's own.

use std::fs;
use std::time::Duration;

use event::id::SessionId;
use futures::StreamExt as _;
use proto::common::v1::Owner;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;

use super::own_engine::OwnEngine;
use super::run::{Call, Run, Told};
use super::world::{LIMIT, World, open_manifest};

/// A command that says and does something, and then goes on until the file `go` appears.
async fn begun(
    run: &Run<'_>,
    then: &str,
) -> (Call, tonic::Streaming<proto::sandbox::v1::ExecuteResponse>) {
    let script =
        format!("echo ran >> ran; echo begin; until [ -e go ]; do sleep 0.05; done; {then}");
    let call = run.plan_exec(&["sh", "-c", &script]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    while !matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Output(_))) {}
    (call, stream)
}

/// Asks like agent-svc does: again, as long as the end is not proven.
async fn settled(run: &Run<'_>, call: &Call) -> Told {
    let asked = async {
        loop {
            match run.send(run.order(call, None)).await {
                Ok(told) => return told,
                Err(fault) => assert_eq!(fault.reason, "CLEANUP_UNCERTAIN"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(LIMIT, asked).await.expect("a settled call")
}

async fn says_that_the_engine_is_away(world: &World, run: &Run<'_>) {
    let planned = run.try_plan("process.exec", &json!({ "argv": ["true"] })).await;
    assert_eq!(planned.unwrap_err(), "ENGINE_UNAVAILABLE");
    let session = SessionId::new();
    let owner = Owner { session_id: session.to_string(), node: "node-a".to_owned(), epoch: 1 };
    let text = open_manifest();
    let grant = world.sign(&world.grant(session, &text));
    let refused = world.fence(&owner, &grant, &text).await.unwrap_err();
    assert_eq!(refused.reason, "ENGINE_UNAVAILABLE");
    // What needs no engine goes on.
    assert!(run.plan("list_files", json!({})).await.result.is_some());
}

fn nothing_of_a_command_is_left(engine: &OwnEngine, world: &World, copies: usize) {
    assert_eq!(engine.containers(), Vec::<String>::new());
    assert_eq!(engine.volumes_and_networks(), Vec::<String>::new());
    assert_eq!(engine.commands(), Vec::<i32>::new());
    let state = world.dir.path().join("state").display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(mounts.lines().filter(|line| line.contains(&state)).count(), copies, "{mounts}");
}

async fn nothing_is_left(engine: &OwnEngine, world: &World, copies: usize) {
    nothing_of_a_command_is_left(engine, world, copies);
    // The engine's own keeper of a container ends a moment after it.
    let ended = async {
        while !engine.processes().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.expect("no process of the engine's containers");
}

fn finished_as(world: &World, run: &Run<'_>) -> Vec<(event::SandboxStatus, Option<i32>)> {
    let entries = world.ledger.entries().into_iter().filter(|it| it.session == run.stream_id());
    let of = |data| match data {
        event::Data::SandboxStopped(stopped) => Some((stopped.status, stopped.exit_code)),
        _ => None,
    };
    entries.filter_map(|entry| of(entry.event.data)).collect()
}

async fn killed_in_mid_run(with_containerd: bool) {
    let mut engine = OwnEngine::start(&[]);
    let world = World::with(&[], &engine.socket(), "host-tmpfs").await;
    let other = world.run(&open_manifest()).await;
    let run = world.run(&open_manifest()).await;
    let (call, stream) = begun(&run, "exit 0").await;
    let container = engine.containers().remove(0);
    engine.kill(with_containerd);
    assert_ne!(engine.processes(), Vec::<i32>::new(), "the command goes on without its engine");
    assert_eq!(super::run::read(stream).await.unwrap_err().reason, "CLEANUP_UNCERTAIN");
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "RUN_BUSY");
    says_that_the_engine_is_away(&world, &other).await;
    let kinds = ["call.started", "sandbox.started"];
    assert_eq!(world.ledger.kinds(&run.stream_id()), kinds);

    // The engine ends what ran without it.
    engine.bring_back();
    let told = settled(&run, &call).await;
    assert_eq!(told.end(), "lost true");
    assert!(told.finished.output_incomplete);
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
    assert_eq!(finished_as(&world, &run), [(event::SandboxStatus::Failed, None)]);
    assert!(matches!(run.look_up(call.id).await, State::Finished(_)));
    nothing_is_left(&engine, &world, 2).await;
    let mut groups = std::process::Command::new("find");
    let groups = groups.args(["/sys/fs/cgroup", "-name", &container]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&groups.stdout), "");

    // The same call is told the same; another one runs, and both copies are as they were.
    assert_eq!(run.execute(&call, None).await.end(), "lost true");
    let told = run.sh("cat ran; echo on").await;
    assert_eq!((told.end(), told.text()), ("exited 0".to_owned(), "ran\non\n".to_owned()));
    assert_eq!(other.sh("true").await.end(), "exited 0");
    nothing_is_left(&engine, &world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_in_mid_run_leaves_an_unknown_end_and_nothing_else() {
    killed_in_mid_run(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_with_its_containerd_leaves_the_same() {
    killed_in_mid_run(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_outlives_its_engine_is_taken_over() {
    let mut engine = OwnEngine::start(&["--live-restore"]);
    let world = World::with(&[], &engine.socket(), "host-tmpfs").await;
    let run = world.run(&open_manifest()).await;
    let (call, stream) = begun(&run, "echo end; exit 4").await;
    engine.kill(false);
    assert_eq!(super::run::read(stream).await.unwrap_err().reason, "CLEANUP_UNCERTAIN");
    engine.bring_back();
    fs::write(run.copy().join("go"), "").unwrap();
    let told = settled(&run, &call).await;
    assert_eq!((told.end(), told.finished.output_incomplete), ("exited 4".to_owned(), true));
    assert_eq!(fs::read_to_string(run.copy().join("ran")).unwrap(), "ran\n");
    nothing_is_left(&engine, &world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_while_its_engine_is_away_is_collected() {
    let mut engine = OwnEngine::start(&[]);
    let world = World::with(&[], &engine.socket(), "host-tmpfs").await;
    let run = world.run(&open_manifest()).await;
    let (call, stream) = begun(&run, "exit 4").await;
    engine.kill(false);
    assert_eq!(super::run::read(stream).await.unwrap_err().reason, "CLEANUP_UNCERTAIN");
    fs::write(run.copy().join("go"), "").unwrap();
    while engine.processes().len() > 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.bring_back();
    let told = settled(&run, &call).await;
    assert_eq!((told.end(), told.finished.output_incomplete), ("exited 4".to_owned(), true));
    nothing_is_left(&engine, &world, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_engine_a_command_does_not_begin_and_with_it_again_it_does() {
    let mut engine = OwnEngine::start(&[]);
    let mut world = World::with(&[("a", "x")], &engine.socket(), "host-tmpfs").await;
    world.warm = 1;
    world.kill();
    world.start().await;
    let run = world.run(&open_manifest()).await;
    let waits = async || {
        let filled = world.sandbox().pool.filled(run.run);
        tokio::time::timeout(LIMIT, filled).await.expect("one waits");
    };
    waits().await;
    let planned = run.plan_exec(&["sh", "-c", "echo ran >> ran"]).await;
    engine.kill(true);
    let refused = run.send(run.order(&planned, None)).await.unwrap_err();
    assert_eq!(refused.reason, "ENGINE_UNAVAILABLE");
    assert!(matches!(run.look_up(planned.id).await, State::NotFound(_)));
    assert_eq!(world.ledger.kinds(&run.stream_id()), Vec::<&str>::new());
    says_that_the_engine_is_away(&world, &run).await;

    // The one that waited went with its engine; what waits now is as good as it was.
    engine.bring_back();
    assert_eq!(run.execute(&planned, None).await.end(), "exited 0");
    assert_eq!(fs::read_to_string(run.copy().join("ran")).unwrap(), "ran\n");
    waits().await;
    assert_eq!(run.sh("cat a").await.text(), "x");
    waits().await;
    run.close().await.unwrap();
    world.sandbox().reconcile().await.unwrap();
    nothing_is_left(&engine, &world, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_whichever_step_the_engine_dies_what_is_told_is_what_happened() {
    let mut engine = OwnEngine::start(&[]);
    let mut world = World::with(&[], &engine.socket(), "host-tmpfs").await;
    let mut ends = Vec::new();
    for place in [
        "call-acknowledged",
        "exec-creating",
        "exec-held",
        "exec-created",
        "exec-started",
        "exec-ordered",
        "exec-ended",
        "exec-settled",
    ] {
        world.kill();
        world.start_running_at(place, &engine.killing(place)).await;
        let run = world.run(&open_manifest()).await;
        let call = run.plan_exec(&["sh", "-c", "echo ran >> ran"]).await;
        // Told at once, or not proven before the engine is back.
        let first = async {
            match run.send(run.order(&call, None)).await {
                Ok(told) => Some(told.end()),
                Err(fault) => {
                    assert_eq!(fault.reason, "CLEANUP_UNCERTAIN", "{place}");
                    None
                }
            }
        };
        let back = async {
            while engine.try_say(&["version"]).is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            engine.bring_back();
        };
        let (first, ()) = tokio::join!(first, back);
        let told = settled(&run, &call).await;
        let end = told.end();
        assert!(first.is_none_or(|first| first == end), "{place}");
        let ran = fs::read_to_string(run.copy().join("ran")).unwrap_or_default();
        let fits = match end.as_str() {
            "exited 0" => ran == "ran\n",
            "lost true" => ["", "ran\n"].contains(&ran.as_str()),
            other => other.starts_with("start_failed") && ran.is_empty(),
        };
        assert!(fits, "{place}: {end} and {ran:?}");
        assert_eq!(run.sh("true").await.end(), "exited 0", "{place}");
        run.close().await.unwrap();
        // Killed while it takes note of an end, the engine may forget its own keeper, which is empty then.
        nothing_of_a_command_is_left(&engine, &world, 0);
        ends.push((place, end));
    }
    assert!(ends.iter().any(|(_, end)| end.starts_with("start_failed")), "{ends:?}");
    assert!(ends.iter().any(|(_, end)| end == "exited 0"), "{ends:?}");
}
