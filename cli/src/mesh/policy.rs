//! The administrator's files above the manifests: ceilings, and whose signatures count. They stay where they are, because
//! sandbox-svc reads them again when they change; nothing here copies or changes one.
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use manifest::Ceiling;
use serde::{Deserialize, Serialize};
use transport::Service;

use super::{Error, Isolation, Layout, prepare};
use crate::file;

/// The one tenant of a mesh.
pub(crate) const TENANT: &str = "local";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyFiles {
    /// The organisation's ceiling above every manifest
    #[arg(long, value_name = "FILE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<PathBuf>,

    /// The ceiling of the tenant 'local', whose sessions are all that there are
    #[arg(long, value_name = "FILE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_ceiling: Option<PathBuf>,

    /// Whose own signatures count where a rule asks for them
    #[arg(long, value_name = "FILE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver_keys: Option<PathBuf>,
}

impl PolicyFiles {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same files, wherever a service is started.
    pub(crate) fn absolute(&self) -> Result<Self, Error> {
        let absolute = |path: &Option<PathBuf>| path.as_deref().map(prepare::absolute).transpose();
        Ok(Self {
            ceiling: absolute(&self.ceiling)?,
            tenant_ceiling: absolute(&self.tenant_ceiling)?,
            approver_keys: absolute(&self.approver_keys)?,
        })
    }

    /// What is not named here comes from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            ceiling: self.ceiling.or(other.ceiling),
            tenant_ceiling: self.tenant_ceiling.or(other.tenant_ceiling),
            approver_keys: self.approver_keys.or(other.approver_keys),
        }
    }

    /// What is wrong with the ceilings; the list of keys is judged by its reader alone.
    pub(crate) fn faults(&self) -> Vec<Error> {
        let mut faults = Vec::new();
        for path in [&self.ceiling, &self.tenant_ceiling].into_iter().flatten() {
            match file::read(path) {
                Err(error) => faults.push(error.into()),
                Ok(bytes) => {
                    if let Err(found) = Ceiling::parse(&bytes, &path.display().to_string()) {
                        let told = found.as_slice().iter();
                        faults.extend(told.map(|fault| Error::Ceiling(fault.to_string())));
                    }
                }
            }
        }
        if let Some(Err(error)) = self.approver_keys.as_deref().map(file::read) {
            faults.push(error.into());
        }
        faults
    }

    /// Puts the tenant's ceiling where it is looked for, as a link: what is behind it may change.
    pub(crate) fn link(&self, layout: &Layout, isolation: Isolation) -> Result<(), Error> {
        let dir = layout.tenant_ceilings();
        let link = link(&dir);
        let Some(ceiling) = &self.tenant_ceiling else {
            return match fs::remove_file(&link) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(file::failed("remove", &link)(error).into())
                }
                Ok(()) | Err(_) => Ok(()),
            };
        };
        file::directory(&dir, isolation.shown_dir(Service::SandboxSvc))?;
        // Beside it first, so that it is never absent. The service passes over names that begin with a dot.
        let beside = dir.join(format!(".{TENANT}.new"));
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file::failed("remove", &beside)(error).into());
            }
            Ok(()) | Err(_) => {}
        }
        symlink(ceiling, &beside).map_err(file::failed("create", &beside))?;
        Ok(fs::rename(&beside, &link).map_err(file::failed("create", &link))?)
    }

    /// A line of sandbox-svc about these files, in the names that they were given by; `dir` is that of the link.
    pub(crate) fn in_given_names(&self, dir: &str, line: &str) -> String {
        let mut line = line.to_owned();
        if let (Some(keys), Some(fault)) =
            (&self.approver_keys, line.strip_prefix("--approver-keys: "))
        {
            line = format!("--approver-keys {}: {fault}", keys.display());
        }
        let Some(ceiling) = &self.tenant_ceiling else { return line };
        let link = link(Path::new(dir)).display().to_string();
        line.replace(&link, &ceiling.display().to_string())
            .replace("--tenant-ceilings", "--tenant-ceiling")
    }
}

fn link(dir: &Path) -> PathBuf {
    dir.join(format!("{TENANT}.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_says_is_told_in_the_names_that_were_given() {
        let files = PolicyFiles {
            ceiling: None,
            tenant_ceiling: Some("/etc/t.yaml".into()),
            approver_keys: Some("/etc/k.yaml".into()),
        };
        for (said, told) in [
            ("--approver-keys: approvers[0]: x", "--approver-keys /etc/k.yaml: approvers[0]: x"),
            ("--tenant-ceilings: /s/local.yaml:3:1: x", "--tenant-ceiling: /etc/t.yaml:3:1: x"),
            ("--listen: x", "--listen: x"),
        ] {
            assert_eq!(files.in_given_names("/s", said), told);
        }
    }
}
