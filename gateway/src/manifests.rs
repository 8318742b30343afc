//! The reviewed manifests: chosen by id, read again for every session, never taken from a client. A new version that
//! cannot be used changes nothing and is said loudly; a file that was removed is offered no more.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use acp::TaskId;
use manifest::{Faults, Manifest};
use metrics::{counter, gauge};
use tracing::{error, info, warn};
use transport::Chain;

/// What the metrics of a watched file call it.
const FILE: &str = "manifest";

#[derive(Clone, Debug)]
pub(crate) struct Manifests {
    dir: PathBuf,
    default: Option<TaskId>,
    held: Arc<Mutex<BTreeMap<TaskId, Held>>>,
}

/// The last good version of a file.
#[derive(Clone, Debug)]
struct Held {
    reviewed: Reviewed,
    /// Why the present version is not in force, as it was said.
    broken: Option<String>,
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
        let manifests = Self { dir: dir.to_owned(), default, held: Arc::default() };
        let ids = manifests.ids()?.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
        if ids.is_empty() {
            return Err(Error::None { path: dir.to_owned() });
        }
        for id in &ids {
            manifests.current(id)?;
        }
        match &manifests.default {
            Some(id) if !ids.contains(id) => Err(Error::NoDefault { id: id.as_str().to_owned() }),
            Some(_) | None => Ok(manifests),
        }
    }

    /// The manifest as it is now, or as it last was good.
    pub(crate) fn load(&self, task: Option<&TaskId>) -> Result<Reviewed, Error> {
        self.current(task.or(self.default.as_ref()).ok_or(Error::Unnamed)?)
    }

    /// Every model that a manifest allows. What never was good is left out.
    pub(crate) fn models(&self) -> Vec<String> {
        let ids = self.ids().unwrap_or_else(|error| {
            warn!(error = %Chain(&error), "manifests cannot be listed");
            Vec::new()
        });
        let mut models = BTreeSet::new();
        for id in ids {
            match id.and_then(|id| self.current(&id)) {
                Ok(reviewed) => models.extend(reviewed.manifest.models),
                Err(error) => warn!(error = %Chain(&error), "a manifest is left out"),
            }
        }
        models.into_iter().collect()
    }

    /// That a file is gone is somebody's decision. That it cannot be understood is not.
    fn current(&self, id: &TaskId) -> Result<Reviewed, Error> {
        let found = self.read(id);
        let mut held = self.lock();
        match found {
            Ok(reviewed) => {
                let now = Held { reviewed: reviewed.clone(), broken: None };
                if held.insert(id.clone(), now).is_some_and(|before| before.broken.is_some()) {
                    info!(manifest = id.as_str(), "a changed file is in force");
                    measure(&held);
                }
                Ok(reviewed)
            }
            Err(error @ Error::Unknown { .. }) => {
                if held.remove(id).is_some() {
                    info!(manifest = id.as_str(), "a file was removed and is offered no more");
                    measure(&held);
                }
                Err(error)
            }
            Err(error) => {
                let Some(last) = held.get_mut(id) else { return Err(error) };
                let (reviewed, why) = (last.reviewed.clone(), Chain(&error).to_string());
                // Once per version, and not at every use.
                if last.broken.as_ref() != Some(&why) {
                    error!(
                        manifest = id.as_str(),
                        error = why,
                        "a changed file cannot be used; the last good version stays in force"
                    );
                    last.broken = Some(why);
                    counter!("harness_file_broken_total", "file" => FILE).increment(1);
                    measure(&held);
                }
                Ok(reviewed)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, Held>> {
        // An entry is replaced as a whole, so a panic elsewhere leaves nothing half done in it.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn ids(&self) -> Result<Vec<Result<TaskId, Error>>, Error> {
        let failed = |source| Error::Read { path: self.dir.clone(), source };
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with('.') || !(name.ends_with(".yaml") || name.ends_with(".yml")) {
                continue;
            }
            ids.push(match name.strip_suffix(".yaml").map(TaskId::new) {
                Some(Ok(id)) => Ok(id),
                Some(Err(_)) | None => Err(Error::Name { path }),
            });
        }
        Ok(ids)
    }
}

/// How many manifests are in force in another version than their files have.
fn measure(held: &BTreeMap<TaskId, Held>) {
    let broken = held.values().filter(|held| held.broken.is_some()).count();
    gauge!("harness_file_broken", "file" => FILE).set(u32::try_from(broken).unwrap_or(u32::MAX));
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
    fn a_version_that_cannot_be_used_leaves_the_last_good_one_in_force() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("fix-tests.yaml");
        fs::write(&path, GOOD).expect("written");
        let manifests = Manifests::open(dir.path(), Some(id("fix-tests"))).expect("opens");
        let other_id = GOOD.replace("id: fix-tests", "id: other");
        for broken in ["", "id: [", "permissions: {fs.read: perhaps}", &other_id] {
            fs::write(&path, broken).expect("written");
            assert_eq!(manifests.load(None).expect("the last good").bytes, GOOD.as_bytes());
            assert_eq!(manifests.models(), ["large", "small"], "{broken}");
            // Whoever reads the log is told which file.
            let held = manifests.lock();
            let why: Vec<_> = held.values().filter_map(|it| it.broken.as_deref()).collect();
            assert_eq!(why.len(), 1);
            assert!(why[0].contains(&path.display().to_string()), "{why:?}");
        }
        let mended = GOOD.replace("small", "tiny");
        fs::write(&path, &mended).expect("written");
        assert_eq!(manifests.load(None).expect("the new one").bytes, mended.as_bytes());
        assert!(manifests.lock().values().all(|it| it.broken.is_none()));
    }

    #[test]
    fn a_removed_manifest_is_offered_no_more_and_a_new_one_must_be_good() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("fix-tests.yaml"), GOOD).expect("written");
        let other = dir.path().join("other.yaml");
        let manifests = Manifests::open(dir.path(), None).expect("opens");
        let load = || manifests.load(Some(&id("other")));
        // What never was good has no last good version, and takes nothing from the others.
        fs::write(&other, "id: [").expect("written");
        assert!(matches!(load(), Err(Error::Faults { .. })));
        fs::write(dir.path().join("Misnamed.yaml"), GOOD).expect("written");
        assert_eq!(manifests.models(), ["large", "small"]);
        fs::write(&other, GOOD.replace("id: fix-tests", "id: other")).expect("written");
        load().expect("a good one");
        fs::remove_file(&other).expect("removed");
        assert!(matches!(load(), Err(Error::Unknown { .. })));
        // Its last good version went with it.
        fs::write(&other, "id: [").expect("written");
        assert!(matches!(load(), Err(Error::Faults { .. })));
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
