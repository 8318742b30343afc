//! Finds the five programs, and puts copies where every service can reach them when the originals lie behind a
//! directory that is closed to other uids.
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

pub(crate) fn find(dir: &Path, service: Service) -> Result<PathBuf, Error> {
    let program = dir.join(service.as_str());
    let runs = fs::metadata(&program)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    match runs {
        true => Ok(program),
        false => Err(Error::NoProgram(service.as_str(), dir.to_owned())),
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
    for service in Service::ALL {
        open &= account::closed_to_others(&find(&dir, service)?)?.is_none();
    }
    if isolation == Isolation::OneUid || open {
        return Ok(dir);
    }
    let near = layout.programs();
    file::directory(&near, Access { mode: 0o755, owner: None })?;
    for service in Service::ALL {
        let (from, to) = (find(&dir, service)?, near.join(service.as_str()));
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
