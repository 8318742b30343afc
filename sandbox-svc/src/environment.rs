//! A run's private copy of a workspace: taken once, changed only by its own containers, compared with the
//! base that was frozen when it was taken. It never writes to the workspace.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use event::Digest;
use event::id::{RunId, SessionId};
use manifest::{Action, Effect, Layer, Rulebook};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::User;
use crate::patch::{Before, Patch, diff};
use crate::staging::Place;
use crate::store::Taken;
use crate::tree::scan::{Bounds, Found, ScanError, Target, scan};
use crate::tree::{Blobs, Dir, Inventory, Reason, RelPath, Rules};

#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) workspace: String,
    /// The workspace on this host.
    pub(crate) host: PathBuf,
    pub(crate) place: Place,
    /// Whose the copy is, and whom commands run as.
    pub(crate) user: User,
    pub(crate) first_digest: Digest,
    pub(crate) before: Before,
    pub(crate) source: Source,
    base: Mutex<Arc<Inventory>>,
    seen: Mutex<Seen>,
    /// One call is admitted at a time, so that what was checked is what is admitted.
    pub(crate) admission: Arc<tokio::sync::Mutex<()>>,
    busy: Arc<Semaphore>,
}

/// What decides how a workspace is read.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) bounds: Bounds,
    /// The service's own directories.
    pub(crate) own: Arc<[(u64, u64)]>,
}

/// The copy as it was last read; a command makes that obsolete.
#[derive(Debug, Default)]
struct Seen {
    generation: u64,
    found: Option<Read>,
}

/// As these ceilings let it be read.
#[derive(Debug)]
struct Read {
    policies: Vec<(Layer, Digest)>,
    found: Arc<Found>,
}

/// Base and copy at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Present {
    pub(crate) base: Arc<Inventory>,
    pub(crate) found: Arc<Found>,
    pub(crate) patch: Arc<Patch>,
    pub(crate) digest: Digest,
}

impl Source {
    fn scan(
        &self,
        rulebook: &Rulebook,
        root: &Dir,
        before: &Before,
        target: Option<&Target<'_>>,
    ) -> Result<Found, ScanError> {
        let read_denied = |path: &RelPath| {
            let decision = rulebook.decide(Action::FsRead, Some(&path.to_subject()));
            decision.effect == Effect::Deny
        };
        let rules = Rules { read_denied: &read_denied, own: &self.own, before };
        scan(root, &rules, &self.bounds, target)
    }

    /// Fills a fresh place from the workspace.
    pub(crate) fn take(
        &self,
        rulebook: &Rulebook,
        host: &Dir,
        place: &Place,
        owner: u32,
    ) -> Result<Taken, ScanError> {
        let tree = Dir::open(&place.copy()).map_err(ScanError::Copy)?;
        let blobs = Blobs::open(&place.blobs()).map_err(ScanError::Copy)?;
        let given = (owner != rustix::process::geteuid().as_raw()).then_some(owner);
        let target = Target { tree: &tree, blobs: &blobs, owner: given };
        let Found { inventory: base, not_carried, stripped: _ } =
            self.scan(rulebook, host, &Before::new(), Some(&target))?;
        let before = not_carried.into_iter().map(|entry| (entry.path, entry.reason)).collect();
        Ok(Taken { first_digest: base.digest(), base, before })
    }
}

impl Environment {
    #[expect(clippy::too_many_arguments, reason = "a record of what was decided elsewhere")]
    pub(crate) fn new(
        run: RunId,
        session: SessionId,
        workspace: String,
        host: PathBuf,
        place: Place,
        user: User,
        source: Source,
        taken: Taken,
    ) -> Self {
        let Taken { first_digest, base, before } = taken;
        Self {
            run,
            session,
            workspace,
            host,
            place,
            user,
            first_digest,
            before,
            source,
            base: Mutex::new(Arc::new(base)),
            seen: Mutex::default(),
            admission: Arc::default(),
            busy: Arc::new(Semaphore::new(1)),
        }
    }

    /// The same environment with a copy that was taken anew; whoever holds this one holds that one too.
    pub(crate) fn retaken(&self, taken: Taken) -> Self {
        let (workspace, host, place) =
            (self.workspace.clone(), self.host.clone(), self.place.clone());
        let (user, source) = (self.user, self.source.clone());
        let new = Self::new(self.run, self.session, workspace, host, place, user, source, taken);
        Self { admission: self.admission.clone(), busy: self.busy.clone(), ..new }
    }

    /// The base as imports have moved it.
    pub(crate) fn base(&self) -> Arc<Inventory> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_base(&self, base: Inventory) {
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(base);
    }

    /// Takes the environment for one call that changes something; nothing while another has it.
    pub(crate) fn occupy(&self) -> Option<OwnedSemaphorePermit> {
        self.busy.clone().try_acquire_owned().ok()
    }

    pub(crate) fn is_occupied(&self) -> bool {
        self.busy.available_permits() == 0
    }

    /// Why the path, or a directory on the way to it, was kept out when the copy was taken.
    pub(crate) fn withheld(&self, path: &RelPath) -> Option<Reason> {
        path.ancestors().find_map(|path| self.before.get(&path)).copied()
    }

    /// A command is about to change the copy.
    pub(crate) fn forget_seen(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.generation += 1;
        seen.found = None;
    }

    /// Reads the copy, unless it has been read under the same rules since it was last changed. Blocks.
    pub(crate) fn found(&self, rulebook: &Rulebook) -> Result<Arc<Found>, ScanError> {
        let policies = rulebook.policies();
        let generation = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(read) = seen.found.as_ref().filter(|read| read.policies == policies) {
                return Ok(read.found.clone());
            }
            seen.generation
        };
        let copy = Dir::open(&self.place.copy()).map_err(|_| ScanError::Root)?;
        let found = Arc::new(self.source.scan(rulebook, &copy, &self.before, None)?);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.generation == generation && !self.is_occupied() {
            seen.found = Some(Read { policies, found: found.clone() });
        }
        Ok(found)
    }

    /// Blocks.
    pub(crate) fn present(&self, rulebook: &Rulebook) -> Result<Present, ScanError> {
        let (base, found) = (self.base(), self.found(rulebook)?);
        let patch = Arc::new(diff(&base, &self.before, &found));
        let digest = patch.digest();
        Ok(Present { base, found, patch, digest })
    }
}
