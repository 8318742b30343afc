//! `doctor`: looks whether this machine can run the services and their containers. It only looks, and says for each
//! thing that it finds wanting what to do.
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    Error,
    error::{Exit, Explain},
    escape, mesh, output,
};

mod engine;
mod host;
mod leftovers;

pub(crate) use engine::{Engine, image_id};

const EXAMPLES: &str = "\
Examples:
  harness doctor
  harness doctor --state ./mesh --image harness/busybox:1
  harness doctor --engine-socket /run/podman/podman.sock --json";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// State directory that 'harness up' shall use or uses
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Image that a manifest names; may be given several times
    #[arg(long, value_name = "REF")]
    image: Vec<String>,

    /// Socket of the container engine
    #[arg(long, value_name = "PATH", default_value = "/var/run/docker.sock")]
    engine_socket: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    /// Blocks: services or containers will not run.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: String,
    status: Status,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: Status::Ok, found: found.into(), advice: None }
    }

    fn warn(name: &str, found: impl Into<String>, advice: &str) -> Self {
        Self {
            name: name.to_owned(),
            status: Status::Warn,
            found: found.into(),
            advice: Some(advice.to_owned()),
        }
    }

    fn fail(name: &str, found: impl Into<String>, advice: &str) -> Self {
        Self { status: Status::Fail, ..Self::warn(name, found, advice) }
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    ok: bool,
    checks: &'a [Check],
}

#[derive(Debug, thiserror::Error)]
#[error("{0} of the checks found a blocking problem")]
struct Blocked(usize);

impl Explain for Blocked {
    fn exit(&self) -> Exit {
        Exit::Blocked
    }
    fn advice(&self) -> String {
        "do what stands beside each 'fail'".to_owned()
    }
}

pub(crate) async fn doctor(args: Args) -> Result<Exit, Error> {
    let Args { state, image, engine_socket, json } = args;
    let programs = mesh::beside_this_program()?;
    let mut checks = host::checks(&programs, state.as_deref()).await;
    checks.extend(engine_checks(&engine_socket, state.as_deref(), &image).await);
    let blocking = checks.iter().filter(|check| check.status == Status::Fail).count();
    if json {
        output::document("doctor", &Findings { ok: blocking == 0, checks: &checks })?;
    } else {
        for Check { name, status, found, advice } in &checks {
            let status = match status {
                Status::Ok => "ok  ",
                Status::Warn => "warn",
                Status::Fail => "fail",
            };
            let advice = advice.as_deref().map(|advice| format!("; {advice}")).unwrap_or_default();
            output::line_out(&format!(
                "{status} {name}: {}{}",
                escape::line(found),
                escape::line(&advice)
            ))?;
        }
    }
    if blocking > 0 { Err(Blocked(blocking).into()) } else { Ok(Exit::Done) }
}

async fn engine_checks(socket: &Path, state: Option<&Path>, images: &[String]) -> Vec<Check> {
    let engine = Engine::new(socket);
    let mut checks = engine.checks().await;
    if checks.iter().any(|check| check.status == Status::Fail && check.name == "engine") {
        return checks;
    }
    checks.extend(leftovers::checks(&engine, state).await);
    for image in images {
        checks.push(match image_id(&engine, image).await {
            Ok(id) => Check::ok("image", format!("{image} is {id}")),
            Err(error) => Check::fail("image", error.to_string(), &error.advice()),
        });
    }
    checks
}
