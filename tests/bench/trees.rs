//! A private copy of a large workspace beside `cp -a` to the same kind of place, and the patch of that untouched copy
//! beside `git status` in a committed repository of the same tree; both through the service, as agent-svc asks it. Both
//! copies and the repository are in a tmpfs, and everything has been read once before it is measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Asked, Impostor, Rig, Spec, Turn, manifest};
use event::id::{CallId, RunId};
use serde_json::json;
use transport::Service;

use crate::sample::Figure;

/// Name of the copy, name of the patch, entries.
const SIZES: [(&str, &str, usize); 2] = [
    ("tree.10000.snapshot", "tree.10000.patch", 10_000),
    ("tree.100000.snapshot", "tree.100000.patch", 100_000),
];
const GOAL: f64 = 1.5;
/// Each takes seconds.
const MOST_ROUNDS: u32 = 7;
/// What source files are large, in bytes.
const BYTES: [usize; 5] = [200, 800, 2_000, 4_000, 9_000];
const FILES_PER_DIRECTORY: usize = 50;
/// A tmpfs that every development machine has.
const MEMORY: &str = "/dev/shm";

/// Of each bench whose name begins so.
pub(crate) async fn measure(prefix: &str, rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (snapshot, patch, files) in SIZES {
        if snapshot.starts_with(prefix) || patch.starts_with(prefix) {
            let measured = Measured::of(files, rounds).await?;
            let Measured { taken, copied, inspected, status } = measured;
            figures.push(Figure::new(snapshot, &taken, "cp -a into a tmpfs", &copied, GOAL));
            figures.push(Figure::new(patch, &inspected, "git status", &status, GOAL));
        }
    }
    figures.retain(|figure| figure.name().starts_with(prefix));
    Ok(figures)
}

#[derive(Default)]
struct Measured {
    taken: Vec<Duration>,
    copied: Vec<Duration>,
    inspected: Vec<Duration>,
    status: Vec<Duration>,
}

impl Measured {
    async fn of(files: usize, rounds: u32) -> Result<Self> {
        let mut task = manifest("bench");
        task.limits = json!({"workspace_bytes": "2GiB", "workspace_inodes": 200_000});
        let spec = Spec::new(task, vec![Turn::Say("nothing")]).setting(
            Service::SandboxSvc,
            "max-workspace-bytes",
            "2GiB",
        );
        let spec = spec.setting(Service::SandboxSvc, "max-workspace-inodes", 200_000);
        let rig = Rig::start(spec).await?;
        fill(&rig.workspace, files)?;
        let place = tempfile::tempdir_in(MEMORY)?;
        let repository = place.path().join("repository");
        run(Command::new("cp").arg("-a").arg(&rig.workspace).arg(&repository))?;
        commit(&repository)?;
        let mut impostor = Impostor::enter(&rig, "bench")?;
        impostor.fence().await?;
        let mut measured = Self::default();
        // The first round warms both.
        for round in 0..=rounds.min(MOST_ROUNDS) {
            impostor.run = RunId::new();
            let (copied, status) = (copy(&rig.workspace)?, status(&repository)?);
            let taken = timed(impostor.open()).await?;
            let inspected = inspect(&impostor).await?;
            impostor.close().await?;
            if round > 0 {
                measured.taken.push(taken);
                measured.copied.push(copied);
                measured.inspected.push(inspected);
                measured.status.push(status);
            }
        }
        Ok(measured)
    }
}

async fn timed<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<Duration>
where
    E: Into<anyhow::Error>,
{
    let began = Instant::now();
    work.await.map_err(Into::into)?;
    Ok(began.elapsed())
}

async fn inspect(impostor: &Impostor) -> Result<Duration> {
    let began = Instant::now();
    let asked = impostor.plan(CallId::new(), "inspect_patch", &json!({})).await?;
    let took = began.elapsed();
    let Asked::Planned { result: Some(result), .. } = asked else { anyhow::bail!("{asked:?}") };
    ensure!(result["totals"]["entries"] == 0, "an untouched copy has an empty patch: {result}");
    Ok(took)
}

fn copy(workspace: &Path) -> Result<Duration> {
    let place = tempfile::tempdir_in(MEMORY)?;
    let began = Instant::now();
    run(Command::new("cp").arg("-a").arg(workspace).arg(place.path()))?;
    Ok(began.elapsed())
}

/// The repository is ours and new; nothing that an agent could write is in it.
fn git(repository: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(repository)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=bench", "-c", "user.email=bench@bench.test"]);
    git
}

fn commit(repository: &Path) -> Result<()> {
    run(git(repository).args(["init", "--quiet"]))?;
    run(git(repository).args(["add", "--all"]))?;
    run(git(repository).args(["commit", "--quiet", "--message", "all"]))
}

fn status(repository: &Path) -> Result<Duration> {
    let began = Instant::now();
    let output = git(repository).args(["status", "--short"]).output()?;
    let took = began.elapsed();
    ensure!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    Ok(took)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Text of its own in every file, in directories of some depth.
fn fill(root: &Path, files: usize) -> Result<()> {
    for number in 0..files {
        let directory = number / FILES_PER_DIRECTORY;
        let path: PathBuf =
            [format!("part-{}", directory / 20), format!("unit-{}", directory % 20)]
                .iter()
                .collect();
        let path = root.join(path);
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&path)?;
        }
        let line = format!("let value_{number} = compute({number}, \"{}\");\n", number * 7_919);
        let length = BYTES.get(number % BYTES.len()).context("a size")?;
        let text = line.repeat(length / line.len() + 1);
        fs::write(path.join(format!("source_{number}.rs")), text)?;
    }
    Ok(())
}
