//! The same commands behind a Podman socket. Each test starts a Podman of its own, with its own storage and its own
//! directories, and ends it; without the program the tests fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use proto::sandbox::v1::execute_response::Message;
use serde_json::json;

use super::fence::refusal;
use super::run::read;
use super::world::{IMAGE, World, open_manifest};

const READY: Duration = Duration::from_secs(30);

struct Podman {
    dir: tempfile::TempDir,
    service: Child,
}

impl Podman {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = "[containers]\nbase_hosts_file = \"none\"\n[engine]\nruntime = \"runc\"\n\
                      cgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n";
        fs::write(at("containers.conf"), config).unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexport CONTAINERS_CONF={}\nexec podman --root {} --runroot {} --tmpdir {} --storage-driver overlay \"$@\"\n",
            at("containers.conf"),
            at("root"),
            at("run"),
            at("tmp")
        );
        fs::write(at("podman"), wrapper).unwrap();
        fs::set_permissions(at("podman"), fs::Permissions::from_mode(0o755)).unwrap();
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/images/mkimg-busybox.sh");
        let made = Command::new(script).arg(IMAGE).env("CLI", at("podman")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let service = Command::new(at("podman"))
            .args(["system", "service", "--time=0", &format!("unix://{}", at("engine.sock"))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let podman = Self { dir, service };
        let began = Instant::now();
        while UnixStream::connect(podman.socket()).is_err() {
            assert!(began.elapsed() < READY, "podman does not listen");
            std::thread::yield_now();
        }
        podman
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("engine.sock")
    }

    fn say(&self, args: &[&str]) -> String {
        let said = Command::new(self.dir.path().join("podman")).args(args).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    fn containers(&self) -> Vec<String> {
        let listed = self.say(&["ps", "-aq", "--no-trunc"]);
        listed.lines().map(str::to_owned).collect()
    }

    async fn world(&self, files: &[(&str, &str)]) -> World {
        World::with(files, &self.socket(), "host-tmpfs").await
    }
}

impl Drop for Podman {
    /// Everything below its own root, and nothing else.
    fn drop(&mut self) {
        self.say(&["rm", "-af", "-t", "0"]);
        self.service.kill().ok();
        self.service.wait().ok();
        let root = self.dir.path().to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let mut points: Vec<_> = points.filter(|point| point.starts_with(&root)).collect();
        points.reverse();
        for point in points {
            rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_nothing_of_it_is_left() {
    let podman = Podman::start();
    let world = podman.world(&[("app.txt", "broken\n")]).await;
    let run = world.run(&open_manifest()).await;
    let told = run.sh("cat app.txt; echo fixed > app.txt; echo oops >&2; exit 3").await;
    assert_eq!(told.end(), "exited 3");
    let result = told.result();
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("broken\n"), &json!("oops\n")));
    assert_eq!(fs::read_to_string(run.copy().join("app.txt")).unwrap(), "fixed\n");
    assert_eq!(podman.containers(), Vec::<String>::new());
    let kinds = ["call.started", "sandbox.started", "sandbox.stopped", "call.finished"];
    world.ledger.wait(|_| world.ledger.kinds(&run.stream_id()) == kinds).await;
    let state = world.dir.path().join("state").display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(mounts.lines().filter(|line| line.contains(&state)).count(), 1, "the copy alone");
    let refused = run.try_plan("process.exec", &json!({ "argv": ["nope"] })).await;
    assert_eq!(refused.unwrap_err(), "PROGRAM_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_tool_servers_is_refused() {
    let podman = Podman::start();
    let world = podman.world(&[]).await;
    let servers = "  servers: {notes: {command: [sh], tools: [read]}}\n  limits:";
    let text = open_manifest().replace("  limits:", servers);
    assert_eq!(refusal(&world, &text).await, "SERVERS_UNSUPPORTED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_locked_down() {
    let podman = Podman::start();
    let world = podman.world(&[]).await;
    let run = world.run(&open_manifest()).await;
    let script = "id -u; grep -E '^(NoNewPrivs|CapBnd|CapEff|Seccomp):' /proc/self/status; \
        for d in / /run /var/tmp /dev /etc /proc /sys /tmp /workspace; do echo x 2>/dev/null > $d/probe && echo \"writes $d\"; done; \
        cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; \
        printf '#!/bin/sh\\n' > /tmp/b; chmod 755 /tmp/b; /tmp/b 2>/dev/null || echo noexec; rm /tmp/b; \
        i=0; while echo x > /tmp/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 5000 ] && echo bounded; \
        mount -t tmpfs t /workspace 2>/dev/null; echo $?; ls /dev/shm 2>/dev/null | wc -l; ulimit -c; wc -c < /etc/resolv.conf";
    let told = run.sh(script).await;
    let zero = "0".repeat(16);
    let expected = [
        "200000",
        &format!("CapEff:\t{zero}"),
        &format!("CapBnd:\t{zero}"),
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "writes /tmp",
        "writes /workspace",
        "lo",
        "noexec",
        "bounded",
        "1",
        "0",
        "0",
        "0",
    ];
    let stdout = told.result()["stdout"].as_str().unwrap().to_owned();
    assert_eq!(stdout.lines().collect::<Vec<_>>(), expected, "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_ends_a_command_in_its_own_way() {
    let podman = Podman::start();
    let world = podman.world(&[]).await;
    let run = world.run(&open_manifest()).await;
    let arguments = json!({ "argv": ["sh", "-c", "sleep 600 & sleep 600"], "timeoutSeconds": 1 });
    let call = run.plan("process.exec", arguments).await;
    assert_eq!(run.execute(&call, None).await.end(), "timed_out");
    assert_eq!(run.exec(&["yes"]).await.end(), "output_limit");
    // The engine never says so: the kernel's own counter does.
    let told = run.exec(&["dd", "if=/dev/zero", "of=big", "bs=1M", "count=90"]).await;
    assert_eq!((told.end(), told.finished.oom_seen), ("oom_killed".to_owned(), true));
    let call = run.plan_exec(&["sh", "-c", "echo x; sleep 600"]).await;
    let mut stream = run.stream(run.order(&call, None)).await.unwrap();
    while !matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Output(_))) {}
    assert!(run.cancel(call.id).await);
    assert_eq!(read(stream).await.unwrap().end(), "canceled");
    assert_eq!(podman.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_command_is_taken_over_and_a_foreign_container_is_left_alone() {
    let podman = Podman::start();
    let mut world = podman.world(&[]).await;
    let (order, owner, session, id) = {
        let run = world.run(&open_manifest()).await;
        let call =
            run.plan_exec(&["sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 4"]).await;
        let mut stream = run.stream(run.order(&call, None)).await.unwrap();
        assert!(matches!(stream.next().await.unwrap().unwrap().message, Some(Message::Started(_))));
        fs::write(world.dir.path().join("copy"), run.copy().display().to_string()).unwrap();
        (run.order(&call, None), run.owner.clone(), run.session, run.run)
    };
    world.kill();
    world.start().await;
    let copy = fs::read_to_string(world.dir.path().join("copy")).unwrap();
    fs::write(Path::new(&copy).join("go"), "").unwrap();
    let run = super::run::Run { world: &world, session, owner, run: id };
    let told = run.send(order).await.unwrap();
    // Its end was told to the process that died, and the engine's own word for it is not to be relied on.
    assert!(matches!(told.end().as_str(), "exited 4" | "lost true"), "{}", told.end());

    let call = run.plan_exec(&["true"]).await;
    let name = format!("sbx-{}a1", call.id.as_uuid().simple());
    let made = podman.say(&[
        "create",
        "--name",
        &name,
        "--label",
        "harness.owner=sandbox-svc",
        IMAGE,
        "true",
    ]);
    let told = run.execute(&call, None).await;
    assert_eq!(told.end(), "start_failed a container of that name is not ours");
    assert_eq!(podman.containers(), [made.trim()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_of_the_host_are_mounted_as_planned() {
    let podman = Podman::start();
    let world = podman.world(&[("src/a", "a")]).await;
    let workspace = world.workspace();
    for path in [workspace.clone(), workspace.join("src"), workspace.join("src/a")] {
        std::os::unix::fs::chown(path, Some(43_210), Some(43_211)).unwrap();
    }
    let manifest = open_manifest()
        .replace("backend: oci", "backend: oci\n  mode: mount\n  dependencies: [lib]")
        .replace("allowed_paths: ['**']", "allowed_paths: [src/]");
    let run = world.run(&manifest).await;
    let script = "id -u; id -g; . /dependencies/lib/greet.sh > src/built; echo x > /dependencies/lib/x; echo x > top; true";
    let call = run.plan_exec(&["sh", "-c", script]).await;
    let told = run.execute(&call, Some(&run.approve(&call))).await;
    assert_eq!(
        (told.end(), &told.result()["stdout"]),
        ("exited 0".to_owned(), &json!("43210\n43211\n"))
    );
    let built = fs::read_to_string(workspace.join("src/built")).unwrap();
    assert_eq!(built, "hello from the library\n");
    assert!(!workspace.join("top").exists() && !world.dependency().join("x").exists());
    assert_eq!(told.result()["workspace"]["created"]["paths"], json!(["src/built"]));
}
