//! Takes a state directory into use: checks everything that was named, locks, chooses ports, and has it filled.
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use transport::Service;

use super::{
    Argument, Error, Isolation, Layout, Options, PolicyFiles, account, apart, judge, leftover,
    models::{self, Models},
    ports::{Guard, Ports},
    programs, provision,
    record::Record,
};
use crate::file::{self, Access};

const ENGINE: &str = "/var/run/docker.sock";
pub(crate) const TRUST_DOMAIN: &str = "harness.local";

/// The name of a mesh's log.
pub(crate) fn origin(trust_domain: &impl std::fmt::Display) -> String {
    format!("{trust_domain}/ledger")
}

const DEFAULT_MANIFEST: &str = include_str!("default-manifest.yaml");

/// A directory that is ready to start from, and held.
pub(crate) struct Prepared {
    pub(crate) layout: Layout,
    pub(crate) record: Record,
    pub(crate) programs: PathBuf,
    pub(crate) guard: Guard,
    pub(crate) lock: File,
}

pub(crate) fn prepare(dir: &Path, options: &Options) -> Result<Prepared, Error> {
    for name in programs::names() {
        programs::named(&options.programs, name)?;
    }
    let layout = Layout::new(absolute(dir)?);
    let before = Record::read(&layout)?;
    let isolation = isolation(options.isolation, before.as_ref())?;
    let policy = policy(options, before.as_ref())?;
    let Given { workspaces, dependencies, manifests, models } =
        given(options, &policy, before.is_none())?;
    let mut faults = apart::from_state(layout.root(), "workspace", &workspaces)?;
    faults.extend(apart::from_state(layout.root(), "dependency", &dependencies)?);
    if let Some(before) = &before {
        faults.extend(apart::from_held_runs(&layout, before, &workspaces, &dependencies, &models)?);
    }
    Error::all(faults)?;
    let engine = match (&options.engine, &before) {
        (Some(engine), _) => engine.clone(),
        (None, Some(record)) => record.engine.clone(),
        (None, None) => ENGINE.into(),
    };
    account::engine_gid(&engine)?;
    if !policy.is_empty() {
        let program = programs::find(&options.programs, Service::SandboxSvc)?;
        Error::all(judge::policy(&program, &policy, isolation, &engine)?)?;
    }

    let lock = occupy(&layout, isolation, before.is_none())?;
    leftover::end(&layout)?;
    let (ports, guard) = match &before {
        Some(record) => (record.ports, record.ports.hold()?),
        None => {
            Ports::choose(lock.metadata().map_err(file::failed("read", &layout.lock()))?.ino())?
        }
    };
    let first = manifests.first().map(|manifest| manifest.id.clone());
    let record = match before {
        None => Record {
            schema_version: 1,
            trust_domain: TRUST_DOMAIN.to_owned(),
            isolation,
            ports,
            engine,
            workspaces,
            dependencies,
            default_manifest: first.unwrap_or_default(),
            policy,
        },
        Some(before) => Record {
            engine,
            workspaces: if workspaces.is_empty() { before.workspaces } else { workspaces },
            dependencies: match dependencies.is_empty() {
                true => before.dependencies,
                false => dependencies,
            },
            default_manifest: first.unwrap_or(before.default_manifest),
            policy,
            ..before
        },
    };
    // Remembered first: an interrupted start is taken up by the next one.
    record.write(&layout)?;
    let models = match models.is_empty() {
        true => Vec::new(),
        false => Models::staged(&models, &layout.service(Service::ModelSvc)),
    };
    provision::Plan { layout: &layout, record: &record, options, manifests, models }.carry_out()?;
    let programs = programs::reachable(&options.programs, &layout, isolation)?;
    Ok(Prepared { layout, record, programs, guard, lock })
}

/// Everything that the command line named, read and judged.
struct Given {
    workspaces: BTreeMap<String, PathBuf>,
    dependencies: BTreeMap<String, PathBuf>,
    manifests: Vec<provision::Reviewed>,
    /// None where those of the last start are kept.
    models: Vec<Models>,
}

/// All faults are found before anything is written, and all are told.
fn given(options: &Options, policy: &PolicyFiles, new: bool) -> Result<Given, Error> {
    let mut faults = Vec::new();
    let workspaces = trees("workspace", &options.workspaces, &mut faults);
    let dependencies = trees("dependency", &options.dependencies, &mut faults);
    if new && options.workspaces.is_empty() {
        faults.push(Error::Argument(Argument::NoWorkspace));
    }
    let mut manifests = provision::reviewed(&options.manifests, &mut faults);
    if new && options.manifests.is_empty() {
        match provision::parse("the built-in manifest", DEFAULT_MANIFEST.into()) {
            Ok(manifest) => manifests.push(manifest),
            Err(found) => faults.extend(found),
        }
    }
    faults.extend(policy.faults());
    let models = match new || options.models.is_some() || !options.scripts.is_empty() {
        true => models::read(options.models.as_deref(), &options.scripts, &mut faults),
        false => Vec::new(),
    };
    if !models.is_empty() {
        let program = programs::find(&options.programs, Service::ModelSvc)?;
        faults.extend(judge::models(&program, &models)?);
    }
    Error::all(faults)?;
    Ok(Given { workspaces, dependencies, manifests, models })
}

/// The files that are named, and of the last start what is not named anew; as long as nobody says so, none is dropped.
fn policy(options: &Options, before: Option<&Record>) -> Result<PolicyFiles, Error> {
    let kept = match (before, options.forget_policy) {
        (Some(before), false) => before.policy.clone(),
        (Some(_), true) | (None, _) => PolicyFiles::default(),
    };
    options.policy.absolute().map(|named| named.or(kept))
}

/// A directory keeps the isolation that it was made with: its files have owners.
pub(crate) fn isolation(
    given: Option<Isolation>,
    before: Option<&Record>,
) -> Result<Isolation, Error> {
    let wanted =
        before.map(|record| record.isolation).or(given).unwrap_or_else(Isolation::available);
    match wanted == Isolation::OwnUids && Isolation::available() == Isolation::OneUid {
        true => Err(Error::NotRoot),
        false => Ok(wanted),
    }
}

pub(crate) fn absolute(dir: &Path) -> Result<PathBuf, Error> {
    let dir = std::path::absolute(dir).map_err(file::failed("use", dir))?;
    match dir.to_str() {
        Some(_) => Ok(dir),
        None => Err(Error::NotText(dir)),
    }
}

/// Whether the directory is one to use: empty or ours, and safe where services have their own uids. Whether it is there.
fn usable(layout: &Layout, isolation: Isolation, new: bool) -> Result<bool, Error> {
    let root = layout.root();
    let there = root.exists();
    if there && new && fs::read_dir(root).map_err(file::failed("read", root))?.next().is_some() {
        return Err(Error::ForeignDirectory(root.to_owned()));
    }
    if isolation == Isolation::OwnUids {
        if there {
            let found = fs::metadata(root).map_err(file::failed("read", root))?;
            if found.uid() != 0 || found.mode() & 0o022 != 0 {
                return Err(Error::OpenDirectory(root.to_owned()));
            }
        }
        if let Some(closed) = account::closed_above(root)? {
            return Err(Error::Unreachable(closed));
        }
    }
    Ok(there)
}

/// Takes the directory, which is made if it is not there. The lock ends with the handle.
pub(crate) fn occupy(layout: &Layout, isolation: Isolation, new: bool) -> Result<File, Error> {
    let root = layout.root();
    if !usable(layout, isolation, new)? {
        fs::create_dir_all(root).map_err(file::failed("create", root))?;
    }
    let mode = match isolation {
        Isolation::OwnUids => 0o711,
        Isolation::OneUid => 0o700,
    };
    file::directory(root, Access { mode, owner: None })?;
    let path = layout.lock();
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(file::failed("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(Error::InUse(root.to_owned())),
        Err(fs::TryLockError::Error(source)) => Err(file::failed("lock", &path)(source).into()),
    }
}

fn trees(
    what: &'static str,
    given: &[(String, PathBuf)],
    faults: &mut Vec<Error>,
) -> BTreeMap<String, PathBuf> {
    let mut all = BTreeMap::new();
    for (name, dir) in given {
        if let Err(fault) = named(name) {
            faults.push(fault);
        }
        match tree(what, dir) {
            Ok(real) => {
                if all.insert(name.clone(), real).is_some() {
                    faults.push(Error::Argument(Argument::Twice(what, name.clone())));
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    all
}

fn tree(what: &'static str, dir: &Path) -> Result<PathBuf, Error> {
    let action = if what == "workspace" { "use workspace" } else { "use dependency" };
    let real = fs::canonicalize(dir).map_err(file::failed(action, dir))?;
    // A comma separates them where the service reads them.
    if !real.is_dir() || real.as_os_str().as_encoded_bytes().contains(&b',') {
        return Err(Error::Argument(Argument::NotDirectory { what, dir: dir.to_owned() }));
    }
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(Error::NotText(real)),
    }
}

/// A name that may stand in a path, an identity and a setting.
pub(crate) fn named(name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.len() <= 64 && !name.starts_with('-') && name.chars().all(fits) {
        true => Ok(()),
        false => Err(Error::Argument(Argument::Name(name.to_owned()))),
    }
}

/// How a state directory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Situation {
    New,
    Stopped,
    Running,
}

/// Looks whether `dir` could be taken into use now; changes nothing.
pub(crate) fn situation(dir: &Path) -> Result<Situation, Error> {
    let layout = Layout::new(absolute(dir)?);
    let record = Record::read(&layout)?;
    let isolation = isolation(None, record.as_ref())?;
    let Some(record) = record else {
        usable(&layout, isolation, true)?;
        return Ok(Situation::New);
    };
    usable(&layout, isolation, false)?;
    let lock = File::open(layout.lock()).map_err(file::failed("open", &layout.lock()))?;
    match lock.try_lock() {
        Ok(()) => record.ports.hold().map(|_| Situation::Stopped),
        Err(fs::TryLockError::WouldBlock) => Ok(Situation::Running),
        Err(fs::TryLockError::Error(source)) => {
            Err(file::failed("lock", &layout.lock())(source).into())
        }
    }
}

/// The first port of a block that is free now.
pub(crate) fn free_ports() -> Result<u16, Error> {
    Ok(Ports::choose(u64::from(std::process::id()))?.0.first())
}

/// Programs of a mesh that are not in `dir`.
pub(crate) fn lacks_programs(dir: &Path) -> Vec<&'static str> {
    programs::names().filter(|name| programs::named(dir, name).is_err()).collect()
}
