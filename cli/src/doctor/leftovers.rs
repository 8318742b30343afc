//! What runs that ended badly left at the engine or in a state directory. It removes nothing, and a container whose
//! service may still be there is none.
use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Check, Engine};
use crate::{
    error::{Causes, Explain as _},
    mesh::{self, Situation},
};

const NAME: &str = "leftovers";
/// Every container of every sandbox service: `{"label":["harness.owner=sandbox-svc"]}`.
const OURS: &str =
    "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22harness.owner%3Dsandbox-svc%22%5D%7D";
const SHOWN: usize = 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    mounts: Vec<Mount>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Mount {
    #[serde(default)]
    source: PathBuf,
}

pub(super) async fn checks(engine: &Engine, state: Option<&Path>) -> Vec<Check> {
    // Of a mesh that runs, nothing is left over.
    let stopped = state.filter(|dir| matches!(mesh::situation(dir), Ok(Situation::Stopped)));
    let containers = match engine.ask::<Vec<Container>>(OURS).await {
        Ok(containers) => judge(&containers, stopped, &is_gone),
        Err(error) => Check::warn(NAME, Causes(&error).to_string(), &error.advice()),
    };
    let mut checks = vec![containers];
    checks.extend(stopped.map(copies));
    checks
}

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Which containers belong to nothing that could still want them.
fn judge(
    containers: &[Container],
    stopped: Option<&Path>,
    is_gone: &dyn Fn(&Path) -> bool,
) -> Check {
    let stopped = stopped.map(|dir| dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
    let below = |mount: &Mount| stopped.as_ref().is_some_and(|dir| mount.source.starts_with(dir));
    let (mut of_state, mut of_nobody) = (Vec::new(), Vec::new());
    for container in containers {
        let name = container.names.first().map_or("?", |name| name.trim_start_matches('/'));
        if container.mounts.iter().any(below) {
            of_state.push(name);
        } else if container.mounts.iter().any(|mount| is_gone(&mount.source)) {
            of_nobody.push(name);
        }
    }
    match (of_state.as_slice(), of_nobody.as_slice()) {
        ([], []) => Check::ok(NAME, "no container is left of a service that is gone"),
        ([], names) => Check::warn(
            NAME,
            format!("containers of a service whose state directory is gone: {}", listed(names)),
            "remove them with 'docker rm --force NAME'",
        ),
        (names, _) => Check::warn(
            NAME,
            format!("containers of this mesh, which does not run: {}", listed(names)),
            "start it with 'harness up', or end them with 'harness runs cleanup --state DIR'",
        ),
    }
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Private copies that held runs keep of a mesh that does not run.
fn copies(dir: &Path) -> Check {
    match mesh::kept(dir) {
        Ok(0) => Check::ok("copies", "no run keeps a private copy"),
        Ok(count) => Check::warn(
            "copies",
            format!("{count} private copies are kept for runs that are held"),
            "answer them after 'harness up', or end them with 'harness runs cleanup --state DIR'",
        ),
        Err(error) => Check::warn("copies", error.to_string(), &error.advice()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    const LISTED: &str = r#"[
        {"Names":["/sbx-one"],"Mounts":[{"Source":"/mesh/a/state/copy"},{"Source":"/mesh/a/init"}]},
        {"Names":["/sbx-two"],"Mounts":[{"Source":"/mesh/b/state/copy"}]},
        {"Names":["/sbx-three"]}
    ]"#;

    fn judged(stopped: Option<&str>, gone: &str) -> (Status, String) {
        let containers: Vec<Container> = serde_json::from_str(LISTED).unwrap();
        let is_gone = |path: &Path| !gone.is_empty() && path.starts_with(gone);
        let check = judge(&containers, stopped.map(Path::new), &is_gone);
        (check.status, check.found)
    }

    #[test]
    fn a_container_is_left_when_its_mesh_is_stopped_or_its_directory_is_gone() {
        assert_eq!(judged(None, "").0, Status::Ok);
        assert_eq!(judged(Some("/mesh/c"), "").0, Status::Ok);
        let of_state = "containers of this mesh, which does not run: sbx-one".to_owned();
        assert_eq!(judged(Some("/mesh/a"), ""), (Status::Warn, of_state.clone()));
        let of_nobody = "containers of a service whose state directory is gone: sbx-two".to_owned();
        assert_eq!(judged(None, "/mesh/b"), (Status::Warn, of_nobody));
        assert_eq!(judged(Some("/mesh/a"), "/mesh/b"), (Status::Warn, of_state));
    }

    #[test]
    fn many_names_are_cut_and_counted() {
        let names = vec!["x"; 12];
        assert!(listed(&names).ends_with("x and 2 more"));
    }
}
