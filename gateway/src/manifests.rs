//! The reviewed manifests: chosen by id, read again for every session, never taken from a client.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use acp::TaskId;
use manifest::{Faults, Manifest};
use tracing::warn;
use transport::Chain;

#[derive(Clone, Debug)]
pub(crate) struct Manifests {
    dir: PathBuf,
    default: Option<TaskId>,
}

/// A manifest with the bytes that its digest is of.
#[derive(Clone, Debug)]
pub(crate) struct Reviewed {
    pub(crate) manifest: Manifest,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no manifest; put reviewed ones there, each named <id>.yaml", path.display())]
    None { path: PathBuf },
    #[error("{} has a name that no manifest id can have; use lower-case words joined by single hyphens and the ending .yaml", path.display())]
    Name { path: PathBuf },
    #[error("{faults}")]
    Faults { faults: Faults },
    #[error("{} has the id {found}; file name and id must agree", path.display())]
    Id { path: PathBuf, found: String },
    #[error("there is no manifest {id} for --default-manifest")]
    NoDefault { id: String },
    #[error("there is no task {id}")]
    Unknown { id: String },
    #[error("name a task: this gateway has no default")]
    Unnamed,
}

impl Manifests {
    /// Reads all of them, so that a broken one stops the start and not a session.
    pub(crate) fn open(dir: &Path, default: Option<TaskId>) -> Result<Self, Error> {
        let manifests = Self { dir: dir.to_owned(), default };
        let ids = manifests.ids()?;
        if ids.is_empty() {
            return Err(Error::None { path: dir.to_owned() });
        }
        for id in &ids {
            manifests.read(id)?;
        }
        match &manifests.default {
            Some(id) if !ids.contains(id) => Err(Error::NoDefault { id: id.as_str().to_owned() }),
            Some(_) | None => Ok(manifests),
        }
    }

    /// The manifest as it is now.
    pub(crate) fn load(&self, task: Option<&TaskId>) -> Result<Reviewed, Error> {
        self.read(task.or(self.default.as_ref()).ok_or(Error::Unnamed)?)
    }

    /// Every model that a manifest allows. One that broke after the start is left out.
    pub(crate) fn models(&self) -> Vec<String> {
        let ids = self.ids().unwrap_or_else(|error| {
            warn!(error = %Chain(&error), "manifests cannot be listed");
            BTreeSet::new()
        });
        let mut models = BTreeSet::new();
        for id in ids {
            match self.read(&id) {
                Ok(reviewed) => models.extend(reviewed.manifest.models),
                Err(error) => warn!(error = %Chain(&error), "a manifest is left out"),
            }
        }
        models.into_iter().collect()
    }

    fn read(&self, id: &TaskId) -> Result<Reviewed, Error> {
        let path = self.dir.join(format!("{}.yaml", id.as_str()));
        let bytes = fs::read(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Unknown { id: id.as_str().to_owned() },
            _ => Error::Read { path: path.clone(), source },
        })?;
        let manifest = Manifest::parse(&bytes, &path.display().to_string())
            .map_err(|faults| Error::Faults { faults })?;
        match manifest.id == id.as_str() {
            true => Ok(Reviewed { manifest, bytes }),
            false => Err(Error::Id { path, found: manifest.id }),
        }
    }

    /// Files that do not end in .yaml or .yml are notes; a .yml would be silently left out, so it is a fault.
    fn ids(&self) -> Result<BTreeSet<TaskId>, Error> {
        let failed = |source| Error::Read { path: self.dir.clone(), source };
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with('.') || !(name.ends_with(".yaml") || name.ends_with(".yml")) {
                continue;
            }
            match name.strip_suffix(".yaml").map(TaskId::new) {
                Some(Ok(id)) => ids.insert(id),
                Some(Err(_)) | None => return Err(Error::Name { path }),
            };
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const GOOD: &str = "id: fix-tests\ntitle: Fix\ngoal: Fix them\nacceptance: [green]\nallowed_paths: [src/**]\npermissions: {fs.read: allow}\nmodels: [small, large]\n";

    fn id(text: &str) -> TaskId {
        TaskId::new(text).expect("kebab")
    }

    #[test]
    fn a_manifest_is_read_by_its_id_and_again_each_time() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("fix-tests.yaml"), GOOD).expect("written");
        fs::write(dir.path().join("README"), "notes").expect("written");
        let manifests = Manifests::open(dir.path(), Some(id("fix-tests"))).expect("opens");
        assert_eq!(manifests.models(), ["large", "small"]);
        assert_eq!(manifests.load(None).expect("the default").bytes, GOOD.as_bytes());
        assert!(matches!(manifests.load(Some(&id("other"))), Err(Error::Unknown { .. })));

        fs::write(dir.path().join("fix-tests.yaml"), GOOD.replace("small", "tiny"))
            .expect("written");
        assert_eq!(manifests.load(None).expect("the default").manifest.models, ["tiny", "large"]);
    }

    #[test]
    fn what_is_wrong_stops_the_start_and_says_where() {
        for (name, text, default, expected) in [
            ("fix-tests.yaml", "id: fix-tests\ntitle: 1: 2\n", None, "fix-tests.yaml:"),
            (
                "fix-tests.yaml",
                "id: other\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\npermissions: {}\n",
                None,
                "must agree",
            ),
            ("fix-tests.yml", GOOD, None, "name"),
            ("Fix.yaml", GOOD, None, "name"),
            ("notes.txt", GOOD, None, "no manifest"),
            ("fix-tests.yaml", GOOD, Some("other"), "--default-manifest"),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            fs::write(dir.path().join(name), text).expect("written");
            let error =
                Manifests::open(dir.path(), default.map(id)).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error =
            Manifests::open(Path::new("/nowhere/at/all"), None).expect_err("absent").to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
