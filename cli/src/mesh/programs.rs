//! Finds the five programs and the broker that one of them starts, and puts copies where every service can reach them
//! when the originals lie behind a directory that is closed to other uids.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use transport::Service;

use super::{Error, Isolation, Layout, account};
use crate::file::{self, Access};

/// The directory of the running program.
pub fn beside_this_program() -> Result<PathBuf, Error> {
    let failed = |source| Error::Start { service: "the services", source };
    let program = std::env::current_exe().map_err(failed)?;
    let dir = program.parent().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    Ok(dir.to_owned())
}

/// What sandbox-svc starts for a command with a network.
pub(crate) const EGRESS: &str = "harness-egress";

/// Everything that a mesh runs.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    Service::ALL.iter().map(|service| service.as_str()).chain([EGRESS])
}

pub(crate) fn find(dir: &Path, service: Service) -> Result<PathBuf, Error> {
    named(dir, service.as_str())
}

pub(crate) fn named(dir: &Path, name: &'static str) -> Result<PathBuf, Error> {
    let program = dir.join(name);
    let runs = fs::metadata(&program)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    match runs {
        true => Ok(program),
        false => Err(Error::NoProgram(name, dir.to_owned())),
    }
}

/// The directory that services are started from.
pub(crate) fn reachable(
    dir: &Path,
    layout: &Layout,
    isolation: Isolation,
) -> Result<PathBuf, Error> {
    let dir = fs::canonicalize(dir).map_err(file::failed("read", dir))?;
    let mut open = true;
    for name in names() {
        open &= account::closed_to_others(&named(&dir, name)?)?.is_none();
    }
    if isolation == Isolation::OneUid || open {
        return Ok(dir);
    }
    let near = layout.programs();
    file::directory(&near, Access { mode: 0o755, owner: None })?;
    for name in names() {
        let (from, to) = (named(&dir, name)?, near.join(name));
        if to.exists() {
            fs::remove_file(&to).map_err(file::failed("remove", &to))?;
        }
        // A link costs nothing, but has the original's mode and needs its file system.
        let open = account::runs_for_others(&from)? && fs::hard_link(&from, &to).is_ok();
        if !open {
            fs::copy(&from, &to).map_err(file::failed("copy the program to", &to))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&to, mode).map_err(file::failed("change the mode of", &to))?;
        }
    }
    Ok(near)
}
