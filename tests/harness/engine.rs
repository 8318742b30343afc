//! What a test asks the engine itself, through its own command line: images, containers left over. It removes only
//! what a test names.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};

/// The engine of this machine. Without one, a test fails.
#[derive(Debug)]
pub struct Engine(());

impl Engine {
    /// The id of the sandbox image, made when it is not there; looked for once in a process.
    pub fn image() -> Result<String> {
        static IMAGE: OnceLock<String> = OnceLock::new();
        match IMAGE.get() {
            Some(image) => Ok(image.clone()),
            None => make_image("mkimg-busybox.sh").map(|id| IMAGE.get_or_init(|| id).clone()),
        }
    }

    /// The id of the image with Python and the SDK of tool servers.
    pub fn python_image() -> Result<String> {
        static IMAGE: OnceLock<String> = OnceLock::new();
        match IMAGE.get() {
            Some(image) => Ok(image.clone()),
            None => make_image("mkimg-python.sh").map(|id| IMAGE.get_or_init(|| id).clone()),
        }
    }

    /// Names of containers in any state that carry `label`.
    pub fn containers(label: &str) -> Result<Vec<String>> {
        let filter = format!("label={label}");
        let text = docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// What the engine says of the container of that name or id.
    pub fn inspect(container: &str) -> Result<serde_json::Value> {
        let text = docker(&["container", "inspect", "--format", "{{json .}}", container])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Containers of sandbox services that have something below `dir` mounted: their ids and names.
    pub(crate) fn below(dir: &Path) -> Result<Vec<(String, String)>> {
        let ours =
            docker(&["ps", "--all", "--quiet", "--filter", "label=harness.owner=sandbox-svc"])?;
        let mut below = Vec::new();
        for id in ours.lines() {
            let format =
                "{{.Name}} ({{.State.Status}}){{range .Mounts}}{{println}}{{.Source}}{{end}}";
            // One that went away by itself in the meantime is no longer there to be asked.
            let Ok(said) = docker(&["inspect", "--format", format, id]) else { continue };
            let mut lines = said.lines();
            let name = lines.next().unwrap_or_default();
            if lines.any(|source| Path::new(source).starts_with(dir)) {
                below.push((id.to_owned(), name.trim_start_matches('/').to_owned()));
            }
        }
        Ok(below)
    }

    pub(crate) fn remove(id: &str) -> Result<()> {
        docker(&["rm", "--force", "--volumes", id]).map(drop)
    }
}

fn make_image(script: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let path = root.join("deploy/images").join(script);
    let made = Command::new(path).output().with_context(|| script.to_owned())?;
    ensure!(made.status.success(), "no image: {}", String::from_utf8_lossy(&made.stderr));
    let printed = String::from_utf8(made.stdout)?;
    let image = printed.lines().last().context("the image's id")?.trim().to_owned();
    ensure!(image.starts_with("sha256:"), "not an image id: {image}");
    Ok(image)
}

fn docker(arguments: &[&str]) -> Result<String> {
    let output = Command::new("docker").args(arguments).output().context("docker runs")?;
    ensure!(
        output.status.success(),
        "docker {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
