//! `process.exec true`, planned and executed with all its proofs, beside `docker run --rm` with the same flags.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::{Impostor, Outcome, Rig, Spec, Turn, manifest};
use event::id::CallId;
use serde_json::json;

use crate::sample::Figure;

pub(crate) const NAME: &str = "exec.true";

pub(crate) async fn measure(rounds: u32) -> Result<Figure> {
    let rules = manifest("bench").rule("process.exec", json!("allow"));
    let rig = Rig::start(Spec::new(rules, vec![Turn::Say("nothing")])).await?;
    let impostor = Impostor::enter(&rig, "bench")?;
    impostor.fence().await?;
    impostor.open().await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first round warms both.
    for round in 0..=rounds {
        let (our, their) = (governed(&impostor).await?, bare(&rig.image)?);
        if round > 0 {
            ours.push(our);
            theirs.push(their);
        }
    }
    Ok(Figure::new(NAME, &ours, "docker run --rm with the same flags", &theirs, 1.0))
}

async fn governed(impostor: &Impostor) -> Result<Duration> {
    let started = Instant::now();
    let call = CallId::new();
    let arguments = json!({"argv": ["true"]});
    let (_, bytes) = impostor.planned(call, "process.exec", &arguments).await?;
    let outcome = impostor
        .execute(call, "process.exec", &arguments, receipt::plan_digest(&bytes), None)
        .await?;
    ensure!(outcome == Outcome::Exited(0), "{outcome:?}");
    Ok(started.elapsed())
}

fn bare(image: &str) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new("docker")
        .args(["run", "--rm", "--init", "--network", "none", "--read-only", "--cap-drop", "ALL"])
        .args([
            "--security-opt",
            "no-new-privileges=true",
            "--pids-limit",
            "128",
            "--memory",
            "512m",
        ])
        .args([
            "--memory-swap",
            "512m",
            "--cpus",
            "1",
            "--log-driver",
            "none",
            "--user",
            "21003:21003",
        ])
        .args(["--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m,nr_inodes=4096", "--ipc", "none"])
        .args(["--ulimit", "core=0:0", "--workdir", "/tmp", "--entrypoint", "true", image])
        .status()?;
    ensure!(status.success(), "docker run: {status}");
    Ok(started.elapsed())
}
