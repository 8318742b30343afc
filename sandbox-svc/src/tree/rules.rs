//! Which entries of a tree stay out of a copy and out of a patch: decided by name, by place and by the
//! manifest, the same on both sides. It reads nothing.

use std::collections::BTreeMap;

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
}

impl Rules<'_> {
    /// Why the entry stays out, judged before it is opened.
    pub(crate) fn excludes(&self, path: &RelPath, meta: &Meta) -> Option<Reason> {
        let (parent, entry) = path.split()?;
        let parent = parent.components().next_back().map(<[u8]>::to_vec);
        let is_directory = meta.kind == Kind::Directory;
        if name::is_git(entry) {
            return Some(Reason::GitMetadata);
        }
        if self.own.contains(&meta.identity()) || is_staging(path) {
            return Some(Reason::ServiceState);
        }
        if name::is_secret(parent.as_deref(), entry, is_directory) {
            return Some(Reason::SecretName);
        }
        if !is_directory && (self.read_denied)(path) {
            return Some(Reason::ReadDenied);
        }
        if self.before.contains_key(path) {
            return Some(Reason::WithheldBefore);
        }
        match meta.kind {
            Kind::Directory | Kind::Link => None,
            Kind::File if meta.links > 1 => Some(Reason::Linked),
            Kind::File => None,
            Kind::Special => Some(Reason::Special),
        }
    }

    pub(crate) fn excludes_link(path: &RelPath, target: &[u8]) -> Option<Reason> {
        (!link::stays_inside(path, target)).then_some(Reason::LinkOutside)
    }
}

fn is_staging(path: &RelPath) -> bool {
    path.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) && path.depth() == 1
}
