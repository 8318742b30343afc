//! What a command has mounted, as its plan shows it: looked at in full before the engine is asked anything.

use manifest::{Action, Effect, Target, system};
use receipt::{EffectClass, Scope};

use super::parts::Parts;
use super::{Planner, Stop};
use crate::environment::Present;
use crate::error::Error;
use crate::mounts::allowed::{Allowed, Shape};
use crate::mounts::{self, Guard, Looked, Wanted};
use crate::refusal::{Reason, Refusal};
use crate::tree::{Node, RelPath};

/// How many protected paths that are there already are parts of their own.
const SHOWN_PROTECTED: usize = 200;

/// Whether a command writes the workspace itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direct {
    No,
    Yes,
}

impl Direct {
    /// What a command wrote directly can be neither thrown away nor done again.
    pub(super) fn effect_class(self) -> EffectClass {
        match self {
            Self::No => EffectClass::Staged,
            Self::Yes => EffectClass::Irreversible,
        }
    }

    /// A direct write is an import that nobody reviews, so it is allowed as one is: for this call.
    pub(super) fn scopes(self) -> Vec<Scope> {
        match self {
            Self::No => vec![Scope::Once, Scope::Run],
            Self::Yes => vec![Scope::Once],
        }
    }
}

/// Trees of the host, and how they are now.
pub(super) struct Mounted {
    wanted: Vec<Wanted>,
    pub(super) looked: Looked,
}

impl Mounted {
    pub(super) fn shown(&self) -> impl Iterator<Item = receipt::Mount> {
        self.wanted.iter().map(|wanted| wanted.shown.clone())
    }
}

impl Planner<'_> {
    /// Each writable mount is a write, of a directory with whatever may come to lie in it.
    pub(super) fn decide_mounts(
        &self,
        mounted: &Mounted,
        present: &Present,
        parts: &mut Parts,
    ) -> Result<Direct, Stop> {
        let writable: Vec<&Allowed> = mounted.wanted.iter().filter_map(Wanted::allowed).collect();
        if writable.is_empty() {
            return Ok(Direct::No);
        }
        if let Some(entry) = present.patch.entries.first() {
            let detail = format!(
                "the private copy holds changes, of {} for one; commands write the workspace itself and do not see \
                 them: import them first",
                entry.path
            );
            return Err(Refusal::new(Reason::MountEdited, detail).into());
        }
        for allowed in writable {
            let node = present.found.inventory.get(allowed.path());
            let target = match (allowed.shape(), node) {
                (Shape::Directory, Some(Node::Directory { .. })) => Target::Tree,
                (Shape::File, Some(Node::File { .. })) => Target::File,
                _ => {
                    let detail = format!(
                        "{} is not in the run's private copy, which has its place",
                        allowed.path()
                    );
                    return Err(Refusal::new(Reason::MountNotFound, detail).into());
                }
            };
            let subject = allowed.path().to_subject();
            parts.add_named(&allowed.source(), &self.rulebook.decide_write(&subject, target));
        }
        self.decide_protected(mounted, parts);
        Ok(Direct::Yes)
    }

    /// What is there already and protected is named, up to a number.
    fn decide_protected(&self, mounted: &Mounted, parts: &mut Parts) {
        let decide = |path: &RelPath| {
            let decision = self.rulebook.decide_write(&path.to_subject(), Target::File);
            (decision.rule == system::PROTECTED_PATHS).then_some(decision)
        };
        let mut more = 0_usize;
        let mut last = None;
        let paths = mounted.looked.stamps.iter().map(|(path, _)| path);
        for (at, (path, decision)) in
            paths.filter_map(|path| Some((path, decide(path)?))).enumerate()
        {
            if at < SHOWN_PROTECTED {
                parts.add_at(path, &decision);
            } else {
                (more, last) = (more + 1, Some(decision));
            }
        }
        if let Some(decision) = last {
            parts.add_named(&format!("{more} more paths"), &decision);
        }
    }

    /// Nothing where the manifest has nothing mounted.
    pub(super) async fn mounted(&self) -> Result<Option<Mounted>, Stop> {
        let environment = self.environment.clone();
        let wanted = mounts::wanted(self.manifest(), &environment.host, self.dependencies)?;
        if wanted.is_empty() {
            return Ok(None);
        }
        let rulebook = self.rulebook.clone();
        let look = move || {
            let read_denied = |path: &RelPath| {
                let decision = rulebook.decide(Action::FsRead, Some(&path.to_subject()));
                decision.effect == Effect::Deny
            };
            let guard = Guard {
                user: environment.user,
                most: environment.source.bounds.entries,
                own: &environment.source.own,
                read_denied: &read_denied,
            };
            mounts::look(&wanted, &guard).map(|looked| Mounted { wanted, looked })
        };
        Ok(Some(tokio::task::spawn_blocking(look).await.map_err(Error::Task)??))
    }
}
