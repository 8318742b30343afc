//! The service dies at every place that it passes, and another one goes on: each effect happens once or not
//! at all, nothing is left, and the ledger tells what happened.

use std::fs;

use event::id::{RunId, SessionId};
use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;

use super::run::{Call, Run};
use super::world::{World, open_manifest};

/// The same run, driven through the present process.
pub(super) fn of(world: &World, session: SessionId, run: RunId) -> Run<'_> {
    let owner = proto::common::v1::Owner {
        session_id: session.to_string(),
        node: "node-a".to_owned(),
        epoch: 1,
    };
    Run { world, session, owner, run }
}

/// Executes `call` in a process that dies at `place`, then in one that lives. Says whether the first came
/// to an end by itself.
pub(super) async fn killed_at(
    world: &mut World,
    run: (SessionId, RunId),
    call: &Call,
    place: usize,
) -> (bool, String) {
    world.kill();
    world.start_stopping_at(place).await;
    let first = of(world, run.0, run.1);
    let whole = first.send(first.order(call, None)).await.is_ok();
    world.kill();
    world.start().await;
    let second = of(world, run.0, run.1);
    (whole, second.execute(call, None).await.end())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_at_most_once_whatever_dies() {
    for place in 0.. {
        let mut world = World::new(&[]).await;
        let run = world.run(&open_manifest()).await;
        let call = run.plan_exec(&["sh", "-c", "echo x >> count"]).await;
        let id = (run.session, run.run);

        let (whole, end) = killed_at(&mut world, id, &call, place).await;
        let run = of(&world, id.0, id.1);
        assert_eq!(end, "exited 0", "killed at place {place}");
        assert_eq!(fs::read_to_string(run.copy().join("count")).unwrap(), "x\n", "place {place}");
        assert_eq!(world.containers(), Vec::<String>::new(), "place {place}");
        assert!(matches!(run.look_up(call.id).await, State::Finished(_)));
        let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
        world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
        if whole {
            assert!(place >= 7, "only {place} places were tried");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_whole_or_not_at_all_whatever_dies() {
    for place in 0.. {
        let mut world = World::new(&[("a", "one"), ("d/x", "x"), ("gone", "x")]).await;
        let run = world.run(&open_manifest()).await;
        let script = "echo two > a; rm gone; rm -r d; echo file > d; mkdir n; echo deep > n/m";
        assert_eq!(run.sh(script).await.end(), "exited 0");
        let call = run.plan("import_patch", json!({})).await;
        let id = (run.session, run.run);

        let (whole, end) = killed_at(&mut world, id, &call, place).await;
        assert_eq!(end, "done", "killed at place {place}");
        let host = world.workspace();
        let read = |name: &str| fs::read_to_string(host.join(name)).unwrap();
        assert_eq!([read("a"), read("d"), read("n/m")], ["two\n", "file\n", "deep\n"]);
        let mut names: Vec<_> =
            fs::read_dir(&host).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "d", "n"], "place {place}");
        let run = of(&world, id.0, id.1);
        assert_eq!(run.try_plan("import_patch", &json!({})).await.unwrap_err(), "PATCH_EMPTY");
        if whole {
            assert!(place >= 18, "only {place} places were tried");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_whole_or_not_at_all_whatever_dies() {
    for place in 0.. {
        let mut world = World::new(&[("a", "one"), ("gone", "x")]).await;
        let run = world.run(&open_manifest()).await;
        let digest = |bytes: &[u8]| event::Digest::of(bytes).to_string();
        let changes = json!([
            { "path": "a", "expectedDigest": digest(b"one"), "content": "two" },
            { "path": "n/m/o", "expectedDigest": null, "content": "deep" },
            { "path": "p", "expectedDigest": null, "content": "p" },
        ]);
        let call = run.plan("apply_edits", json!({ "changes": changes })).await;
        let id = (run.session, run.run);
        let copy = run.copy();
        world.kill();
        world.start_stopping_at(place).await;
        let first = of(&world, id.0, id.1);
        let whole = first.send(first.order(&call, None)).await.is_ok();
        world.kill();
        // Between the two processes the service's own directory may be there, and each file is old or new.
        let now = fs::read_to_string(copy.join("a")).unwrap();
        assert!(["one", "two"].contains(&now.as_str()), "place {place}: {now}");
        world.start().await;
        let run = of(&world, id.0, id.1);
        assert_eq!(run.execute(&call, None).await.end(), "done", "killed at place {place}");
        let read = |name: &str| fs::read_to_string(copy.join(name)).unwrap();
        assert_eq!([read("a"), read("n/m/o"), read("p")], ["two", "deep", "p"], "place {place}");
        let mut names: Vec<_> =
            fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "gone", "n", "p"], "place {place}");
        let audit = run.plan("mutation_audit", json!({})).await.result.unwrap();
        assert_eq!(audit["mutations"].as_array().unwrap().len(), 5, "place {place}");
        if whole {
            assert!(place >= 15, "only {place} places were tried");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantined_file_is_never_lost_whatever_dies() {
    for place in 0.. {
        let mut world = World::new(&[("a", "one")]).await;
        let run = world.run(&open_manifest()).await;
        let digest = event::Digest::of(b"one").to_string();
        let call =
            run.plan("quarantine_file", json!({ "path": "a", "expectedDigest": digest })).await;
        let id = (run.session, run.run);
        let (whole, end) = killed_at(&mut world, id, &call, place).await;
        assert_eq!(end, "done", "killed at place {place}");
        let run = of(&world, id.0, id.1);
        assert!(!run.copy().join("a").exists(), "place {place}");
        let quarantine = format!("q-{}", call.id.as_uuid().simple());
        let back = run.plan("restore_file", json!({ "quarantineId": quarantine })).await;
        assert_eq!(run.execute(&back, None).await.end(), "done", "place {place}");
        assert_eq!(fs::read_to_string(run.copy().join("a")).unwrap(), "one", "place {place}");
        if whole {
            assert!(place >= 8, "only {place} places were tried");
            return;
        }
    }
}
