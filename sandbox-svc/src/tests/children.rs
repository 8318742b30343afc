//! Runs that work in another run's copy: only once a call of that run's was admitted, only within their profile, and only
//! as long as that copy is there.

use event::id::{RunId, SessionId};
use receipt::Scope;
use serde_json::{Value, json};

use super::run::Run;
use super::world::{World, asking_manifest, manifest, open_manifest};

fn delegation(profile: &str) -> Value {
    json!({ "profile": profile, "task": "look around" })
}

/// Nobody is asked about children.
fn with_children(of: &str) -> String {
    of.replace("  fs.list: allow\n", "  fs.list: allow\n  delegate: allow\n")
}

/// The child that `run` delegated to, with the copy open to it.
async fn child<'a>(run: &Run<'a>, profile: &str) -> Run<'a> {
    let call = run.plan("delegate", delegation(profile)).await;
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "done");
    let id = RunId::from(*call.id.as_uuid());
    assert_eq!(told.result(), json!({ "childRunId": id.to_string(), "profile": profile }));
    let child = Run { run: id, ..run.clone() };
    child.open().await.unwrap();
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_begins_only_by_an_admitted_call_and_works_in_its_parents_copy() {
    let world = World::new(&[("a.txt", "one\n")]).await;
    let run = world.run(&asking_manifest()).await;
    let call = run.plan("delegate", delegation("explorer")).await;
    assert_eq!(call.plan.subject, Some("explorer".into()));
    assert_eq!(call.plan.task.as_deref(), Some("look around"));
    let stranger = Run { run: RunId::from(*call.id.as_uuid()), ..run.clone() };
    let read = json!({ "path": "a.txt" });
    assert_eq!(stranger.try_plan("read_file", &read).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(told.end(), "done");
    let opened = stranger.open().await.unwrap();
    assert_eq!(opened.base_digest, run.open().await.unwrap().base_digest);
    let seen = stranger.plan("read_file", read).await;
    assert_eq!((seen.plan.run, seen.result.is_some()), (stranger.run, true));
    let kinds = ["call.started", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_profile_lacks_is_denied_whatever_the_manifest_allows() {
    let world = World::new(&[("a.txt", "one\n")]).await;
    let run = world.run(&with_children(&open_manifest())).await;
    for (profile, forbidden) in [
        ("explorer", &["process.exec", "import_patch", "delegate"][..]),
        ("reviewer", &["process.exec", "import_patch", "delegate"]),
        ("tester", &["process.exec", "import_patch", "delegate"]),
        ("implementer", &["import_patch", "delegate"]),
    ] {
        let child = child(&run, profile).await;
        for tool in forbidden {
            let arguments = json!({});
            let refused = child.plan_or_refusal(tool, &arguments).await.unwrap_err();
            assert_eq!(refused.reason, "TOOL_NOT_IN_PROFILE", "{profile} {tool}");
        }
        assert!(child.try_plan("read_file", &json!({ "path": "a.txt" })).await.is_ok());
        child.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allow_for_the_parents_run_does_not_admit_its_child() {
    let world = World::new(&[]).await;
    let run = world.run(&with_children(&asking_manifest())).await;
    let first = run.plan_exec(&["true"]).await;
    let for_the_run = run.receipt(&first, Scope::Run);
    assert_eq!(run.execute_with(&first, &[&for_the_run]).await.end(), "exited 0");
    let again = run.plan_exec(&["true"]).await;
    assert_eq!(run.execute_with(&again, &[&for_the_run]).await.end(), "exited 0");
    let child = child(&run, "implementer").await;
    let same = child.plan_exec(&["true"]).await;
    assert_eq!(same.plan.action_digest(), first.plan.action_digest());
    assert_eq!(child.execute_with(&same, &[&for_the_run]).await.end(), "RECEIPT_RUN_MISMATCH");
    let own = child.receipt(&same, Scope::Once);
    assert_eq!(child.execute_with(&same, &[&own]).await.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_child_changes_is_its_parents_to_see() {
    let world = World::new(&[]).await;
    let run = world.run(&with_children(&open_manifest())).await;
    let child = child(&run, "implementer").await;
    assert_eq!(child.sh("echo made > made.txt").await.end(), "exited 0");
    child.close().await.unwrap();
    assert_eq!(run.sh("cat made.txt").await.text(), "made\n");
    let read = json!({ "path": "made.txt" });
    assert_eq!(child.try_plan("read_file", &read).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    let again = child.open().await.unwrap_err();
    assert_eq!(again.reason, "ENVIRONMENT_UNKNOWN", "it never has a copy of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_one_child_at_a_time() {
    let world = World::new(&[]).await;
    let run = world.run(&with_children(&open_manifest())).await;
    let second = run.plan("delegate", delegation("explorer")).await;
    let first = child(&run, "explorer").await;
    assert_eq!(run.try_plan("delegate", &delegation("explorer")).await.unwrap_err(), "CHILD_OPEN");
    assert_eq!(run.execute(&second, None).await.end(), "CHILD_OPEN");
    first.close().await.unwrap();
    child(&run, "explorer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_belongs_to_one_session_and_goes_with_its_parents_copy() {
    let world = World::new(&[]).await;
    let rules = with_children(&open_manifest());
    let (run, other) = (world.run(&rules).await, world.run(&rules).await);
    let child = child(&run, "implementer").await;
    let stolen = Run { run: child.run, ..other.clone() };
    assert_eq!(stolen.open().await.unwrap_err().reason, "RUN_UNKNOWN");
    assert_eq!(stolen.close().await.unwrap_err().reason, "RUN_UNKNOWN");
    assert_eq!(stolen.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    let call = child.plan_exec(&["sleep", "60"]).await;
    let sleeping = child.execute(&call, None);
    let closing = async {
        world
            .ledger
            .wait(|_| world.ledger.kinds(&run.stream_id()).contains(&"sandbox.started"))
            .await;
        run.close().await.unwrap();
    };
    assert_eq!(tokio::join!(sleeping, closing).0.end(), "canceled");
    assert_eq!(child.try_plan("list_files", &json!({})).await.unwrap_err(), "ENVIRONMENT_UNKNOWN");
    assert_eq!(child.close().await, Ok(()));
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_knows_the_child_and_its_profile() {
    let mut world = World::new(&[("a.txt", "one\n")]).await;
    let run = world.run(&with_children(&open_manifest())).await;
    let (session, owner, parent) = (run.session, run.owner.clone(), run.run);
    let child = child(&run, "explorer").await.run;
    world.kill();
    world.start().await;
    let again = |session: SessionId, run| Run { world: &world, session, owner: owner.clone(), run };
    let child = again(session, child);
    child.open().await.unwrap();
    assert!(child.try_plan("read_file", &json!({ "path": "a.txt" })).await.is_ok());
    assert_eq!(
        child.try_plan("process.exec", &json!({ "argv": ["true"] })).await.unwrap_err(),
        "TOOL_NOT_IN_PROFILE"
    );
    assert_eq!(
        again(session, parent).try_plan("delegate", &delegation("tester")).await.unwrap_err(),
        "CHILD_OPEN"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_profile_begins_no_child() {
    let world = World::new(&[]).await;
    let rules = "  fs.read: allow\n  process.exec: allow\n  \
                 delegate: {explorer: allow, implementer: deny}\n";
    let run = world.run(&manifest(rules)).await;
    for profile in ["implementer", "tester"] {
        let call = run.plan("delegate", delegation(profile)).await;
        assert_eq!(call.plan.effect, receipt::Effect::Deny, "{profile}");
        let told = run.execute(&call, Some(&run.approve(&call))).await;
        assert_eq!(told.end(), "POLICY_DENIED", "{profile}");
    }
    child(&run, "explorer").await;
}
