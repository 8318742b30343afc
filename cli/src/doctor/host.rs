//! What the services need of this machine: their programs, setpriv, ports, a place for their state.
use std::path::Path;

use tokio::process::Command;

use super::Check;
use crate::mesh::{self, Isolation, Situation};

pub(super) async fn checks(programs: &Path, state: Option<&Path>) -> Vec<Check> {
    let mut checks = vec![services(programs), setpriv().await, isolation(), ports()];
    checks.extend(state.map(directory));
    checks
}

fn services(dir: &Path) -> Check {
    let missing = mesh::lacks_programs(dir);
    match missing.as_slice() {
        [] => Check::ok(
            "programs",
            format!("all five and the egress broker are in {}", dir.display()),
        ),
        missing => Check::fail(
            "programs",
            format!("not in {}: {}", dir.display(), missing.join(", ")),
            "build the whole workspace with 'cargo build --workspace', or reinstall",
        ),
    }
}

async fn setpriv() -> Check {
    let probe = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--no-new-privs", "--", "true"])
        .output()
        .await;
    match probe {
        Ok(done) if done.status.success() => {
            Check::ok("setpriv", "services can be started and end with their starter")
        }
        Ok(done) => {
            let said =
                String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or_default().to_owned();
            Check::fail("setpriv", format!("it fails: {said}"), "install util-linux 2.33 or newer")
        }
        Err(error) => Check::fail("setpriv", error.to_string(), "install util-linux"),
    }
}

fn isolation() -> Check {
    match Isolation::available() {
        Isolation::OwnUids => Check::ok("isolation", "each service can have its own uid"),
        Isolation::OneUid => Check::warn(
            "isolation",
            "this is not root: all services share your uid",
            "run 'harness up' as root",
        ),
    }
}

fn ports() -> Check {
    match mesh::free_ports() {
        Ok(first) => Check::ok("ports", format!("a block is free at {first}")),
        Err(error) => {
            Check::fail("ports", error.to_string(), "stop some programs that listen on loopback")
        }
    }
}

fn directory(dir: &Path) -> Check {
    match mesh::situation(dir) {
        Ok(Situation::New) => Check::ok("state", format!("{} can be made", dir.display())),
        Ok(Situation::Stopped) => {
            Check::ok("state", format!("{} can be started again", dir.display()))
        }
        Ok(Situation::Running) => Check::ok("state", format!("{} runs now", dir.display())),
        Err(error) => Check::fail("state", error.to_string(), &crate::Explain::advice(&error)),
    }
}
