//! What a command reads, several commands in one container, and the checks that a manifest names: each is planned
//! whole, decided like any command, and runs as it was planned.

use receipt::{Effect, Stdin};
use serde_json::{Value, json};

use super::run::{Run, Told};
use super::world::{World, asking_manifest, manifest, open_manifest};

fn batch(commands: &Value) -> Value {
    json!({ "commands": commands })
}

async fn refused(run: &Run<'_>, tool: &str, arguments: Value) -> (String, String) {
    let refused = run.plan_or_refusal(tool, &arguments).await.unwrap_err();
    (refused.reason, refused.detail)
}

/// How each command of a batch ended, and how many were not run.
fn ends(told: &Told) -> (Vec<(String, i64)>, u64) {
    let result = told.result();
    let end = |end: &Value| {
        assert!(end["durationMs"].is_u64(), "{end}");
        (end["status"].as_str().unwrap().to_owned(), end["exitCode"].as_i64().unwrap())
    };
    let ends = result["commands"].as_array().unwrap().iter().map(end).collect();
    (ends, result["commandsNotRun"].as_u64().unwrap())
}

fn exited(code: i64) -> (String, i64) {
    ("exited".to_owned(), code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_one_command_that_may_not_run_is_refused_whole() {
    let world = World::new(&[("a", "x")]).await;
    let rules =
        "  fs.read: allow\n  process.exec: {'sh**': allow, 'true**': allow, 'sleep**': deny}\n";
    let run = world.run(&manifest(rules)).await;
    let touch = json!(["sh", "-c", "echo > ran"]);
    let (reason, _) = refused(&run, "run_batch", batch(&json!([touch, ["rm", "a"]]))).await;
    assert_eq!(reason, "COMMAND_NOT_ALLOWED");
    let (reason, _) = refused(&run, "run_batch", batch(&json!([touch, ["nope"]]))).await;
    assert_eq!(reason, "PROGRAM_NOT_FOUND");
    let (reason, _) = refused(&run, "run_batch", json!({ "commands": [touch], "x": 1 })).await;
    assert_eq!(reason, "ARGUMENTS_INVALID");
    let denied = run.plan("run_batch", batch(&json!([touch, ["sleep", "1"]]))).await;
    assert_eq!(denied.plan.effect, Effect::Deny);
    assert_eq!(run.execute(&denied, None).await.end(), "POLICY_DENIED");
    let signed = run.approve(&denied);
    assert_eq!(run.execute(&denied, Some(&signed)).await.end(), "POLICY_DENIED");
    assert!(!run.copy().join("ran").exists());
    let kinds = world.ledger.kinds(&run.stream_id());
    assert!(!kinds.contains(&"sandbox.started"), "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_asked_for_once_with_every_command_a_part() {
    let world = World::new(&[("a", "x")]).await;
    let rules = "  fs.read: allow\n  process.exec: {'cat**': ask, 'true**': allow}\n";
    let run = world.run(&manifest(rules)).await;
    let call = run.plan("run_batch", batch(&json!([["true"], ["cat", "a"], ["cat", "a"]]))).await;
    let plan = &call.plan;
    assert_eq!((plan.effect, plan.action.as_str()), (Effect::Ask, "process.exec"));
    assert_eq!(plan.subject, Some("true && cat a && cat a".into()));
    let parts: Vec<_> = plan.parts.iter().map(|it| (it.effect, it.subject.clone())).collect();
    let cat = (Effect::Ask, Some("cat a".into()));
    assert_eq!(parts, [(Effect::Allow, Some("true".into())), cat.clone(), cat]);
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let call = run.plan("run_batch", batch(&json!([["true"], ["cat", "a"], ["cat", "a"]]))).await;
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!((told.end(), told.text()), ("exited 0".to_owned(), "xx".to_owned()));
    // The same receipt is for no other order of them.
    let other = run.plan("run_batch", batch(&json!([["cat", "a"], ["true"], ["cat", "a"]]))).await;
    assert_ne!(other.plan.action_digest().unwrap(), call.plan.action_digest().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_stops_at_the_first_failure_and_says_how_each_command_ended() {
    let mut world = World::new(&[]).await;
    for warm in [0, 1] {
        world.warm = warm;
        world.kill();
        world.start().await;
        let run = world.run(&open_manifest()).await;
        if warm > 0 {
            let filled = world.sandbox().pool.filled(run.run);
            tokio::time::timeout(super::world::LIMIT, filled).await.expect("one waits");
        }
        let commands = json!([
            ["sh", "-c", "echo one > a; cd /tmp"],
            ["cat", "a"],
            ["sh", "-c", "pwd; exit 4"],
            ["sh", "-c", "echo > ran"]
        ]);
        let call = run.plan("run_batch", batch(&commands)).await;
        let programs: Vec<_> = call.plan.steps.iter().map(|it| it.argv[0].as_str()).collect();
        assert_eq!(programs, ["sh", "cat", "sh", "sh"]);
        assert_eq!((&call.plan.argv, &call.plan.program), (&None, &None));
        let told = run.execute(&call, None).await;
        let whole = "one\n/workspace\n".to_owned();
        assert_eq!((told.end(), told.text()), ("exited 4".to_owned(), whole));
        assert_eq!(ends(&told), (vec![exited(0), exited(0), exited(4)], 1));
        assert!(!run.copy().join("ran").exists());
        let started: Value = serde_json::from_slice(told.started.as_ref().unwrap()).unwrap();
        let name = started["containerName"].as_str().unwrap();
        assert_eq!(name.starts_with("sbx-p"), warm > 0, "{name}");
        let kinds = world.ledger.kinds(&run.stream_id());
        assert_eq!(kinds.iter().filter(|kind| **kind == "sandbox.started").count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_one_time_limit_and_tells_of_a_signal() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let commands = json!([["true"], ["sh", "-c", "kill -9 $$"], ["true"]]);
    let call = run.plan("run_batch", batch(&commands)).await;
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "exited 137");
    assert_eq!(ends(&told), (vec![exited(0), ("signaled".to_owned(), 137)], 1));
    let slow = json!({ "commands": [["sleep", "1"], ["sleep", "60"]], "timeoutSeconds": 2 });
    let call = run.plan("run_batch", slow).await;
    assert_eq!(run.execute(&call, None).await.end(), "timed_out");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_reads_arrives_byte_for_byte_and_ends() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let text = "one\nzweites\0\u{e9}\r\n";
    let call = run.plan("process.exec", json!({ "argv": ["cat"], "stdin": text })).await;
    assert_eq!(call.plan.stdin, Some(Stdin::of(text)));
    assert!(String::from_utf8_lossy(&call.bytes).contains("zweites"));
    let told = run.execute(&call, None).await;
    assert_eq!((told.end(), told.text()), ("exited 0".to_owned(), text.to_owned()));
    let large = json!({ "argv": ["sh", "-c", "wc -c"], "stdin": "x".repeat(65_536) });
    let call = run.plan("process.exec", large).await;
    assert_eq!(run.execute(&call, None).await.text(), "65536\n");
    // Without one there is nothing to read, and no waiting for it.
    assert_eq!(run.sh("wc -c").await.text(), "0\n");
    let other = run.plan("process.exec", json!({ "argv": ["cat"], "stdin": "one" })).await;
    let same = run.plan("process.exec", json!({ "argv": ["cat"], "stdin": "two" })).await;
    assert_ne!(other.plan.action_digest().unwrap(), same.plan.action_digest().unwrap());
    let mut order = run.order(&other, None);
    order.arguments = same.arguments;
    assert_eq!(run.send(order).await.unwrap().end(), "PLAN_ARGUMENTS_CHANGED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_read_to_the_end_is_no_fault_of_the_house() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    for argv in [json!(["true"]), json!(["sh", "-c", "exec <&-; echo done"])] {
        let call =
            run.plan("process.exec", json!({ "argv": argv, "stdin": "x".repeat(65_536) })).await;
        let told = run.execute(&call, None).await;
        assert_eq!(told.end(), "exited 0");
        assert!(!told.finished.output_incomplete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_is_shown_whole_and_one_that_cannot_be_shown_is_refused() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let text = "import os\nos.remove('a')\n";
    let call = run.plan("process.exec", json!({ "argv": ["cat"], "stdin": text })).await;
    assert_eq!(call.plan.stdin.unwrap().text, text);
    let hidden = json!({ "argv": ["cat"], "stdin": "password=hunter2-hunter2" });
    assert_eq!(refused(&run, "process.exec", hidden).await.0, "PLAN_HOLDS_SECRET");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_makes_no_shell_less_of_a_shell() {
    let world = World::new(&[]).await;
    let rules = "  fs.read: allow\n  process.exec: {'*': allow, 'rm**': deny}\n";
    let run = world.run(&manifest(rules)).await;
    let call = run.plan("process.exec", json!({ "argv": ["sh"], "stdin": "rm -rf .\n" })).await;
    assert_eq!(call.plan.effect, Effect::Ask);
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_the_manifests_and_is_decided_like_any_command() {
    let world = World::new(&[("a", "x")]).await;
    let checks = |text: &str| format!("{text}  checks: {{unit: [cat, a], wide: ['true']}}\n");
    let run = world.run(&checks(&open_manifest())).await;
    let unknown = refused(&run, "run_check", json!({ "name": "lint" })).await;
    let names = "the manifest names these checks: unit, wide".to_owned();
    assert_eq!(unknown, ("CHECK_UNKNOWN".to_owned(), names));
    let changed = json!({ "name": "unit", "expectedArgv": ["cat", "b"] });
    let changed = refused(&run, "run_check", changed).await;
    assert_eq!(changed, ("CHECK_CHANGED".to_owned(), "the check is cat a".to_owned()));

    let call = run.plan("run_check", json!({ "name": "unit", "expectedArgv": ["cat", "a"] })).await;
    let argv = Some(["cat", "a"].map(str::to_owned).to_vec());
    assert_eq!((call.plan.argv.clone(), call.plan.check.as_deref()), (argv, Some("unit")));
    assert_eq!(call.plan.action, "process.exec");
    let told = run.execute(&call, None).await;
    assert_eq!((told.end(), told.text()), ("exited 0".to_owned(), "x".to_owned()));

    let run = world.run(&checks(&asking_manifest())).await;
    let call = run.plan("run_check", json!({ "name": "unit" })).await;
    assert_eq!(run.execute(&call, None).await.end(), "RECEIPT_REQUIRED");
    let run = world.run(&open_manifest()).await;
    let none = refused(&run, "run_check", json!({ "name": "unit" })).await;
    assert_eq!(none, ("CHECK_UNKNOWN".to_owned(), "the manifest names no checks".to_owned()));
}
