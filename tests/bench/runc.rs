//! A command under the bare runtime, without an engine: the bundle is what the engine made for a container of
//! sandbox-svc, with the image's files beside it. It holds what nobody can do without: namespaces, mounts, control
//! groups and filters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where engines keep a running container's configuration.
const BUNDLES: [&str; 2] = [
    "/run/containerd/io.containerd.runtime.v2.task/moby",
    "/var/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby",
];

#[derive(Debug)]
pub(crate) struct Bundle {
    dir: TempDir,
    runs: u32,
}

impl Bundle {
    /// For `argv`, as the running container `id` of that image is made.
    pub(crate) fn like(id: &str, image: &str, argv: &[&str]) -> Result<Self> {
        let found = BUNDLES.iter().map(|dir| Path::new(dir).join(id).join("config.json"));
        let found: Option<PathBuf> = found.into_iter().find(|path| path.is_file());
        let text = fs::read(found.with_context(|| format!("no configuration of {id}"))?)?;
        let mut config: Value = serde_json::from_slice(&text)?;
        let dir = tempfile::Builder::new().prefix("harness-bundle-").tempdir()?;
        let rootfs = dir.path().join("rootfs");
        fs::create_dir(&rootfs)?;
        unpack(image, &rootfs)?;
        config["process"]["args"] = json!(argv);
        config["root"]["path"] = json!(rootfs);
        config["linux"]["cgroupsPath"] = json!(format!("/harness-bench-{}", std::process::id()));
        // The engine's own: a network, of which there is none, and files that go with its container.
        config.as_object_mut().context("an object")?.remove("hooks");
        let mounts = config["mounts"].as_array_mut().context("mounts")?;
        mounts.retain(|mount| !mount["source"].as_str().is_some_and(|source| source.contains(id)));
        fs::write(dir.path().join("config.json"), serde_json::to_vec(&config)?)?;
        Ok(Self { dir, runs: 0 })
    }

    /// From the start of `runc run` to its end.
    pub(crate) fn run(&mut self) -> Result<Duration> {
        self.runs += 1;
        let name = format!("harness-bench-{}-{}", std::process::id(), self.runs);
        let began = Instant::now();
        let status = Command::new("runc")
            .arg("run")
            .arg("--bundle")
            .arg(self.dir.path())
            .arg(name)
            .stdin(Stdio::null())
            .status()
            .context("runc")?;
        ensure!(status.success(), "runc run: {status}");
        Ok(began.elapsed())
    }
}

fn unpack(image: &str, rootfs: &Path) -> Result<()> {
    let output = Command::new("docker").args(["create", "--pull=never", image, "true"]).output()?;
    ensure!(output.status.success(), "docker create: {output:?}");
    let id = String::from_utf8(output.stdout)?.trim().to_owned();
    let mut export = Command::new("docker").args(["export", &id]).stdout(Stdio::piped()).spawn()?;
    let archive = export.stdout.take().context("an archive")?;
    let unpacked = Command::new("tar")
        .arg("-x")
        .arg("-C")
        .arg(rootfs)
        .stdin(archive)
        .status()
        .context("tar")?;
    let exported = export.wait()?;
    let removed = Command::new("docker").args(["rm", &id]).output()?;
    ensure!(
        unpacked.success() && exported.success() && removed.status.success(),
        "export {exported}, tar {unpacked}, rm {removed:?}"
    );
    // What the engine mounts on must be there.
    for place in ["workspace", "tmp", ".sbx"] {
        fs::create_dir_all(rootfs.join(place))?;
    }
    Ok(())
}
