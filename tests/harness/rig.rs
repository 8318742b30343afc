//! A throw-away directory with a workspace, a manifest, a script and the five processes over it. Dropping it ends
//! them in order, and fails the test where they left something.

use std::path::{Path, PathBuf};

use acp::token::Token;
use anyhow::{Context as _, Result, ensure};
use harness::file::Access;
use harness::mesh::{Mesh, Options, Ready};
use harness::pki::{Hosts, Store, Subject};
use harness::token::{self, Holder, Role};
use tempfile::TempDir;
use transport::material::Pem;
use transport::{Context, Material, Service};

use crate::{Engine, Manifest, Turn, leftover, script_with};

/// What a rig starts with.
#[derive(Debug)]
pub struct Spec {
    pub manifests: Vec<Manifest>,
    /// Scripts by model name.
    pub scripts: Vec<(String, Vec<Turn>)>,
    /// What every model says to a child, by its task.
    pub children: Vec<(&'static str, Vec<Turn>)>,
    /// Files of the workspace `demo`.
    pub files: Vec<(&'static str, &'static [u8])>,
    pub overrides: Vec<(Service, String, toml::Value)>,
}

impl Spec {
    pub fn new(manifest: Manifest, turns: Vec<Turn>) -> Self {
        Self {
            manifests: vec![manifest],
            scripts: vec![("scripted".to_owned(), turns)],
            children: Vec::new(),
            files: vec![
                ("app.txt", b"broken\n"),
                (".env", b"API_KEY=planted-value-of-the-suite\n"),
                ("src/lib.txt", b"one\n"),
            ],
            overrides: Vec::new(),
        }
    }

    #[must_use]
    pub fn setting(mut self, service: Service, key: &str, value: impl Into<toml::Value>) -> Self {
        self.overrides.push((service, key.to_owned(), value.into()));
        self
    }
}

#[derive(Debug)]
pub struct Rig {
    pub mesh: Mesh,
    pub ready: Ready,
    pub workspace: PathBuf,
    pub image: String,
    pub manifests: Vec<(String, Vec<u8>)>,
    dir: TempDir,
}

impl Rig {
    pub async fn start(spec: Spec) -> Result<Self> {
        let mut rig = Self::prepare(spec)?;
        rig.ready = rig.mesh.start().await?;
        Ok(rig)
    }

    /// Everything but the start.
    fn prepare(spec: Spec) -> Result<Self> {
        let Spec { manifests, scripts, children, files, overrides } = spec;
        // Not below a directory that other users may not enter: each service has its own user.
        let dir = tempfile::Builder::new()
            .prefix("harness-suite-")
            .permissions(world_may_enter())
            .tempdir()?;
        let image = Engine::image()?;
        let workspace = dir.path().join("workspace");
        write_all(&workspace, &files)?;
        let mut options = Options::new(programs()?);
        options.workspaces = vec![("demo".to_owned(), workspace.clone())];
        options.overrides = overrides;
        let mut written = Vec::new();
        for manifest in &manifests {
            let path = dir.path().join(format!("{}.yaml", manifest.id));
            let text = manifest.text(&image);
            std::fs::write(&path, &text)?;
            written.push((manifest.id.clone(), text.into_bytes()));
            options.manifests.push(path);
        }
        for (name, turns) in &scripts {
            let path = dir.path().join(format!("{name}.script.yaml"));
            std::fs::write(&path, script_with(turns, &children))?;
            options.scripts.push((name.clone(), path));
        }
        let mesh = Mesh::create(&dir.path().join("state"), &options)?;
        let ready = mesh.ready()?;
        Ok(Self { mesh, ready, workspace, image, manifests: written, dir })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills all five and starts them again.
    pub async fn kill_and_restart_all(&mut self) -> Result<()> {
        self.mesh.kill9_all().await?;
        self.ready = self.mesh.start().await?;
        Ok(())
    }

    /// Kills one and starts it again.
    pub async fn kill_and_restart(&mut self, service: Service) -> Result<()> {
        self.mesh.kill9(service).await?;
        self.mesh.restart(service).await?;
        Ok(())
    }

    pub fn store(&self) -> Result<Store> {
        Ok(Store::open(&self.mesh.layout().pki())?)
    }

    /// The token of another person, known to the gateway from now on.
    pub fn colleague(&self, subject: &str, roles: &[Role]) -> Result<Token> {
        let holder = Holder {
            tenant: "local".to_owned(),
            subject: subject.to_owned(),
            roles: roles.to_vec(),
            life: std::time::Duration::from_secs(3_600),
        };
        Ok(token::create(&self.mesh.layout().tokens(), &holder, Access::PRIVATE)?)
    }

    /// A context with an identity that this mesh's authority issues for `subject`.
    pub fn identity(&self, subject: &Subject) -> Result<Context> {
        let store = self.store()?;
        let files = store.issue(subject, &Hosts::default(), 1)?;
        let file = |name: &str| {
            let found = files.iter().find(|file| file.name == name);
            found.map(|file| file.bytes.clone()).with_context(|| format!("no {name} was issued"))
        };
        let pem = Pem {
            chain: file("tls.crt")?,
            key: file("tls.key")?,
            ca: file("ca.crt")?,
            auditors_ca: None,
            denylist: None,
        };
        Ok(Context::for_test(Material::from_pem(pem, store.domain().clone())?))
    }

    /// Where `service` listens for its peers.
    pub fn endpoint(&self, service: Service) -> Result<transport::Endpoint> {
        let text = std::fs::read_to_string(self.mesh.layout().config(service))?;
        let table: toml::Table = text.parse()?;
        let listen = table
            .get("listen")
            .and_then(toml::Value::as_str)
            .context("the configuration names listen")?;
        Ok(listen.parse()?)
    }

    pub fn manifest(&self, id: &str) -> Result<&[u8]> {
        let found = self.manifests.iter().find(|(name, _)| name == id);
        found.map(|(_, bytes)| bytes.as_slice()).with_context(|| format!("no manifest {id}"))
    }
}

impl Drop for Rig {
    /// Ends the services as a person would, and then looks: what is still at the engine or mounted fails the test.
    #[expect(clippy::print_stderr, clippy::panic, reason = "this is how a test fails")]
    fn drop(&mut self) {
        let left = leftover::end(&mut self.mesh, self.dir.path());
        if left.is_empty() {
            return;
        }
        // Of two failures the first is told; a second one would end the other tests with this one.
        match std::thread::panicking() {
            true => eprintln!("left behind: {left:?}"),
            false => panic!("left behind: {left:?}"),
        }
    }
}

/// The programs are built before the tests run (`make test`); a missing one is an error, never a skip.
pub fn programs() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().find(|dir| dir.ends_with("debug") || dir.ends_with("release"));
    let dir = profile.context("the test does not run from a target directory")?.to_owned();
    for service in Service::ALL {
        ensure!(dir.join(service.as_str()).is_file(), "{service} is not built: run `make build`");
    }
    for name in ["harness", "harness-egress"] {
        ensure!(dir.join(name).is_file(), "{name} is not built: run `make build`");
    }
    Ok(dir)
}

fn world_may_enter() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

fn write_all(root: &Path, files: &[(&str, &[u8])]) -> Result<()> {
    std::fs::create_dir_all(root)?;
    for (name, bytes) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        std::fs::write(path, bytes)?;
    }
    Ok(())
}
