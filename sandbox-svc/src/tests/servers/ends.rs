//! How a tool server ends: by what it does, by limits, by people, by time, by a stop and by a kill at every place. Each
//! end is told as what it is, and nothing is left of any.

use std::fs;
use std::process::Command;
use std::time::Duration;

use event::id::{RunId, SessionId};
use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;

use super::super::run::Call;
use super::super::steps::of;
use super::super::world::containers;
use super::world::{World, allowed};

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_server_does_is_told_and_ends_it() {
    let world = World::hostile().await;
    let run = world.run(&allowed()).await;
    for (tool, end) in [
        ("die", "MCP_SERVER_FAILED"),
        ("noise", "MCP_SERVER_FAILED"),
        ("hang", "timed_out"),
        ("flood", "output_limit"),
        ("hog", "MCP_SERVER_FAILED"),
    ] {
        assert_eq!(run.list("s").await.end(), "done", "before {tool}");
        let told = run.call("s", tool, json!({})).await;
        assert_eq!(told.end(), end, "{tool}");
        match tool {
            "die" => assert!(told.detail().contains("no \u{1b}[31mmore"), "{}", told.detail()),
            "hog" => assert!(told.detail().contains("memory"), "{}", told.detail()),
            _ => (),
        }
        assert_eq!(world.containers(), Vec::<String>::new(), "after {tool}");
        let gone = run.try_plan("mcp_call", &json!({ "server": "s", "tool": "count" })).await;
        assert_eq!(gone.unwrap_err(), "MCP_NOT_LISTED", "after {tool}");
    }
    world.told_of(&run.stream_id(), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_asks_or_says_much_goes_on() {
    let world = World::hostile().await;
    let run = world.run(&allowed()).await;
    run.list("s").await;
    let before = world.containers();
    let refused = run.call("s", "refuse", json!({})).await;
    assert_eq!(refused.end(), "MCP_REFUSED");
    assert!(refused.detail().contains("not for you"), "{}", refused.detail());
    let asked = run.call("s", "ask", json!({})).await.result();
    assert_eq!(asked["content"][0]["text"], "-32601");
    let wide = run.call("s", "wide", json!({})).await.result();
    assert_eq!((&wide["isError"], &wide["content"][0]["bytes"]), (&json!(true), &json!(40_000)));
    assert_eq!(world.containers(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_no_server_is_told_and_nothing_is_left() {
    let world = World::new(&[
        ("hostile.py", "print('Starting up')\n"),
        ("notes.py", "import sys\nsys.exit('no notes here')\n"),
    ])
    .await;
    let run = world.run(&allowed()).await;
    for (server, said) in [("s", "no message"), ("notes", "no notes here")] {
        let told = run.list(server).await;
        assert_eq!(told.end(), "MCP_SERVER_FAILED");
        assert!(told.detail().contains(said), "{}", told.detail());
        assert_eq!(world.containers(), Vec::<String>::new());
    }
    let session = world.sandbox().store.servers().await.unwrap();
    assert_eq!(session, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_canceled_ends_its_server() {
    let world = World::hostile().await;
    let run = world.run(&allowed()).await;
    run.list("s").await;
    let call = run.plan("mcp_call", json!({ "server": "s", "tool": "hang" })).await;
    let log = run.copy().join("hang.log");
    let cancel = async {
        while !log.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(run.cancel(call.id).await);
    };
    let (told, ()) = tokio::join!(run.execute(&call, None), cancel);
    assert_eq!(told.end(), "canceled");
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_with_time_with_a_stop_and_with_what_others_do_to_it() {
    let mut world = World::hostile().await;
    let run = world.run(&allowed()).await;
    run.list("s").await;
    let sandbox = world.sandbox();
    // Nothing that stands still is a leftover.
    sandbox.reconcile().await.unwrap();
    assert_eq!(world.containers().len(), 1);
    let asked = run.plan("mcp_call", json!({ "server": "s", "tool": "count" })).await;
    sandbox.end_idle_servers(Duration::ZERO).await.unwrap();
    assert_eq!(world.containers().len(), 1, "somebody may be asked about the call");
    assert_eq!(run.execute(&asked, None).await.end(), "done");
    sandbox.end_idle_servers(Duration::ZERO).await.unwrap();
    assert_eq!(world.containers(), Vec::<String>::new());
    fs::remove_file(run.copy().join("count.log")).unwrap();

    run.list("s").await;
    Command::new("docker").args(["kill", &world.containers()[0]]).output().unwrap();
    let lost = run.call("s", "count", json!({})).await;
    assert_eq!(lost.end(), "MCP_NOT_LISTED");
    assert_eq!(world.containers(), Vec::<String>::new());
    assert!(!run.copy().join("count.log").exists());

    run.list("s").await;
    let (instance, stream) = (world.sandbox().instance.to_string(), run.stream_id());
    world.0.stop().await;
    assert_eq!(containers(&instance), Vec::<String>::new());
    world.told_of(&stream, 3).await;
}

/// Whether the engine says that it runs.
fn runs(id: &str) -> bool {
    let format = "{{.State.Running}}";
    let seen = Command::new("docker").args(["inspect", "-f", format, id]).output().unwrap();
    String::from_utf8_lossy(&seen.stdout).trim() == "true"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_caller_is_killed_ends_by_itself() {
    let mut world = World::hostile().await;
    let run = world.run(&allowed()).await;
    run.list("s").await;
    let call = run.plan("mcp_call", json!({ "server": "s", "tool": "hang" })).await;
    let log = run.copy().join("hang.log");
    let id = (run.session, run.run);
    let server = world.containers().remove(0);
    let executing = run.send(run.order(&call, None));
    let begun = async {
        while !log.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        told = executing => panic!("{told:?}"),
        () = begun => (),
    }
    world.0.kill();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while runs(&server) {
        assert!(tokio::time::Instant::now() < until, "the server goes on without its caller");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.0.start().await;
    let run = of(&world, id.0, id.1);
    assert_eq!(run.execute(&call, None).await.end(), "lost true");
    // The next attempt cannot begin, for the server is gone; that says nothing of the one that is lost.
    let mut again = run.order(&call, None);
    again.call.as_mut().unwrap().attempt = 2;
    assert_eq!(run.send(again).await.unwrap().end(), "lost true");
    world.emptied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_at_most_once_whatever_dies() {
    each_place(6, async |run: (SessionId, RunId), world: &mut World| {
        let run = of(world, run.0, run.1);
        run.list("s").await;
        run.plan("mcp_call", json!({ "server": "s", "tool": "count" })).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_started_at_most_once_whatever_dies() {
    each_place(8, async |run: (SessionId, RunId), world: &mut World| {
        let run = of(world, run.0, run.1);
        run.plan("mcp_tools", json!({ "server": "s" })).await
    })
    .await;
}

/// Dies at each place that the call passes; `least` of them there must be.
async fn each_place(least: usize, plan: impl AsyncFn((SessionId, RunId), &mut World) -> Call) {
    for place in 0.. {
        let mut world = World::hostile().await;
        let run = world.run(&allowed()).await;
        let id = (run.session, run.run);
        world.0.kill();
        world.0.start_stopping_at(usize::MAX).await;
        let call = plan(id, &mut world).await;
        world.sandbox().failpoint.stop_after(place);

        let first = of(&world, id.0, id.1);
        let whole = first.send(first.order(&call, None)).await.is_ok();
        let copy = first.copy();
        world.0.kill();
        world.0.start().await;
        let run = of(&world, id.0, id.1);
        let end = run.execute(&call, None).await.end();
        let ends = ["done", "lost true", "MCP_NOT_LISTED", "PLAN_STALE"];
        assert!(ends.contains(&end.as_str()), "killed at place {place}: {end}");
        let count = fs::read_to_string(copy.join("count.log")).unwrap_or_default();
        assert!(["", "x\n"].contains(&count.as_str()), "killed at place {place}: {count}");
        assert!(matches!(run.look_up(call.id).await, State::Finished(_)));
        run.close().await.unwrap();
        world.emptied().await;
        assert_eq!(world.sandbox().store.servers().await.unwrap(), []);
        let (ledger, stream) = (&world.ledger, run.stream_id());
        let count = |kind: &str| ledger.kinds(&stream).iter().filter(|it| **it == kind).count();
        ledger.wait(|_| count("call.finished") > 0).await;
        ledger.wait(|_| count("sandbox.started") == count("sandbox.stopped")).await;
        if whole {
            assert!(place >= least, "only {place} places were tried");
            return;
        }
    }
}
