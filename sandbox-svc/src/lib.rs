//! Workspaces, environments, containers and patches; the only holder of the engine.

mod failpoint;
mod import;
mod patch;
mod tree;
