//! One host for one test: certificates, a workspace, a ledger, the service, and a client with agent-svc's
//! certificate. A missing engine fails the test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event::Digest;
use event::id::{RunId, SessionId};
use proto::common::v1 as common;
use proto::sandbox::v1 as wire;
use proto::sandbox::v1::sandbox_service_client::SandboxServiceClient;
use receipt::{Grant, OnDisconnect, Signed, Signer};
use tokio::runtime::Runtime;
use transport::issue::DevPki;
use transport::{Bound as _, CancellationToken, Fault, PeerChannel, Service};

use super::audit::{self, Ledger};
use super::run::Run;
use crate::config::Config;
use crate::sandbox::Sandbox;
use crate::session::now_secs;

pub(super) const ENGINE: &str = "/var/run/docker.sock";
/// Nobody else makes this one anew while tests run.
pub(super) const IMAGE: &str = "harness/sandbox-svc-test:1";
pub(super) const LIMIT: Duration = Duration::from_secs(60);
pub(super) const TENANT: &str = "local";

/// Everything allowed but what `rules` says; small limits.
pub(super) fn manifest(rules: &str) -> String {
    format!(
        "id: demo\ntitle: Demo\ngoal: try\nacceptance: [it works]\nallowed_paths: ['**']\n\
         permissions:\n  fs.list: allow\n  network: deny\n{rules}\
         execution:\n  backend: oci\n  image: {IMAGE}\n\
         \x20 allow_commands: [sh, cat, 'true', sleep, 'yes', dd, nope]\n\
         \x20 limits: {{memory: 48MiB, pids: 24, cpus: 1, time: 30s, output: 256KiB, workspace_bytes: 128MiB, workspace_inodes: 2000, file_bytes: 96MiB, tmp_bytes: 1MiB}}\n"
    )
}

/// A manifest under which nobody is asked.
pub(super) fn open_manifest() -> String {
    manifest("  fs.read: allow\n  fs.write: allow\n  process.exec: allow\n  patch.import: allow\n")
}

/// A manifest under which commands and imports are asked for.
pub(super) fn asking_manifest() -> String {
    manifest("  fs.read: allow\n  fs.write: allow\n  process.exec: ask\n  patch.import: ask\n")
}

pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    pub(super) pki: DevPki,
    pub(super) gateway: Signer,
    pub(super) ledger: Ledger,
    pub(super) client: SandboxServiceClient<PeerChannel>,
    ledger_addr: std::net::SocketAddr,
    engine: PathBuf,
    staging: &'static str,
    /// How many containers may wait, from the next start on.
    pub(super) warm: usize,
    /// Whether an administrator's files stand above the manifests.
    governed: bool,
    /// The broker's program, and the hosts of this machine that it may reach.
    broker: Option<(PathBuf, String)>,
    service: Option<Running>,
    /// What its containers carry.
    instance: Option<String>,
    _stop: tokio_util::sync::DropGuard,
    _house: transport::Context,
}

/// The service in a runtime of its own, so that it can die like a process.
struct Running {
    runtime: Option<Runtime>,
    sandbox: Arc<Sandbox>,
    context: transport::Context,
    served: tokio::sync::oneshot::Receiver<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for World {
    /// Removes what the service of this test left; other tests' containers carry other instances.
    fn drop(&mut self) {
        let mut busy = false;
        if let Some(mut running) = self.service.take() {
            busy = self.warm > 0 || !running.sandbox.is_idle();
            if let Some(runtime) = running.runtime.take() {
                let end = move || runtime.shutdown_timeout(Duration::from_secs(5));
                std::thread::spawn(end).join().ok();
            }
        }
        let Some(instance) = &self.instance else { return };
        // An engine goes on with what it was asked for when nobody waits for its answer any more.
        if busy {
            std::thread::sleep(Duration::from_millis(500));
        }
        while !is_removed(instance) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root = self.dir.path().to_string_lossy().into_owned();
        for point in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
            if point.starts_with(&root) {
                rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
            }
        }
    }
}

fn docker(args: &[&str], more: &[String]) -> String {
    if more.is_empty() && args.first() == Some(&"rm") {
        return String::new();
    }
    let output = Command::new("docker").args(args).args(more).output().expect("docker runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Ids of the containers of one instance, in any state.
pub(super) fn containers(instance: &str) -> Vec<String> {
    let filter = format!("label=harness.instance={instance}");
    let listed = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter], &[]);
    listed.lines().map(str::to_owned).collect()
}

/// Whether nothing of the instance was there to be removed.
fn is_removed(instance: &str) -> bool {
    let left = containers(instance);
    docker(&["rm", "-f", "-v"], &left);
    left.is_empty()
}

/// Makes the image once per test binary.
fn image() {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/images/mkimg-busybox.sh");
        let present = Command::new("docker").args(["image", "inspect", IMAGE]).output();
        if present.expect("docker runs").status.success() {
            return;
        }
        let made = Command::new(script).arg(IMAGE).output().expect("the script runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    });
}

impl World {
    pub(super) async fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, Path::new(ENGINE), "host-tmpfs").await
    }

    pub(super) async fn with(files: &[(&str, &str)], engine: &Path, staging: &'static str) -> Self {
        Self::made(files, engine, staging, false).await
    }

    /// With a ceiling, a directory of tenants' ceilings and a list of approvers, which all say nothing yet.
    pub(super) async fn governed(files: &[(&str, &str)]) -> Self {
        Self::made(files, Path::new(ENGINE), "host-tmpfs", true).await
    }

    async fn made(
        files: &[(&str, &str)],
        engine: &Path,
        staging: &'static str,
        governed: bool,
    ) -> Self {
        image();
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        for (name, text) in files {
            let path = workspace.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let lib = dir.path().join("deps/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("greet.sh"), "echo hello from the library\n").unwrap();
        let pki = DevPki::new("test.harness".parse().unwrap()).unwrap();
        let signing = pki.receipts("0").unwrap();
        let gateway =
            Signer::from_pem(signing.cert_pem.as_bytes(), signing.key_pem.as_bytes()).unwrap();
        let own = pki.service(Service::SandboxSvc, "0").unwrap();
        pki.write_tls_dir(&dir.path().join("tls"), &own).unwrap();

        let stop = CancellationToken::new();
        let house = pki.context(audit::IDENTITY).unwrap();
        let (ledger, ledger_addr) = Ledger::serve(&house, stop.clone()).await;
        let mut world = Self {
            client: client(&pki, Service::AgentSvc, "127.0.0.1:1".parse().unwrap()),
            dir,
            pki,
            gateway,
            ledger,
            ledger_addr,
            engine: engine.to_owned(),
            staging,
            warm: 0,
            governed,
            broker: None,
            service: None,
            instance: None,
            _stop: stop.drop_guard(),
            _house: house,
        };
        if governed {
            fs::create_dir(world.dir.path().join("tenants")).unwrap();
            world.ceiling("");
            world.approvers(&[]);
        }
        world.start().await;
        world
    }

    /// With the real broker, started anew with these hosts of this machine.
    pub(super) async fn networked(private: &[&str]) -> Self {
        let mut world = Self::new(&[]).await;
        let built = std::env::current_exe().unwrap();
        let built = built.ancestors().nth(2).unwrap().join("harness-egress");
        assert!(built.is_file(), "{} is missing: cargo build -p egress", built.display());
        // Where the broker's own user finds it, and by a name that no other test has.
        let program = world.dir.path().join("harness-egress");
        let copied = Command::new("cp").arg(built).arg(&program).status().unwrap();
        assert!(copied.success());
        world.restart_with_broker(program, private).await;
        world
    }

    pub(super) async fn restart_with_broker(&mut self, program: PathBuf, private: &[&str]) {
        self.broker = Some((program, private.join(",")));
        self.stop().await;
        self.start().await;
    }

    /// Of the broker's program: every process that runs it.
    pub(super) fn brokers(&self) -> Vec<i32> {
        let program = &self.broker.as_ref().unwrap().0;
        let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let found = fs::read_link(format!("/proc/{id}/exe")).ok()?;
            (found == *program).then_some(id)
        });
        all.collect()
    }

    /// The administrator writes a file anew.
    fn govern(&self, name: &str, text: &str) {
        let part = self.dir.path().join("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, self.dir.path().join(name)).unwrap();
    }

    pub(super) fn ceiling(&self, rules: &str) {
        self.govern("ceiling.yaml", &format!("kind: ceiling\nid: top\n{rules}\n"));
    }

    pub(super) fn tenant_ceiling(&self, tenant: &str, rules: &str) {
        let text = format!("kind: ceiling\nid: {tenant}\n{rules}\n");
        self.govern(&format!("tenants/{tenant}.yaml"), &text);
    }

    pub(super) fn approvers(&self, listed: &[(&str, receipt::PublicKey, &str)]) {
        let row = |(subject, key, roles): &(&str, receipt::PublicKey, &str)| {
            format!("{{subject: {subject}, key: '{key}', roles: [{roles}]}}")
        };
        let rows: Vec<_> = listed.iter().map(row).collect();
        self.govern("approvers.yaml", &format!("approvers: [{}]\n", rows.join(", ")));
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// The tree that this host offers as `lib`.
    pub(super) fn dependency(&self) -> PathBuf {
        self.dir.path().join("deps/lib")
    }

    pub(super) fn sandbox(&self) -> &Arc<Sandbox> {
        &self.service.as_ref().unwrap().sandbox
    }

    pub(super) fn containers(&self) -> Vec<String> {
        containers(&self.sandbox().instance.to_string())
    }

    /// Until no container is left: another pass of the service may have begun its removal.
    pub(super) async fn emptied(&self) {
        for _ in 0..100 {
            if self.containers().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("left behind: {:?}", self.containers());
    }

    pub(super) fn config(&self) -> Config {
        let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        let args = [
            "sandbox-svc".to_owned(),
            flag("tls-dir", &self.dir.path().join("tls").display()),
            flag("trust-domain", &self.pki.domain),
            flag("listen", &"127.0.0.1:0"),
            flag("state-dir", &self.dir.path().join("state").display()),
            flag("audit-endpoint", &self.ledger_addr),
            flag("workspace", &format!("demo={}", self.workspace().display())),
            flag("dependency", &format!("lib={}", self.dependency().display())),
            flag("staging", &self.staging),
            flag("max-memory", &"512MiB"),
            flag("max-pids", &"128"),
            flag("max-cpus", &"2"),
            flag("max-time", &"60s"),
            flag("max-output", &"4MiB"),
            flag("max-workspace-bytes", &"256MiB"),
            flag("max-workspace-inodes", &"10000"),
            flag("max-file-bytes", &"128MiB"),
            flag("max-tmp-bytes", &"64MiB"),
            flag("warm-containers", &self.warm),
        ];
        // An empty path is a host without an engine.
        let engine = (!self.engine.as_os_str().is_empty())
            .then(|| flag("engine-socket", &self.engine.display()));
        let above = |name: &str, file: &str| flag(name, &self.dir.path().join(file).display());
        let above = [
            above("ceiling", "ceiling.yaml"),
            above("tenant-ceilings", "tenants"),
            above("approver-keys", "approvers.yaml"),
        ];
        let above = above.into_iter().filter(|_| self.governed);
        let broker = self.broker.iter().flat_map(|(program, private)| {
            let private = (!private.is_empty()).then(|| flag("egress-private", private));
            [flag("egress-program", &program.display())].into_iter().chain(private)
        });
        let args = args.into_iter().chain(engine).chain(above).chain(broker).map(OsString::from);
        <Config as clap::Parser>::try_parse_from(args).unwrap()
    }

    pub(super) async fn start(&mut self) {
        let config = self.config();
        self.start_with(config).await;
    }

    pub(super) async fn start_as(&mut self, change: impl FnOnce(&mut Config)) {
        let mut config = self.config();
        change(&mut config);
        self.start_with(config).await;
    }

    /// A script runs on the host whenever the service passes the place.
    pub(super) async fn start_running_at(&mut self, place: &str, script: &str) {
        let config = Config { failpoint: Some(format!("run:{place}={script}")), ..self.config() };
        self.start_with(config).await;
    }

    /// The service stops at the n-th failpoint that it passes, as a kill there would have it.
    pub(super) async fn start_stopping_at(&mut self, place: usize) {
        let config = Config { failpoint: Some(format!("stop:{place}")), ..self.config() };
        self.start_with(config).await;
    }

    pub(super) async fn start_with(&mut self, config: Config) {
        let context = transport::Context::for_test(
            transport::Material::open(&config.transport.tls_dir, self.pki.domain.clone()).unwrap(),
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (tell, told) = tokio::sync::oneshot::channel();
        let (end, served) = tokio::sync::oneshot::channel();
        let (stop, kept) = (context.shutdown.clone(), context.clone());
        runtime.spawn(async move {
            let bound = crate::bind(config, context).await.unwrap();
            let addr = bound.addrs()[0].1;
            assert!(tell.send((addr, bound.sandbox.clone())).is_ok());
            bound.serve(stop).await.unwrap();
            // Nobody waits for it in most tests.
            end.send(()).ok();
        });
        let (addr, sandbox) = told.await.expect("the service starts");
        self.client = client(&self.pki, Service::AgentSvc, addr);
        let context = kept;
        self.instance = Some(sandbox.instance.to_string());
        self.service = Some(Running { runtime: Some(runtime), sandbox, context, served });
    }

    /// Asked to stop as a signal does, waited for within the drain limit, then gone.
    pub(super) async fn stop(&mut self) {
        let mut running = self.service.take().unwrap();
        running.context.shutdown.cancel();
        let tracker = running.context.tracker.clone();
        let ended = async {
            (&mut running.served).await.unwrap();
            tracker.close();
            tracker.wait().await;
        };
        tokio::time::timeout(running.context.drain_timeout, ended).await.unwrap();
        self.service = Some(running);
        self.kill();
    }

    /// Everything of the service stops at once, as a kill would have it.
    pub(super) fn kill(&mut self) {
        let mut running = self.service.take().unwrap();
        let runtime = running.runtime.take().unwrap();
        let sandbox = Arc::downgrade(&running.sandbox);
        drop(running);
        std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5)))
            .join()
            .unwrap();
        assert_eq!(sandbox.strong_count(), 0, "something of the service lives on");
    }

    pub(super) fn grant(&self, session: SessionId, manifest: &str) -> Grant {
        let now = now_secs();
        Grant {
            session,
            tenant: TENANT.to_owned(),
            subject: "ada".to_owned(),
            manifest_id: "demo".to_owned(),
            manifest: Digest::of(manifest.as_bytes()),
            workspace: "demo".to_owned(),
            models: Vec::new(),
            on_disconnect: OnDisconnect::Deny,
            iat: now,
            exp: now + 3600,
        }
    }

    pub(super) fn sign<P: receipt::Payload>(&self, payload: &P) -> Signed {
        self.gateway.sign(payload).unwrap()
    }

    pub(super) async fn fence(
        &self,
        owner: &common::Owner,
        grant: &Signed,
        manifest: &str,
    ) -> Result<wire::FenceResponse, Fault> {
        let request = wire::FenceRequest {
            owner: Some(owner.clone()),
            grant: Some(to_wire(grant)),
            manifest: manifest.as_bytes().to_vec(),
        };
        let request = transport::deadline::request(request, LIMIT);
        Ok(self.client.clone().fence(request).await?.into_inner())
    }

    /// A session with an open run.
    pub(super) async fn run(&self, manifest: &str) -> Run<'_> {
        let session = SessionId::new();
        let owner =
            common::Owner { session_id: session.to_string(), node: "node-a".to_owned(), epoch: 1 };
        let grant = self.sign(&self.grant(session, manifest));
        self.fence(&owner, &grant, manifest).await.unwrap();
        let run = Run { world: self, session, owner, run: RunId::new() };
        run.open().await.unwrap();
        run
    }
}

fn client(
    pki: &DevPki,
    service: Service,
    addr: std::net::SocketAddr,
) -> SandboxServiceClient<PeerChannel> {
    let context = pki.context(service).unwrap();
    let channel = transport::channel::connect(&context, &addr.into(), Service::SandboxSvc);
    SandboxServiceClient::new(channel)
}

pub(super) fn to_wire(signed: &Signed) -> common::Signed {
    let Signed { payload, signature, chain } = signed.clone();
    common::Signed { payload, signature, chain }
}
