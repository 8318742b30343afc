//! A host with tasks that have tool servers, and how these are listed and called.

use std::ops::Deref;

use serde_json::{Value, json};

use super::super::run::{Run, Told};
use super::super::world;
use crate::mcp::tests::peer;

const HOSTILE: &str = include_str!("hostile.py");

pub(super) struct World(pub(super) world::World);

impl Deref for World {
    type Target = world::World;

    fn deref(&self) -> &world::World {
        &self.0
    }
}

/// A task with two servers: `notes` of the official library, and `s`, whose tools are hostile.
pub(super) fn manifest(rules: &str) -> String {
    let image = peer::IMAGE;
    format!(
        "id: demo\ntitle: Demo\ngoal: try\nacceptance: [it works]\nallowed_paths: ['**']\n\
         permissions:\n  fs.read: allow\n  fs.list: allow\n  fs.write: allow\n  patch.import: allow\n{rules}\
         execution:\n  backend: oci\n  image: {image}\n  allow_commands: [sh, python3]\n\
         \x20 servers:\n\
         \x20   notes: {{command: [python3, notes.py], tools: [add_note, read_notes]}}\n\
         \x20   s: {{command: [python3, hostile.py], tools: [count, turn, die, hang, flood, noise, hog, refuse, ask, work, wide, absent], timeout: 8s, output: 64KiB}}\n\
         \x20 limits: {{memory: 128MiB, pids: 24, cpus: 1, time: 60s, output: 1MiB, workspace_bytes: 64MiB, workspace_inodes: 2000, file_bytes: 32MiB, tmp_bytes: 1MiB}}\n"
    )
}

pub(super) fn allowed() -> String {
    manifest("  process.exec: allow\n  mcp.call: allow\n")
}

impl World {
    pub(super) async fn new(files: &[(&str, &str)]) -> Self {
        peer::image();
        Self(world::World::new(files).await)
    }

    /// Until the ledger knows of so many starts and as many ends of containers.
    pub(super) async fn told_of(&self, stream: &str, containers: usize) {
        let count = |kind: &str| self.ledger.kinds(stream).iter().filter(|it| **it == kind).count();
        let both = || (count("sandbox.started"), count("sandbox.stopped"));
        self.ledger.wait(|_| both() == (containers, containers)).await;
    }

    pub(super) async fn hostile() -> Self {
        Self::new(&[("hostile.py", HOSTILE)]).await
    }
}

impl Run<'_> {
    pub(super) async fn list(&self, server: &str) -> Told {
        let call = self.plan("mcp_tools", json!({ "server": server })).await;
        self.execute(&call, None).await
    }

    pub(super) async fn call(&self, server: &str, tool: &str, arguments: Value) -> Told {
        let arguments = json!({ "server": server, "tool": tool, "arguments": arguments });
        let call = self.plan("mcp_call", arguments).await;
        self.execute(&call, None).await
    }
}
