//! A held run as a person without a terminal meets it: each command is the one that the command before it printed, and
//! in the end the machine keeps nothing of the run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use e2e::{Engine, Turn, manifest, script, within};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
};

/// A file whose name and bytes would rather not be seen.
const SCRIPT: &str = r"printf 'a\033[2K\342\200\256b\n' > app.txt";

fn turns() -> Vec<Turn> {
    vec![
        Turn::Call("process.exec", json!({"argv": ["sh", "-c", SCRIPT]})),
        Turn::Call("import_patch", json!({})),
        Turn::Say("The file is repaired."),
    ]
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn harness(words: &[&str]) -> Result<Said> {
    let output = Command::new(e2e::programs()?.join("harness")).args(words).output().await?;
    Ok(Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// What a run that waits printed.
async fn waiting(words: &[&str]) -> Result<Value> {
    let Said { code, stdout, stderr } = harness(words).await?;
    ensure!(code == Some(0), "{stderr}");
    let document: Value = serde_json::from_str(&stdout).context(stderr)?;
    ensure!(document["status"] == "waiting_approval", "{document}");
    Ok(document)
}

/// The command that approves, as it was printed.
fn approves(document: &Value) -> Result<Vec<&str>> {
    let words = document["resume"][0].as_array().context("no command was printed")?;
    words.iter().skip(1).map(|word| word.as_str().context("a word")).collect()
}

fn mounts_below(dir: &Path) -> Result<usize> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.filter(|point| Path::new(point).starts_with(dir)).count())
}

/// `harness up` over a directory of its own.
struct Up {
    dir: tempfile::TempDir,
    process: Child,
}

impl Up {
    async fn start() -> Result<Self> {
        // Each service has its own user, who must be able to enter.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("harness-held-").permissions(open).tempdir()?;
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("repo"))?;
        std::fs::write(at("repo/app.txt"), "broken\n")?;
        std::fs::write(at("task.yaml"), manifest("repair").text(&Engine::image()?))?;
        std::fs::write(at("turns.yaml"), script(&turns()))?;
        let mut command = Command::new(e2e::programs()?.join("harness"));
        command.current_dir(dir.path()).args(["up", "--state", "state", "--script", "turns.yaml"]);
        command.args(["--workspace", "demo=repo", "--manifest", "task.yaml"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let mut line = String::new();
        let out = process.stdout.as_mut().context("its output")?;
        within("the mesh to be ready", BufReader::new(out).read_line(&mut line)).await?;
        ensure!(line.contains("\"kind\":\"ready\""), "{line}");
        Ok(Self { dir, process })
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// SIGTERM; what it said in the end.
    async fn stop(&mut self) -> Result<String> {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).context("it runs")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let mut said = String::new();
        let errors = self.process.stderr.as_mut().context("its errors")?;
        within("the mesh to end", errors.read_to_string(&mut said)).await?;
        let status = self.process.wait().await?;
        ensure!(status.success(), "{said}");
        Ok(said.lines().last().unwrap_or_default().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_run_is_read_answered_and_ended_with_the_commands_that_were_printed() -> Result<()> {
    let mut up = Up::start().await?;
    let told = hold(&mut up).await;
    if told.is_err() {
        // What a failure leaves mounted goes with the directory.
        up.process.kill().await?;
        harness(&["runs", "cleanup", "--state", up.state().to_str().context("text")?]).await?;
    }
    told
}

async fn hold(up: &mut Up) -> Result<()> {
    let state = up.state();
    let at = state.to_str().context("the path is text")?;
    let run = ["run", "--state", at, "--task", "repair", "--json", "repair it"];
    let first = waiting(&run).await?;
    let mut words = approves(&first)?;
    words.push("--json");
    let second = waiting(&words).await?;
    let ask = &second["pendingApprovals"][0];
    ensure!(ask["action"] == "patch.import", "{ask}");

    let id = |value: &Value| value.as_str().map(str::to_owned).context("an id");
    let (run, permission) = (id(&second["runId"])?, id(&ask["permissionId"])?);
    for id in [&run, &permission] {
        let shown = harness(&["patch", "show", "--state", at, id]).await?;
        ensure!(shown.code == Some(0), "{}", shown.stderr);
        ensure!(shown.stdout.contains("+a\\u{1b}[2K\\u{202e}b\n"), "{}", shown.stdout);
        ensure!(!shown.stdout.contains(['\u{1b}', '\u{202e}']), "{}", shown.stdout);
    }
    let unread = harness(&["resume", "--state", at, &run, "--approve"]).await?;
    ensure!(unread.code == Some(2), "{}", unread.stderr);
    ensure!(
        std::fs::read(up.dir.path().join("repo/app.txt"))? == b"broken\n",
        "nothing is imported"
    );

    let running = harness(&["runs", "cleanup", "--state", at]).await?;
    ensure!(running.code == Some(1), "{}", running.stderr);
    let last = up.stop().await?;
    ensure!(last.starts_with("1 run is held") && last.contains("harness runs cleanup"), "{last}");
    let cleaned = harness(&["runs", "cleanup", "--state", at]).await?;
    ensure!(cleaned.code == Some(0), "{}", cleaned.stderr);
    ensure!(cleaned.stdout == "ended 1 environments and 0 containers\n", "{}", cleaned.stdout);
    ensure!(mounts_below(&state)? == 0, "a mount is left");
    std::fs::remove_dir_all(&state)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nobody_follows_is_canceled_by_its_id() -> Result<()> {
    let mut up = Up::start().await?;
    let state = up.state();
    let canceled = cancel(&state).await;
    up.stop().await?;
    let at = state.to_str().context("the path is text")?;
    let cleaned = harness(&["runs", "cleanup", "--state", at]).await?;
    ensure!(cleaned.stdout == "ended 0 environments and 0 containers\n", "{}", cleaned.stdout);
    canceled
}

async fn cancel(state: &Path) -> Result<()> {
    let at = state.to_str().context("the path is text")?;
    let held = waiting(&["run", "--state", at, "--task", "repair", "--json", "repair it"]).await?;
    let run = held["runId"].as_str().context("a run")?;
    let session = held["sessionId"].as_str().context("a session")?;
    let first = harness(&["runs", "cancel", "--state", at, "--json", run]).await?;
    ensure!(first.code == Some(0), "{}", first.stderr);
    let told: Value = serde_json::from_str(&first.stdout)?;
    let expected = json!({"schemaVersion": 1, "kind": "run-cancellation", "sessionId": session, "canceled": true});
    ensure!(told == expected, "{told}");
    let again = harness(&["runs", "cancel", "--state", at, run]).await?;
    ensure!(again.code == Some(1) && again.stderr.contains("over already"), "{}", again.stderr);
    Ok(())
}

/// What `doctor` finds, by the names of its checks.
async fn doctor(at: &str) -> Result<Value> {
    let said = harness(&["doctor", "--json", "--state", at]).await?;
    let told: Value = serde_json::from_str(&said.stdout).context(said.stderr)?;
    let checks = told["checks"].as_array().context("checks")?.iter();
    let named = |check: &Value| Some((check["name"].as_str()?.to_owned(), check.clone()));
    Ok(Value::Object(checks.filter_map(named).collect()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_mesh_leaves_is_named_by_doctor_until_its_cleanup() -> Result<()> {
    let mut up = Up::start().await?;
    let state = up.state();
    let at = state.to_str().context("the path is text")?;
    let held = waiting(&["run", "--state", at, "--task", "repair", "--json", "repair it"]).await?;
    let session = held["sessionId"].as_str().context("a session")?;
    let label = format!("harness.session={session}");
    // One waits for the command that is asked for.
    let names = e2e::until("a container that waits", || async {
        let names = Engine::containers(&label).ok()?;
        (!names.is_empty()).then_some(names)
    })
    .await;
    let running = doctor(at).await?;
    for name in ["engine", "limits", "seccomp", "user-namespaces"] {
        assert_eq!(running[name]["status"], "ok", "{running}");
    }
    let found = |told: &Value| told["leftovers"]["found"].as_str().map(str::to_owned);
    let told = found(&running).context("it looks")?;
    assert!(!told.contains(&names[0]), "{told}");

    up.process.kill().await?;
    let told = e2e::until("the services to end with it", || async {
        let told = doctor(at).await.ok()?;
        told["copies"].is_object().then_some(told)
    })
    .await;
    let expected = format!("containers of this mesh, which does not run: {}", names.join(", "));
    assert_eq!(found(&told), Some(expected), "{told}");
    assert_eq!(told["copies"]["found"], "1 private copies are kept for runs that are held");
    let cleaned = harness(&["runs", "cleanup", "--state", at]).await?;
    assert_eq!(cleaned.stdout, "ended 1 environments and 1 containers\n", "{}", cleaned.stderr);
    let after = doctor(at).await?;
    assert!(!found(&after).context("it looks")?.contains(&names[0]), "{after}");
    assert_eq!(after["copies"]["status"], "ok", "{after}");
    assert_eq!(Engine::containers(&label)?, Vec::<String>::new());
    ensure!(mounts_below(&state)? == 0, "a mount is left");
    Ok(())
}
