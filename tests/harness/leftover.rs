//! The end of a rig: its services are asked to end, and nothing of theirs may be left at the engine or mounted. A copy
//! that a held run keeps is no leftover, and what a killed service left is its cleanup's to find. It spares nobody: what
//! it reports is removed all the same.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness::mesh::Mesh;
use sandbox_svc::Purge;
use tokio::runtime::Handle;
use transport::Service;

use crate::Engine;

const SOCKET: &str = "/var/run/docker.sock";

/// Everything that is left, one line each.
pub(crate) fn end(mesh: &mut Mesh, dir: &Path) -> Vec<String> {
    let ended = match Handle::try_current() {
        Ok(runtime) => tokio::task::block_in_place(|| runtime.block_on(in_order(mesh, dir))),
        Err(error) => Err(error.into()),
    };
    let mut left = ended.unwrap_or_else(|error| vec![format!("{error:#}")]);
    let removed = remove(dir);
    left.extend(removed.unwrap_or_else(|error| vec![format!("{error:#}")]));
    left
}

async fn in_order(mesh: &mut Mesh, dir: &Path) -> Result<Vec<String>> {
    let sandbox = mesh.pid(Service::SandboxSvc).is_some_and(lives);
    mesh.stop().await.context("the services do not end")?;
    let mut left = Vec::new();
    if sandbox {
        // One that was asked to end has ended its commands and what waited for one.
        let name = |(_, name): (String, String)| format!("{name} outlives sandbox-svc's own end");
        left.extend(Engine::below(dir)?.into_iter().map(name));
    }
    let state_dir = mesh.layout().data(Service::SandboxSvc);
    if state_dir.join("lock").exists() {
        let purge = Purge { purge: true, state_dir, engine_socket: Some(SOCKET.into()) };
        purge.run().await.context("the copies do not end")?;
    }
    Ok(left)
}

/// A process that ended by itself may not have been waited for.
fn lives(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// What the services' own ways did not remove; there is nothing.
fn remove(dir: &Path) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (id, name) in Engine::below(dir)? {
        Engine::remove(&id)?;
        left.push(format!("the container {name} is left"));
    }
    for point in mounts_below(dir)? {
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH)?;
        left.push(format!("{} stays mounted", point.display()));
    }
    Ok(left)
}

/// Deepest first.
fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(dir)).collect();
    below.reverse();
    Ok(below)
}
