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
use crate::tree::carry::Carry;
use crate::tree::scan::{Bounds, Found, ScanError, Target, scan, scan_known};
use crate::tree::witness::{Known, Watch};
use crate::tree::{Blobs, Dir, Inventory, NotCarried, Reason, RelPath, Rules, name};

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
    /// What need not be read again; nothing after a restart.
    fresh: Option<Fresh>,
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
    /// What the host's configuration carries although it is like a credential.
    pub(crate) carry: Arc<Carry>,
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

/// What is known of a copy that this process took, and under which ceilings it was taken.
#[derive(Debug)]
pub(crate) struct Fresh {
    policies: Vec<(Layer, Digest)>,
    known: Known,
}

/// A copy that was just made.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) taken: Taken,
    pub(crate) fresh: Option<Fresh>,
    /// What is in it in spite of being like a credential.
    pub(crate) carried: Vec<NotCarried>,
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
    /// Lends the exclusions, the same for the workspace and for its copy.
    fn under_rules<T>(
        &self,
        rulebook: &Rulebook,
        before: &Before,
        walk: impl FnOnce(&Rules<'_>) -> T,
    ) -> T {
        let read_denied = |path: &RelPath| is_denied(rulebook, path);
        walk(&Rules { read_denied: &read_denied, own: &self.own, before, carry: &self.carry })
    }

    /// Fills a fresh place from the workspace.
    pub(crate) fn take(
        &self,
        rulebook: &Rulebook,
        host: &Dir,
        place: &Place,
        owner: u32,
    ) -> Result<Copied, ScanError> {
        let tree = Dir::open(&place.copy()).map_err(ScanError::Copy)?;
        let blobs = Blobs::open(&place.blobs()).map_err(ScanError::Copy)?;
        let given = (owner != rustix::process::geteuid().as_raw()).then_some(owner);
        let watch = Watch::begin();
        let target = Target { tree: &tree, blobs: &blobs, owner: given, watch: watch.as_ref() };
        let Found { inventory, not_carried, carried, stripped: _ } =
            self.under_rules(rulebook, &Before::new(), |rules| {
                scan(host, rules, &self.bounds, Some(&target))
            })?;
        let base = Arc::new(inventory);
        let known = watch.and_then(|watch| watch.end(base.clone()));
        let fresh = known.map(|known| Fresh { policies: rulebook.policies(), known });
        let before = not_carried.into_iter().map(|entry| (entry.path, entry.reason)).collect();
        let taken = Taken { first_digest: base.digest(), base, before };
        Ok(Copied { taken, fresh, carried })
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
        fresh: Option<Fresh>,
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
            base: Mutex::new(base),
            seen: Mutex::default(),
            fresh,
            admission: Arc::default(),
            busy: Arc::new(Semaphore::new(1)),
        }
    }

    /// The same environment with a copy that was taken anew; whoever holds this one holds that one too.
    pub(crate) fn retaken(&self, taken: Taken, fresh: Option<Fresh>) -> Self {
        let (workspace, host, place) =
            (self.workspace.clone(), self.host.clone(), self.place.clone());
        let (user, source) = (self.user, self.source.clone());
        let new =
            Self::new(self.run, self.session, workspace, host, place, user, source, taken, fresh);
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

    /// Why a file at the path is neither read nor carried, by its name and the names on the way to it.
    pub(crate) fn kept_out(&self, rulebook: &Rulebook, path: &RelPath) -> Option<Reason> {
        self.source.under_rules(rulebook, &self.before, |rules| {
            path.ancestors().find_map(|at| rules.judge_name(&at, at != *path).err())
        })
    }

    /// Whether the bytes are a secret that is not carried at this path.
    pub(crate) fn is_secret(&self, path: &RelPath, bytes: &[u8]) -> bool {
        name::begins_like_a_private_key(bytes) && !self.source.carry.takes(path, false)
    }

    /// A command or an edit is about to change the copy.
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
        // What other ceilings deny is not known.
        let fresh = self.fresh.as_ref().filter(|fresh| fresh.policies == policies);
        let known = fresh.map(|fresh| &fresh.known);
        let found = self.source.under_rules(rulebook, &self.before, |rules| {
            scan_known(&copy, rules, &self.source.bounds, known)
        });
        let found = Arc::new(found?);
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

fn is_denied(rulebook: &Rulebook, path: &RelPath) -> bool {
    rulebook.decide(Action::FsRead, Some(&path.to_subject())).effect == Effect::Deny
}
