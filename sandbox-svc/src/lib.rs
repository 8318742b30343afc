//! Workspaces, environments, containers and patches; the only holder of the engine.
