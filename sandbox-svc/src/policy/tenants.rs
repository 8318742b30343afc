//! A directory of ceilings, `<tenant>.yaml` each. A file that appears is in force at the next decision; one that
//! vanishes after it was in force stays in force until the service is started anew.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manifest::Ceiling;
use tracing::{error, info};
use transport::Chain;

use super::{CeilingFile, Unusable, ceiling, lines};

const FLAG: &str = "--tenant-ceilings";
const EXTENSION: &str = "yaml";
/// Of a tenant that can have a file.
const NAME_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct Tenants {
    directory: PathBuf,
    /// By tenant: what has been in force.
    held: Mutex<HashMap<String, Arc<CeilingFile>>>,
}

impl Tenants {
    /// Every file of the directory, or all their faults.
    pub(super) fn open(directory: &Path) -> Result<Self, Vec<String>> {
        let shown = directory.display();
        let unread = |error: io::Error| vec![format!("{FLAG} {shown}: cannot be read: {error}")];
        let (mut held, mut faults) = (HashMap::new(), Vec::new());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(unread)? {
            paths.push(entry.map_err(unread)?.path());
        }
        paths.sort();
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(name) = name.filter(|name| !name.starts_with('.')) else { continue };
            let tenant = name.strip_suffix(".yaml").filter(|tenant| is_plain(tenant));
            let Some(tenant) = tenant else {
                // A misspelt name must not read as "no ceiling".
                faults.push(format!(
                    "{FLAG}: {} is no <tenant>.{EXTENSION}; rename it",
                    path.display()
                ));
                continue;
            };
            match ceiling(&path, "tenant_ceiling") {
                Ok(file) => drop(held.insert(tenant.to_owned(), Arc::new(file))),
                Err(broken) => faults.extend(lines(FLAG, &broken)),
            }
        }
        match faults.is_empty() {
            true => Ok(Self { directory: directory.to_owned(), held: Mutex::new(held) }),
            false => Err(faults),
        }
    }

    /// What is in force for the tenant now. A file that is there and was never usable is a fault of the house, not
    /// the absence of a ceiling.
    pub(super) fn current(&self, tenant: &str) -> Result<Option<Arc<Ceiling>>, Unusable> {
        if let Some(file) = self.held().get(tenant) {
            return Ok(Some(file.current()));
        }
        if !is_plain(tenant) {
            return Err(Unusable("the tenant's name can have no ceiling file".to_owned()));
        }
        let path = self.directory.join(format!("{tenant}.{EXTENSION}"));
        if self.is_absent(&path)? {
            return Ok(None);
        }
        match ceiling(&path, "tenant_ceiling") {
            Ok(file) => {
                info!(tenant, "a tenant's new ceiling is in force");
                let file =
                    self.held().entry(tenant.to_owned()).or_insert_with(|| Arc::new(file)).clone();
                Ok(Some(file.current()))
            }
            Err(broken) => {
                error!(tenant, error = %Chain(&broken), "a tenant's new ceiling cannot be used; nothing is decided for it");
                Err(Unusable("the tenant's ceiling cannot be used".to_owned()))
            }
        }
    }

    /// Only a directory that can be read says that a file is not there.
    fn is_absent(&self, path: &Path) -> Result<bool, Unusable> {
        let unread = |error: io::Error| {
            error!(directory = %self.directory.display(), %error, "the tenants' ceilings cannot be read; nothing is decided");
            Unusable("the tenants' ceilings cannot be read".to_owned())
        };
        match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::read_dir(&self.directory).map_err(unread).map(|_| true)
            }
            Err(error) => Err(unread(error)),
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Arc<CeilingFile>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_plain(tenant: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES).contains(&tenant.len()) && !tenant.starts_with('.') && tenant.bytes().all(fits)
}
