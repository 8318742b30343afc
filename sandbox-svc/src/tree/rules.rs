//! Which entries of a tree stay out of a copy and out of a patch: decided by name, by place and by the
//! manifest, the same on both sides. It reads nothing.

use std::collections::BTreeMap;

use crate::tree::carry::Carry;
use crate::tree::{Kind, Meta, Reason, RelPath, link, name};

/// Names of the directories that an import stages in begin so, at the root of a workspace.
pub(crate) const STAGING_PREFIX: &str = ".harness-import-";

/// The exclusions of one environment.
pub(crate) struct Rules<'a> {
    /// Whether the manifest denies reading a path.
    pub(crate) read_denied: &'a (dyn Fn(&RelPath) -> bool + Sync),
    /// The service's own directories, as device and inode.
    pub(crate) own: &'a [(u64, u64)],
    /// What was withheld or refused when the copy was taken.
    pub(crate) before: &'a BTreeMap<RelPath, Reason>,
    /// What is carried although it is like a credential.
    pub(crate) carry: &'a Carry,
}

impl Rules<'_> {
    /// Judges an entry before it is opened: why it stays out, or else what it is carried in spite of.
    pub(crate) fn judge(&self, path: &RelPath, meta: &Meta) -> Result<Option<Reason>, Reason> {
        if self.own.contains(&meta.identity()) {
            return Err(Reason::ServiceState);
        }
        let in_spite_of = self.judge_name(path, meta.kind == Kind::Directory)?;
        match meta.kind {
            Kind::Directory | Kind::Link => Ok(in_spite_of),
            Kind::File if meta.links > 1 => Err(Reason::Linked),
            Kind::File => Ok(in_spite_of),
            Kind::Special => Err(Reason::Special),
        }
    }

    /// The same by name and place alone, for an entry that need not be there.
    pub(crate) fn judge_name(
        &self,
        path: &RelPath,
        is_directory: bool,
    ) -> Result<Option<Reason>, Reason> {
        let Some((parent, entry)) = path.split() else { return Ok(None) };
        if name::is_git(entry) {
            return Err(Reason::GitMetadata);
        }
        if is_staging(path) {
            return Err(Reason::ServiceState);
        }
        let in_spite_of = self.secret(&parent, entry, is_directory);
        if in_spite_of.is_some() && !self.carry.takes(path, is_directory) {
            return Err(Reason::SecretName);
        }
        if !is_directory && (self.read_denied)(path) {
            return Err(Reason::ReadDenied);
        }
        if self.before.contains_key(path) {
            return Err(Reason::WithheldBefore);
        }
        Ok(in_spite_of)
    }

    fn secret(&self, parent: &RelPath, entry: &[u8], is_directory: bool) -> Option<Reason> {
        let directory = parent.components().next_back();
        let is_secret = name::is_secret(directory, entry, is_directory)
            // Nothing below a directory of credentials is carried with what a pattern names in it.
            || !self.carry.is_empty() && is_in_secret_directory(parent);
        is_secret.then_some(Reason::SecretName)
    }

    /// Whether a file is carried whatever its bytes hold.
    pub(crate) fn carries_secret(&self, path: &RelPath) -> bool {
        self.carry.takes(path, false)
    }

    pub(crate) fn excludes_link(path: &RelPath, target: &[u8]) -> Option<Reason> {
        (!link::stays_inside(path, target)).then_some(Reason::LinkOutside)
    }
}

fn is_in_secret_directory(path: &RelPath) -> bool {
    let mut above: Option<&[u8]> = None;
    path.components().any(|name| name::is_secret(above.replace(name), name, true))
}

fn is_staging(path: &RelPath) -> bool {
    path.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) && path.depth() == 1
}
