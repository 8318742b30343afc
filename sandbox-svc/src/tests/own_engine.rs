//! A container engine of a test's own, which can die and come back: its own root, socket and network, so that the
//! machine's is never touched. What is left of it ends with it; a program that is missing fails the test.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::world::IMAGE;

const READY: Duration = Duration::from_secs(60);

pub(super) struct OwnEngine {
    dir: tempfile::TempDir,
    containerd: Option<Child>,
    dockerd: Option<Child>,
    options: &'static [&'static str],
}

impl OwnEngine {
    /// With these options of `dockerd` besides those that keep it apart.
    pub(super) fn start(options: &'static [&'static str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // In memory: a container starts in half the time, and the disk of the machine is not used.
        let root = dir.path().join("data");
        fs::create_dir(&root).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("engine", &root, "tmpfs", flags, Some(c"size=256m")).unwrap();
        fs::write(dir.path().join("daemon.json"), "{}").unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = '{}'\nstate = '{}'\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n[grpc]\naddress = '{}'\n",
            at("data/containerd"),
            at("c"),
            at("c.sock"),
        );
        fs::write(dir.path().join("containerd.toml"), config).unwrap();
        let mut engine = Self { dir, containerd: None, dockerd: None, options };
        engine.bring_back();
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/images/mkimg-busybox.sh");
        let made = Command::new(script).arg(IMAGE).env("DOCKER_HOST", engine.host()).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        engine
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn spawn(&self, program: &mut Command) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log"));
        let log = log.unwrap();
        program.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// What of the engine does not run, runs when this returns.
    pub(super) fn bring_back(&mut self) {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        if self.containerd.is_none() {
            let child = self.spawn(Command::new("containerd").args([
                "--config",
                &at("containerd.toml"),
                "--log-level=warn",
            ]));
            self.containerd = Some(child);
        }
        self.is_up("containerd", || UnixStream::connect(self.dir.path().join("c.sock")).is_ok());
        // A second one in the host's network would take the first one's bridge away.
        let mut dockerd = Command::new("unshare");
        dockerd.args(["--net", "dockerd", "--bridge=none", "--iptables=false"]);
        dockerd.args(["--ip6tables=false", "--log-level=warn", "--shutdown-timeout=1"]);
        for (flag, value) in [
            ("--config-file", at("daemon.json")),
            ("--data-root", at("data")),
            ("--exec-root", at("e")),
            ("--pidfile", at("pid")),
            ("--containerd", at("c.sock")),
            ("--host", self.host()),
        ] {
            dockerd.args([flag, &value]);
        }
        dockerd.args(self.options);
        end(&mut self.dockerd);
        fs::remove_file(at("pid")).ok();
        self.dockerd = Some(self.spawn(&mut dockerd));
        self.is_up("dockerd", || self.try_say(&["version"]).is_some());
    }

    fn is_up(&self, what: &str, up: impl Fn() -> bool) {
        let began = Instant::now();
        while !up() {
            if began.elapsed() > READY {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("{what} does not get ready: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As a kill of the host's process has it: what it runs goes on.
    pub(super) fn kill(&mut self, with_containerd: bool) {
        end(&mut self.dockerd);
        if with_containerd {
            end(&mut self.containerd);
        }
    }

    /// The same in a shell, once for each name.
    pub(super) fn killing(&self, name: &str) -> String {
        let dir = self.dir.path().display();
        format!("mkdir {dir}/{name} 2>/dev/null || exit 0; kill -9 $(cat {dir}/pid)")
    }

    pub(super) fn try_say(&self, args: &[&str]) -> Option<String> {
        let said = Command::new("docker").args(args).env("DOCKER_HOST", self.host()).output();
        let said = said.expect("docker runs");
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// Of everybody, in any state.
    pub(super) fn containers(&self) -> Vec<String> {
        let listed = self.try_say(&["ps", "-aq", "--no-trunc"]).expect("the engine answers");
        listed.lines().map(str::to_owned).collect()
    }

    pub(super) fn volumes_and_networks(&self) -> Vec<String> {
        let volumes = self.try_say(&["volume", "ls", "-q"]).expect("the engine answers");
        let networks = ["network", "ls", "--filter", "type=custom", "-q"];
        let networks = self.try_say(&networks).expect("the engine answers");
        volumes.lines().chain(networks.lines()).map(str::to_owned).collect()
    }

    /// Keepers of this engine's containers and everything below them.
    pub(super) fn processes(&self) -> Vec<i32> {
        let mut found = self.keepers();
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            found.extend(all().filter(|id| parent_of(*id) == Some(parent)));
            next += 1;
        }
        found
    }

    /// Without the keepers: what runs in its containers.
    pub(super) fn commands(&self) -> Vec<i32> {
        let keepers = self.keepers();
        self.processes().into_iter().filter(|id| !keepers.contains(id)).collect()
    }

    fn keepers(&self) -> Vec<i32> {
        let address = self.dir.path().join("c.sock").display().to_string();
        let keeps = |id: &i32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words[0].ends_with(b"containerd-shim-runc-v2") && words.contains(&address.as_bytes())
        };
        all().filter(keeps).collect()
    }
}

fn all() -> impl Iterator<Item = i32> {
    let listed = fs::read_dir("/proc").unwrap();
    listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse().ok())
}

/// Of one that lives: what has ended and is not waited for is no process any more.
fn parent_of(id: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    (fields.next()? != "Z").then(|| fields.next()?.parse().ok())?
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for OwnEngine {
    /// Everything that this engine made, and nothing else.
    fn drop(&mut self) {
        for container in self.try_say(&["ps", "-aq"]).unwrap_or_default().lines() {
            self.try_say(&["rm", "-f", "-v", container]);
        }
        end(&mut self.dockerd);
        end(&mut self.containerd);
        for id in self.processes() {
            let id = rustix::process::Pid::from_raw(id).unwrap();
            rustix::process::kill_process(id, rustix::process::Signal::KILL).ok();
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let mut points: Vec<_> =
            points.filter(|point| Path::new(point).starts_with(self.dir.path())).collect();
        points.reverse();
        for point in points {
            rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
        }
    }
}
