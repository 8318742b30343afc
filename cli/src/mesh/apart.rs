//! What a start may not do to what is there: put secrets where an agent reads, or take from held runs what they go on
//! with. It refuses before anything is written and changes nothing.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    Argument, Error, Layout, cleanup, lacks, models::Models, prepare::absolute, record::Record,
};
use crate::file;

/// A state directory holds keys, tokens and the ledger: a tree that commands see may neither hold it nor
/// lie in it.
pub(crate) fn from_state(
    root: &Path,
    what: &'static str,
    trees: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Error>, Error> {
    let state = real(root)?;
    let meets = |dir: &Path| -> bool { state.starts_with(dir) || dir.starts_with(&state) };
    let mut faults = Vec::new();
    for (name, dir) in trees {
        if meets(&real(dir)?) {
            let (name, state) = (name.clone(), root.to_owned());
            faults.push(Error::Argument(Argument::Together { what, name, state }));
        }
    }
    Ok(faults)
}

/// Held runs go on with the models, workspaces and dependencies that they began with.
pub(crate) fn from_held_runs(
    layout: &Layout,
    before: &Record,
    workspaces: &BTreeMap<String, PathBuf>,
    dependencies: &BTreeMap<String, PathBuf>,
    models: &[Models],
) -> Result<Vec<Error>, Error> {
    let held = cleanup::held(layout)?;
    if held == 0 {
        return Ok(Vec::new());
    }
    let mut faults = Vec::new();
    let mut dropped = |what: &'static str, name: String| {
        faults.push(Error::Argument(Argument::Dropped { what, name, held }));
    };
    if !models.is_empty() {
        let named: BTreeSet<&str> = models.iter().flat_map(Models::ids).collect();
        for name in lacks::offered(&layout.models())? {
            if !named.contains(name.as_str()) {
                dropped("model", name);
            }
        }
    }
    for (what, named, earlier) in [
        ("workspace", workspaces, &before.workspaces),
        ("dependency", dependencies, &before.dependencies),
    ] {
        for (name, dir) in earlier {
            if !named.is_empty() && named.get(name) != Some(dir) {
                dropped(what, name.clone());
            }
        }
    }
    Ok(faults)
}

/// Without links, also where the last parts are not there yet.
fn real(path: &Path) -> Result<PathBuf, Error> {
    let path = absolute(path)?;
    for above in path.ancestors() {
        if let Ok(found) = above.canonicalize() {
            let rest = path.strip_prefix(above).unwrap_or_else(|_| Path::new(""));
            return Ok(found.join(rest));
        }
    }
    let source = std::io::ErrorKind::NotFound.into();
    Err(file::failed("use", &path)(source).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_meets_no_workspace_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path().join("repo");
        std::fs::create_dir(&repo).unwrap();
        std::os::unix::fs::symlink(&repo, dir.path().join("link")).unwrap();
        let workspaces = BTreeMap::from([("demo".to_owned(), repo.clone())]);
        let faults = |state: &Path| from_state(state, "workspace", &workspaces).unwrap().len();
        for inside in ["repo", "repo/state", "repo/a/b", "link/state", "."] {
            assert_eq!(faults(&dir.path().join(inside)), 1, "{inside}");
        }
        for beside in ["state", "repo-state", "link-state"] {
            assert_eq!(faults(&dir.path().join(beside)), 0, "{beside}");
        }
    }
}
