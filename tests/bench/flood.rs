//! A command that writes two hundred million bytes: how fast they come through to a reader who takes all that is passed
//! on, beside `docker run | cat`, and what sandbox-svc holds meanwhile beyond what it held before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Impostor, Order, Rig, Spec, Turn, manifest};
use event::SandboxStarted;
use event::id::CallId;
use proto::sandbox::v1::execute_response::Message;
use proto::sandbox::v1::finished::Outcome;
use proto::sandbox::v1::{Exited, Finished};
use serde_json::json;
use transport::Service;

use crate::engine::Flags;
use crate::is_wanted;
use crate::sample::{Figure, Unit};

const RATE: &str = "output.rate";
const MEMORY: &str = "output.memory";

const BYTES: u64 = 200_000_000;
const FLOOD: &str = "dd if=/dev/zero bs=50000 count=4000 2> /dev/null";
/// How much more than at rest sandbox-svc may hold.
const MOST_MIB: f64 = 64.0;
/// Each takes seconds.
const MOST_ROUNDS: u32 = 10;

/// Of each bench whose name begins so.
pub(crate) async fn measure(prefix: &str, rounds: u32) -> Result<Vec<Figure>> {
    if !is_wanted(&[RATE, MEMORY], prefix) {
        return Ok(Vec::new());
    }
    let mut task = manifest("bench").rule("process.exec", json!("allow"));
    task.limits = json!({"output": "256MiB"});
    let spec = Spec::new(task, vec![Turn::Say("nothing")]);
    let rig = Rig::start(spec.setting(Service::SandboxSvc, "max-output", "256MiB")).await?;
    let impostor = Impostor::enter(&rig, "bench")?;
    impostor.fence().await?;
    impostor.open().await?;
    let flags = flags(&impostor).await?;
    let memory = Memory::at_rest(rig.mesh.pid(Service::SandboxSvc).context("it runs")?)?;
    let (mut ours, mut theirs, mut grown) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms both; what it leaves behind in memory counts.
    for round in 0..=rounds.min(MOST_ROUNDS) {
        let their = bare(&flags)?;
        memory.forget_most()?;
        let our = governed(&impostor).await?;
        grown.push(memory.most_more()?);
        if round > 0 {
            ours.push(rate(our));
            theirs.push(rate(their));
        }
    }
    impostor.close().await?;
    let mut figures = vec![
        Figure::of(RATE, Unit::Rate, &ours, "docker run | cat > /dev/null", &theirs, 1.0),
        Figure::of(MEMORY, Unit::Mebibytes, &grown, "more than at rest", &[MOST_MIB], 1.0),
    ];
    figures.retain(|figure| figure.name().starts_with(prefix));
    Ok(figures)
}

fn rate(took: Duration) -> f64 {
    BYTES as f64 / 1e6 / took.as_secs_f64()
}

/// Of a container while it runs.
async fn flags(impostor: &Impostor) -> Result<Flags> {
    let mut flags = None;
    let outcome = carried_out(impostor, &["sleep", "3"], |message| {
        if let Message::Started(started) = message {
            flags = Some(of_started(&started.data));
        }
    });
    outcome.await?;
    flags.context("it started")?
}

fn of_started(data: &[u8]) -> Result<Flags> {
    let started: SandboxStarted = serde_json::from_slice(data)?;
    Flags::of(&started.container_name)
}

async fn carried_out(
    impostor: &Impostor,
    argv: &[&str],
    see: impl FnMut(&Message),
) -> Result<Finished> {
    let (call, arguments) = (CallId::new(), json!({"argv": argv}));
    let (_, bytes) = impostor.planned(call, "process.exec", &arguments).await?;
    let plan = receipt::plan_digest(&bytes);
    let order = Order { call, tool: "process.exec", arguments: &arguments, plan, receipts: &[] };
    let finished = impostor.carry_out(&order, see).await?;
    ensure!(finished.outcome == Some(Outcome::Exited(Exited { code: 0 })), "{finished:?}");
    Ok(finished)
}

async fn governed(impostor: &Impostor) -> Result<Duration> {
    let mut passed_on = 0;
    let began = Instant::now();
    let finished = carried_out(impostor, &["sh", "-c", FLOOD], |message| {
        if let Message::Output(output) = message {
            passed_on += output.bytes.len();
        }
    });
    let finished = finished.await?;
    let took = began.elapsed();
    ensure!(finished.stdout_bytes == BYTES && !finished.output_incomplete, "{finished:?}");
    ensure!(passed_on > 0, "nothing was passed on while it ran");
    Ok(took)
}

fn bare(flags: &Flags) -> Result<Duration> {
    let began = Instant::now();
    let mut run = flags.command(&["run", "--rm"], &["sh", "-c", FLOOD]);
    let mut run = run.stdout(Stdio::piped()).spawn()?;
    let output = run.stdout.take().context("an output")?;
    let read = Command::new("cat").stdin(output).stdout(Stdio::null()).status()?;
    let ran = run.wait()?;
    ensure!(ran.success() && read.success(), "docker run {ran}, cat {read}");
    Ok(began.elapsed())
}

/// The memory of a process, as its kernel counts it.
struct Memory {
    process: PathBuf,
    at_rest: f64,
}

impl Memory {
    fn at_rest(pid: u32) -> Result<Self> {
        let process = Path::new("/proc").join(pid.to_string());
        let at_rest = mebibytes(&process, "VmRSS:")?;
        Ok(Self { process, at_rest })
    }

    /// The most is counted from here on.
    fn forget_most(&self) -> Result<()> {
        Ok(fs::write(self.process.join("clear_refs"), "5")?)
    }

    fn most_more(&self) -> Result<f64> {
        Ok(mebibytes(&self.process, "VmHWM:")? - self.at_rest)
    }
}

fn mebibytes(process: &Path, name: &str) -> Result<f64> {
    let status = fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a line")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}
