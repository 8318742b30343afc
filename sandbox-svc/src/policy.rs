//! The administrator's files above every manifest: ceilings, and whose own signatures count. They are looked at
//! whenever something is decided; a version that cannot be used never replaces one that was.

mod approvers;
mod tenants;

use std::path::Path;
use std::sync::Arc;

use manifest::{Ceiling, Faults, Manifest, Rulebook};
use transport::{Broken, Chain, Watched};

pub(crate) use approvers::Approvers;
use approvers::NotApprovers;
use tenants::Tenants;

use crate::config::Config;

/// Larger than what the parsers take, so that theirs is the sentence.
const FILE_BYTES: u64 = 1 << 20;

type CeilingFile = Watched<Ceiling, Faults>;

/// What is in force above the manifests.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    organisation: Option<CeilingFile>,
    tenants: Option<Tenants>,
    approvers: Option<Watched<Approvers, NotApprovers>>,
}

/// A ceiling that is meant to be in force is not, so nothing can be decided under it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(String);

impl Policies {
    /// Opens every file that is named; all faults of all of them, or none.
    pub(crate) fn open(config: &Config) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let organisation = config
            .ceiling
            .as_deref()
            .and_then(|path| kept("--ceiling", ceiling(path, "ceiling"), &mut faults));
        let tenants = config.tenant_ceilings.as_deref().and_then(|directory| {
            Tenants::open(directory).map_err(|found| faults.extend(found)).ok()
        });
        let approvers = config.approver_keys.as_deref().and_then(|path| {
            let parse = |bytes: &[u8], _: &Path| Approvers::parse(bytes);
            let opened = Watched::open(path, "approver_keys", FILE_BYTES, parse);
            // Other than a ceiling, a list of keys does not name its file in what it says.
            let flag = format!("--approver-keys {}", path.display());
            kept(&flag, opened, &mut faults)
        });
        if faults.is_empty() { Ok(Self { organisation, tenants, approvers }) } else { Err(faults) }
    }

    /// Everything that decides for a session of this tenant, as it is now.
    pub(crate) fn rulebook(&self, manifest: &Manifest, tenant: &str) -> Result<Rulebook, Unusable> {
        let organisation = self.organisation.as_ref().map(|file| (*file.current()).clone());
        let tenant = match &self.tenants {
            Some(tenants) => tenants.current(tenant)?.map(|ceiling| (*ceiling).clone()),
            None => None,
        };
        Ok(Rulebook::new(manifest.clone(), organisation, tenant))
    }

    /// Nobody where no file is named: then no signature counts.
    pub(crate) fn approvers(&self) -> Arc<Approvers> {
        self.approvers.as_ref().map(Watched::current).unwrap_or_default()
    }
}

fn ceiling(path: &Path, name: &'static str) -> Result<CeilingFile, Broken<Faults>> {
    let parse = |bytes: &[u8], path: &Path| Ceiling::parse(bytes, &path.display().to_string());
    Watched::open(path, name, FILE_BYTES, parse)
}

fn kept<T, E: std::error::Error + 'static>(
    flag: &str,
    opened: Result<T, Broken<E>>,
    faults: &mut Vec<String>,
) -> Option<T> {
    opened.map_err(|broken| faults.extend(lines(flag, &broken))).ok()
}

/// A line for each thing to change.
fn lines<E: std::error::Error + 'static>(flag: &str, broken: &Broken<E>) -> Vec<String> {
    match broken {
        // It names the file itself, a line each.
        Broken::Parse { source, .. } => {
            source.to_string().lines().map(|line| format!("{flag}: {line}")).collect()
        }
        broken => vec![format!("{flag}: {}", Chain(broken))],
    }
}

#[cfg(test)]
mod tests;
