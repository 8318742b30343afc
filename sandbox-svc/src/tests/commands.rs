//! Commands: what they see, what they say while they run, and what is left of them.

use std::fs;
use std::process::Command;

use futures::StreamExt as _;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::get_execution_response::State;
use serde_json::json;

use super::run::read;
use super::world::{IMAGE, World, containers, open_manifest};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_over_the_private_copy_and_its_end_is_on_record() {
    let world = World::new(&[("app.txt", "broken\n"), ("sub/b", "x")]).await;
    let run = world.run(&open_manifest()).await;
    let told = run.sh("cat app.txt; echo fixed > app.txt; echo oops >&2; exit 3").await;

    assert_eq!(told.end(), "exited 3");
    let result = told.result();
    assert_eq!(
        (&result["status"], &result["exitCode"], &result["stdout"], &result["stderr"]),
        (&json!("exited"), &json!(3), &json!("broken\n"), &json!("oops\n"))
    );
    assert_eq!((told.finished.stdout_bytes, told.finished.stderr_bytes), (7, 5));
    assert_eq!(fs::read_to_string(world.workspace().join("app.txt")).unwrap(), "broken\n");
    assert_eq!(fs::read_to_string(run.copy().join("app.txt")).unwrap(), "fixed\n");
    assert_eq!(world.containers(), Vec::<String>::new());

    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
    let entries = world.ledger.entries();
    let data: Vec<_> = entries
        .iter()
        .filter(|entry| entry.session == run.stream_id())
        .map(|entry| entry.event.data.to_bytes().unwrap())
        .collect();
    assert_eq!(told.started.unwrap(), data[1]);
    assert_eq!(told.finished.stopped_data, data[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_arrives_while_the_command_runs() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run
        .plan_exec(&["sh", "-c", "echo one; until [ -e go ]; do sleep 0.05; done; echo two"])
        .await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    let mut next = async || stream.next().await.unwrap().unwrap().message.unwrap();
    assert!(matches!(next().await, Message::Started(_)));
    match next().await {
        Message::Output(output) => {
            assert_eq!((output.offset, output.bytes), (0, b"one\n".to_vec()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(run.look_up(call.id).await, State::Running(_)));
    fs::write(run.copy().join("go"), "").unwrap();
    match next().await {
        Message::Output(output) => {
            assert_eq!((output.offset, output.bytes), (4, b"two\n".to_vec()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(next().await, Message::Finished(_)));
    assert!(matches!(run.look_up(call.id).await, State::Finished(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_leaves_stops_nothing_and_may_come_back_at_any_offset() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let script = "echo begin; until [ -e go ]; do sleep 0.05; done; i=0; while [ $i -lt 2000 ]; do echo line-$i; i=$((i+1)); done";
    let call = run.plan_exec(&["sh", "-c", script]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    // Leaves after the first bytes, without reading what follows.
    while !matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Output(_))) {}
    drop(stream);
    fs::write(run.copy().join("go"), "").unwrap();

    let mut order = run.order(&call, None);
    order.after_output_offset = 6;
    let told = run.send(order.clone()).await.unwrap();
    assert_eq!(told.end(), "exited 0");
    let text = told.text();
    assert!(text.starts_with("line-0\n") && text.ends_with("line-1999\n"), "{}", text.len());

    // Once more, after the end.
    let again = run.send(order).await.unwrap();
    assert_eq!(again.text(), text);
    assert_eq!(again.started, told.started);
    assert_eq!(again.finished, told.finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_locked_down() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let told = run
        .sh("id -u; pwd; hostname; grep -E '^(NoNewPrivs|CapBnd|CapEff|Seccomp):' /proc/self/status; \
             echo x > /x; echo $?; mount -t tmpfs t /tmp; echo $?; mknod n c 1 3; echo $?; \
             cat /proc/cmdline | wc -c; ls /sys/fs/cgroup | wc -l; env | sort; ulimit -c; \
             ls /dev/mqueue | wc -l; ls /dev/shm 2>/dev/null; echo $?")
        .await;
    let text = told.result()["stdout"].as_str().unwrap().to_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "200000");
    assert_eq!(lines[1..3], ["/workspace", "sbx"]);
    let zero = "0".repeat(16);
    assert_eq!(
        lines[3..7],
        [&format!("CapEff:\t{zero}"), &format!("CapBnd:\t{zero}"), "NoNewPrivs:\t1", "Seccomp:\t2"]
    );
    assert_eq!(lines[7..10], ["1", "1", "1"], "{text}");
    assert_eq!(lines[10..12], ["0", "0"], "{text}");
    let env: Vec<_> = lines[12..].iter().take_while(|line| line.contains('=')).collect();
    let names: Vec<_> = env.iter().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["CI", "HOME", "LANG", "OMP_NUM_THREADS", "PATH", "PWD", "SHLVL"]);
    assert_eq!(lines[12 + env.len()..], ["0", "0", "1"], "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_network() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let told = run
        .sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /etc/resolv.conf; \
             nc -w 1 1.1.1.1 80 </dev/null; echo $?; ls /var/run/docker.sock; ls /proc/self/fd | wc -l")
        .await;
    let result = told.result();
    let lines: Vec<_> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines[..2], ["lo", "1"], "{result}");
    assert!(result["stderr"].as_str().unwrap().contains("nreachable"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_files_and_git_metadata_are_not_in_the_copy() {
    let files = [
        (".env", "TOKEN=1"),
        ("conf/prod.env", "x"),
        (".git/config", "[core]"),
        ("key.txt", "-----BEGIN PRIVATE KEY-----\nx"),
        ("private/x", "x"),
        (".env.example", "TOKEN="),
        ("app.txt", "x"),
    ];
    let world = World::new(&files).await;
    let rules = "  fs.read: {'private/**': deny, '*': allow}\n  process.exec: allow\n";
    let run = world.run(&super::world::manifest(rules)).await;
    let opened = run.open().await.unwrap();
    let withheld: Vec<_> = opened
        .withheld
        .iter()
        .map(|entry| (String::from_utf8_lossy(&entry.path).into_owned(), entry.reason.as_str()))
        .collect();
    let expected = [
        (".env", "secret_name"),
        (".git", "git_metadata"),
        ("conf/prod.env", "secret_name"),
        ("key.txt", "secret_content"),
        ("private/x", "read_denied"),
    ];
    assert_eq!(withheld, expected.map(|(path, reason)| (path.to_owned(), reason)));
    let told = run.sh("cat .env private/x; find . -type f | sort").await;
    assert_eq!(told.result()["stdout"], json!("./.env.example\n./app.txt\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_missing_or_not_allowed_is_told_apart() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let refused = run.plan_or_refusal("process.exec", &json!({ "argv": ["nope"] })).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason, "PROGRAM_NOT_FOUND");
    assert_eq!(refused.detail, "nope is nowhere in the image's PATH /bin");
    let refused = run.try_plan("process.exec", &json!({ "argv": ["rm", "-rf", "x"] })).await;
    assert_eq!(refused.unwrap_err(), "COMMAND_NOT_ALLOWED");
    let refused = run.try_plan("process.exec", &json!({ "argv": ["/bin/sh"] })).await;
    assert_eq!(refused.unwrap_err(), "COMMAND_NOT_ALLOWED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_container_of_the_same_name_is_never_touched() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let call = run.plan_exec(&["true"]).await;
    let name = format!("sbx-{}a1", call.id.as_uuid().simple());
    let foreign = format!("harness.test={}", call.id);
    // The owner is right, the instance is somebody else's.
    let args =
        ["create", "--name", &name, "--label", &foreign, "--label", "harness.owner=sandbox-svc"];
    let labels = ["--label", "harness.instance=00000000-0000-4000-8000-000000000000"];
    let made = Command::new("docker").args(args).args(labels).args([IMAGE, "true"]).output();
    let id = String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned();

    let told = run.execute(&call, None).await;
    world.sandbox().reconcile().await.unwrap();
    let still = containers("00000000-0000-4000-8000-000000000000").contains(&id);
    Command::new("docker").args(["rm", "-f", &id]).output().unwrap();
    assert_eq!(told.end(), "start_failed a container of that name is not ours");
    assert!(still, "{name} was removed");
    let kinds = ["call.started", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_of_a_run_changes_something_at_a_time() {
    let world = World::new(&[]).await;
    let run = world.run(&open_manifest()).await;
    let (first, second) = (run.plan_exec(&["sleep", "20"]).await, run.plan_exec(&["true"]).await);
    let mut stream = run.stream(run.order(&first, None)).await.unwrap();
    assert!(matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Started(_))));
    assert_eq!(run.execute(&second, None).await.end(), "RUN_BUSY");
    assert_eq!(run.try_plan("list_files", &json!({})).await.unwrap_err(), "RUN_BUSY");
    assert!(run.cancel(first.id).await);
    assert_eq!(read(stream).await.unwrap().end(), "canceled");
    // What was planned beside the other is not what would happen now, unless nothing changed.
    assert_eq!(run.execute(&second, None).await.end(), "exited 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_directories_serve_as_well() {
    let world = World::with(&[("a", "x")], super::world::ENGINE.as_ref(), "dirs").await;
    let run = world.run(&open_manifest()).await;
    assert_eq!(run.sh("cat a; echo y > b").await.result()["stdout"], json!("x"));
    assert_eq!(fs::read_to_string(run.copy().join("b")).unwrap(), "y\n");
    let copy = run.copy();
    run.close().await.unwrap();
    assert!(!copy.exists());
}
