//! Limits: each ends a command in its own way, and nothing of it is left.

use std::time::Duration;

use serde_json::json;

use super::run::{Run, Told, read};
use super::world::{World, open_manifest};

async fn ended(run: &Run<'_>, argv: &[&str]) -> Told {
    let told = run.exec(argv).await;
    assert_eq!(run.world.containers(), Vec::<String>::new());
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn time_runs_out() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let arguments =
        json!({ "argv": ["sh", "-c", "echo x; sleep 600 & sleep 600"], "timeoutSeconds": 1 });
    let call = run.plan("process.exec", arguments).await;
    assert_eq!(call.plan.limits.unwrap().time_ms, 1_000);
    let told = run.execute(&call, None).await;
    assert_eq!((told.end(), told.text()), ("timed_out".to_owned(), "x\n".to_owned()));
    assert!((1_000..6_000).contains(&told.finished.duration_ms), "{}", told.finished.duration_ms);
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_cut_off() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let told = ended(&run, &["yes"]).await;
    assert_eq!(told.end(), "output_limit");
    assert_eq!(told.finished.stdout_bytes, 256 * 1024);
    let text = told.result()["stdout"].as_str().unwrap().to_owned();
    assert!(text.len() < 40_000 && text.contains("bytes left out"), "{}", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_everything_that_the_command_started() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call =
        run.plan_exec(&["sh", "-c", "setsid sh -c 'sleep 600 & sleep 600' & sleep 600"]).await;
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    assert!(run.cancel(call.id).await);
    let told = tokio::time::timeout(Duration::from_secs(5), read(stream)).await.unwrap().unwrap();
    assert_eq!(told.end(), "canceled");
    assert!(!run.cancel(call.id).await);
    assert_eq!(world.containers(), Vec::<String>::new());
}

/// Canceled once it has said `up`.
async fn canceled(run: &Run<'_>, script: &str) -> Told {
    let call = run.plan_exec(&["sh", "-c", script]).await;
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    let up = async {
        while run
            .world
            .sandbox()
            .live(call.id)
            .is_none_or(|live| live.with_spool(|it| it.total() == 0))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(run.cancel(call.id).await);
    };
    let (told, ()) = tokio::join!(read(stream), up);
    told.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_asks_first_and_waits_two_seconds_at_most() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    // The shell tells of its child, which was asked as well.
    let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1 2>&-; done";
    let told = canceled(&run, script).await;
    let text = told.text();
    assert_eq!(told.end(), "canceled");
    assert!(text.starts_with("up\n") && text.contains("bye\n"), "{text}");
    let told = canceled(&run, "trap '' TERM; echo up; while :; do sleep 0.1; done").await;
    assert_eq!((told.end(), told.text()), ("canceled".to_owned(), "up\n".to_owned()));
    assert!((2_000..6_000).contains(&told.finished.duration_ms), "{}", told.finished.duration_ms);
    assert_eq!(world.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_of_a_command_is_taken_for_another_end() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    for code in [0, 1, 123, 124, 125, 126, 127, 137, 255] {
        let told = ended(&run, &["sh", "-c", &format!("exit {code}")]).await;
        assert_eq!(told.end(), format!("exited {code}"));
        assert!(!told.finished.output_incomplete);
    }
    let told = ended(&run, &["sh", "-c", "kill -9 $$"]).await;
    assert_eq!((told.end(), told.finished.oom_seen), ("exited 137".to_owned(), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_eats_memory_is_killed_and_said_to_be() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    // Pages of the copy count against the command that writes them.
    let told = ended(&run, &["dd", "if=/dev/zero", "of=big", "bs=1M", "count=90"]).await;
    assert_eq!((told.end(), told.finished.oom_seen), ("oom_killed".to_owned(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_is_killed_for_memory_is_a_fact_of_its_own() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    // Memory of its own: what it leaves in the copy would stay charged, and press on the shell next.
    let script = "dd if=/dev/zero of=/dev/null bs=90M count=1; exit 0";
    let told = ended(&run, &["sh", "-c", script]).await;
    assert_eq!((told.end(), told.finished.oom_seen), ("exited 0".to_owned(), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_bounded_and_gone_afterwards() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let script = "i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i+1)); done; echo made $i";
    let told = ended(&run, &["sh", "-c", script]).await;
    let result = told.result();
    assert!(result["stderr"].as_str().unwrap().contains("can't fork"), "{result}");
    assert_ne!(told.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_and_bytes_of_the_copy_are_bounded() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let script = "mkdir d; i=0; while echo x > d/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 2000 ] && echo bounded; rm -r d";
    assert_eq!(ended(&run, &["sh", "-c", script]).await.result()["stdout"], json!("bounded\n"));
    let script = "i=0; while echo x > /tmp/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 5000 ] && echo bounded";
    assert_eq!(ended(&run, &["sh", "-c", script]).await.result()["stdout"], json!("bounded\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_not_begin_any_more_does_not() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let mut order = run.order(&call, None);
    order.call.as_mut().unwrap().start_before_ms = crate::session::now_ms();
    assert_eq!(run.send(order).await.unwrap().end(), "START_DEADLINE_PASSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_before_the_ledger_knows_of_it() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["sh", "-c", "echo ran > ran"]).await;
    world.ledger.set_away(true);
    let mut order = run.order(&call, None);
    order.call.as_mut().unwrap().start_before_ms = crate::session::now_ms() + 1_500;
    assert_eq!(run.send(order).await.unwrap().end(), "AUDIT_UNAVAILABLE");
    assert!(!run.copy().join("ran").exists());

    // A pure call needs no one.
    let listed = run.plan("list_files", json!({})).await;
    assert!(listed.result.is_some());

    let call = run.plan_exec(&["sh", "-c", "echo ran > ran"]).await;
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    world.ledger.set_away(false);
    assert_eq!(read(stream).await.unwrap().end(), "exited 0");
    let kinds = [
        "call.started",
        "call.finished",
        "call.started",
        "sandbox.started",
        "sandbox.stopped",
        "call.finished",
    ];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_the_ledger_can_be_canceled() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    world.ledger.set_away(true);
    let stream = run.stream(run.order(&call, None)).await.unwrap();
    assert!(run.cancel(call.id).await);
    let told = read(stream).await.unwrap();
    assert_eq!((told.end(), told.started), ("canceled".to_owned(), None));
    world.ledger.set_away(false);
}
