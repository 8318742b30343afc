//! Which uid each service runs under and what it keeps of root. Only sandbox-svc keeps anything: the engine's group
//! and the capabilities that private copies of workspaces and the egress broker need.
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::process::Command;
use transport::Service;

use super::Error;
use crate::file::{self, Access, Owner};

/// Whether services are kept apart by the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Each service has its own uid; needs root.
    OwnUids,
    /// All services run as whoever runs the mesh.
    OneUid,
}

impl Isolation {
    #[must_use]
    pub fn available() -> Self {
        if rustix::process::geteuid().is_root() { Self::OwnUids } else { Self::OneUid }
    }

    /// The service's account, where it has one of its own.
    #[must_use]
    pub fn owner(self, service: Service) -> Option<Owner> {
        let uid = match service {
            Service::Gateway => 21_001,
            Service::AgentSvc => 21_002,
            Service::SandboxSvc => 21_003,
            Service::ModelSvc => 21_004,
            Service::AuditSvc => 21_005,
        };
        (self == Self::OwnUids).then_some(Owner { uid, gid: uid })
    }

    /// A directory that the service may read and only the mesh may change.
    pub(crate) fn shown_dir(self, service: Service) -> Access {
        self.shown(service, 0o750, Access::PRIVATE_DIR)
    }

    /// A file that the service may read and only the mesh may change.
    pub(crate) fn shown_file(self, service: Service) -> Access {
        self.shown(service, 0o640, Access::PRIVATE)
    }

    /// A file of the service alone.
    pub(crate) fn own_file(self, service: Service) -> Access {
        Access { mode: 0o600, owner: self.owner(service) }
    }

    /// A directory of the service alone.
    pub(crate) fn own_dir(self, service: Service) -> Access {
        Access { mode: 0o700, owner: self.owner(service) }
    }

    fn shown(self, service: Service, mode: u32, otherwise: Access) -> Access {
        self.owner(service)
            .map_or(otherwise, |owner| Access { mode, owner: Some(Owner { uid: 0, ..owner }) })
    }
}

/// What starts a service: `setpriv` lets the kernel end it together with the thread that started it, and takes away
/// everything it does not need.
pub(crate) fn command(
    isolation: Isolation,
    service: Service,
    program: &Path,
    engine: &Path,
) -> Result<Command, Error> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--no-new-privs"]);
    if let Some(Owner { uid, gid }) = isolation.owner(service) {
        let (groups, caps) = match service {
            Service::SandboxSvc => match engine_gid(engine)? {
                // Root's own group would open more than the socket, and passing permissions it has anyway.
                0 => (vec!["--clear-groups".to_owned()], SANDBOX_CAPS),
                gid => (vec!["--groups".to_owned(), gid.to_string()], SANDBOX_CAPS),
            },
            Service::Gateway | Service::AgentSvc | Service::ModelSvc | Service::AuditSvc => {
                (vec!["--clear-groups".to_owned()], "-all")
            }
        };
        command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string()]).args(groups);
        command.args(["--inh-caps", caps, "--ambient-caps", caps, "--bounding-set", caps]);
    }
    command.arg("--").arg(program);
    Ok(command)
}

/// What runs a service's program over files of whoever runs this one: it reads them, and can do nothing else.
pub(crate) fn checker(program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--no-new-privs"]);
    if rustix::process::geteuid().is_root() {
        command.args(["--inh-caps", "-all", "--ambient-caps", "-all", "--bounding-set", "-all"]);
    }
    command.arg("--").arg(program);
    command
}

/// Mounting private copies, reading workspaces whoever owns them, giving files back to their owners, and an egress
/// broker that is another user than the service.
const SANDBOX_CAPS: &str = "-all,+sys_admin,+dac_override,+chown,+fowner,+setuid,+setgid,+kill";

pub(crate) fn engine_gid(socket: &Path) -> Result<u32, Error> {
    match fs::metadata(socket) {
        Ok(found) => Ok(found.gid()),
        Err(source) => Err(Error::NoEngine { socket: socket.to_owned(), source }),
    }
}

/// What keeps other uids from reading and running `path`: the file itself, or a directory above it.
pub(crate) fn closed_to_others(path: &Path) -> Result<Option<PathBuf>, file::Error> {
    match runs_for_others(path)? {
        true => closed_above(path),
        false => Ok(Some(path.to_owned())),
    }
}

/// Whether other uids may read and run this file, once they reach it.
pub(crate) fn runs_for_others(path: &Path) -> Result<bool, file::Error> {
    Ok(mode(path)? & 0o005 == 0o005)
}

/// The nearest directory above `path` that other uids can not pass.
pub(crate) fn closed_above(path: &Path) -> Result<Option<PathBuf>, file::Error> {
    // What is not there yet will be made open.
    for step in path.ancestors().skip(1).filter(|step| step.exists()) {
        if mode(step)? & 0o001 == 0 {
            return Ok(Some(step.to_owned()));
        }
    }
    Ok(None)
}

fn mode(path: &Path) -> Result<u32, file::Error> {
    Ok(fs::metadata(path).map_err(file::failed("read", path))?.permissions().mode())
}

#[cfg(test)]
mod tests {
    use super::*;
    fn words(service: Service, isolation: Isolation) -> String {
        let command = command(isolation, service, Path::new("/bin/x"), Path::new("/")).unwrap();
        let args = command.as_std().get_args();
        args.map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_service_ends_with_its_starter_and_gains_nothing() {
        for service in Service::ALL {
            for isolation in [Isolation::OwnUids, Isolation::OneUid] {
                assert!(words(service, isolation).starts_with("--pdeathsig KILL --no-new-privs "));
            }
        }
    }

    #[test]
    fn only_the_sandbox_service_keeps_capabilities_and_a_group() {
        for service in Service::ALL {
            let words = words(service, Isolation::OwnUids);
            let keeps = words.contains("+sys_admin");
            let nothing =
                words.contains("--bounding-set -all --") && words.contains("--clear-groups");
            assert_eq!(
                (keeps, nothing),
                (service == Service::SandboxSvc, service != Service::SandboxSvc),
                "{words}"
            );
        }
    }

    #[test]
    fn accounts_differ_from_each_other_and_from_root() {
        let mut uids: Vec<u32> =
            Service::ALL.iter().map(|s| Isolation::OwnUids.owner(*s).unwrap().uid).collect();
        uids.dedup();
        assert_eq!(uids, [21_001, 21_002, 21_003, 21_004, 21_005]);
        assert!(Service::ALL.iter().all(|service| Isolation::OneUid.owner(*service).is_none()));
    }

    #[test]
    fn a_private_directory_above_a_program_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed_to_others(&program).unwrap(), Some(dir.path().to_owned()));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(closed_to_others(&program).unwrap(), None);
    }
}
