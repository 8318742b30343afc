//! From a call to its plan: what would happen, in full, with the manifest's decision for each part. It reads
//! the copy, the workspace and the engine, and changes nothing.

mod command;
mod parts;

use std::sync::Arc;

use event::id::CallId;
use event::{Differs, Digest};
use manifest::{Action, Decision, Manifest, Protected, Rulebook};
use receipt::{
    Effect, EffectClass, Executor, Network, PathText, Plan, Scope, Snapshot, Totals, Version,
    plan_digest,
};

use crate::engine::Docker;
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::failpoint::Failpoint;
use crate::import::{self, Import, ImportError, StagingName};
use crate::limits::Ceilings;
use crate::patch::{Entry, Patch, file_state};
use crate::program::Images;
use crate::refusal::{Reason, Refusal, named};
use crate::session::Session;
use crate::tool::{Arguments, Tool};
use crate::tree::scan::ScanError;
use crate::tree::{Dir, NotCarried, RelPath};

use parts::Parts;

pub(crate) use command::environment_variables;

/// How many entries of a patch a plan shows.
const SHOWN_ENTRIES: usize = 200;
/// How many entries that stay in the copy a plan shows, and the bytes of their paths.
const SHOWN_NOT_CARRIED: usize = 100;
const NOT_CARRIED_BYTES: usize = 32 * 1024;
/// How many of them a sentence names.
const NAMED_NOT_CARRIED: usize = 20;

/// A plan, its bytes, and what is needed to carry it out.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) prepared: Prepared,
    /// What decided.
    pub(crate) rulebook: Arc<Rulebook>,
}

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile { path: RelPath, start: u64, end: Option<u64> },
    InspectPatch(Present),
    Exec,
    ImportPatch(Present),
}

/// A call that does not happen, or a fault of the house.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Failed(#[from] Error),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        match Error::from(error) {
            Error::WorkspaceTooLarge(detail) => {
                let detail = format!("the private copy is larger than its limits: {detail}");
                Refusal::new(Reason::WorkspaceTooLarge, detail).into()
            }
            error => error.into(),
        }
    }
}

/// What a plan is made from.
pub(crate) struct Planner<'a> {
    pub(crate) session: &'a Session,
    /// As it is now.
    pub(crate) rulebook: &'a Arc<Rulebook>,
    pub(crate) environment: &'a Arc<Environment>,
    pub(crate) engine: Option<&'a Docker>,
    pub(crate) images: &'a Images,
    pub(crate) ceilings: &'a Ceilings,
    pub(crate) call: CallId,
}

impl Planner<'_> {
    pub(crate) async fn plan(&self, tool: Tool, arguments: Arguments) -> Result<Planned, Stop> {
        let (plan, prepared) = match arguments {
            Arguments::ListFiles { path, limit, after } => {
                let mut plan = self.pure(tool, Action::FsList, subject_of(&path));
                let parts = Parts::of([self.decide(Action::FsList, &path.to_subject())]);
                parts.put_into(&mut plan);
                (plan, Prepared::ListFiles { path, limit, after })
            }
            Arguments::ReadFile { path, start, end } => {
                let mut plan = self.pure(tool, Action::FsRead, subject_of(&path));
                let mut parts = Parts::default();
                parts.add_at(&path, &self.decide(Action::FsRead, &path.to_subject()));
                parts.put_into(&mut plan);
                (plan, Prepared::ReadFile { path, start, end })
            }
            Arguments::Exec { argv, timeout } => self.exec(tool, argv, timeout).await?,
            Arguments::InspectPatch => {
                let present = self.present().await?;
                let mut plan = self.pure(tool, Action::FsRead, present.digest.to_string().into());
                let mut parts = Parts::default();
                self.decide_paths(Action::FsRead, &present.patch, &mut parts);
                parts.put_into(&mut plan);
                plan.snapshot = Some(self.snapshot(&present));
                (plan, Prepared::InspectPatch(present))
            }
            Arguments::ImportPatch { digest } => self.import(tool, digest).await?,
        };
        finish(plan, prepared, self.rulebook)
    }

    fn manifest(&self) -> &Manifest {
        self.rulebook.manifest()
    }

    fn decide(&self, action: Action, subject: &str) -> Decision {
        self.rulebook.decide(action, Some(subject))
    }

    /// The members that every plan has, for a tool that changes nothing.
    fn pure(&self, tool: Tool, action: Action, subject: PathText) -> Plan {
        Plan {
            v: Version::V1,
            session: self.session.id,
            run: self.environment.run,
            call: self.call,
            tool: tool.as_str().to_owned(),
            action: action.as_str().to_owned(),
            subject: Some(subject),
            effect: Effect::Allow,
            effect_class: EffectClass::Pure,
            executor: Executor::SandboxSvc,
            scopes: vec![Scope::Once, Scope::Run],
            manifest: self.manifest().digest,
            parts: Vec::new(),
            policies: parts::policies(self.rulebook),
            approval: Vec::new(),
            network: Network::None,
            program: None,
            argv: None,
            cwd: None,
            env: None,
            image: None,
            limits: None,
            snapshot: None,
            workspace: None,
            patch: None,
        }
    }

    fn snapshot(&self, present: &Present) -> Snapshot {
        Snapshot {
            base: present.base.digest(),
            digest: present.found.inventory.digest(),
            withheld: self.environment.before.len() as u64,
        }
    }

    async fn present(&self) -> Result<Present, Stop> {
        let (environment, rulebook) = (self.environment.clone(), self.rulebook.clone());
        let read = tokio::task::spawn_blocking(move || environment.present(&rulebook));
        Ok(read.await.map_err(Error::Task)??)
    }

    async fn import(&self, tool: Tool, digest: Option<Digest>) -> Result<(Plan, Prepared), Stop> {
        let present = self.present().await?;
        let patch = present.patch.clone();
        if digest.is_some_and(|digest| digest != present.digest) {
            return Err(Reason::PatchUnknown.into());
        }
        if patch.entries.is_empty() {
            return Err(empty(&patch).into());
        }
        self.check_host(patch.clone()).await?;
        let subject = present.digest.to_string();
        let mut parts = Parts::of([self.decide(Action::PatchImport, &subject)]);
        self.decide_paths(Action::FsWrite, &patch, &mut parts);
        let mut plan = Plan {
            effect_class: EffectClass::Idempotent,
            scopes: vec![Scope::Once],
            workspace: Some(self.environment.workspace.clone()),
            patch: Some(shown(&patch, present.digest, self.rulebook.protected())),
            ..self.pure(tool, Action::PatchImport, subject.into())
        };
        parts.put_into(&mut plan);
        Ok((plan, Prepared::ImportPatch(present)))
    }

    /// The workspace must still be what the patch was made for.
    async fn check_host(&self, patch: Arc<Patch>) -> Result<(), Stop> {
        let host = self.environment.host.clone();
        let staging = StagingName::of(self.call);
        let checked = tokio::task::spawn_blocking(move || {
            let root =
                Dir::open(&host).map_err(Error::file("the workspace cannot be opened", &host))?;
            let failpoint = Failpoint::off();
            let import = Import {
                host: &root,
                entries: &patch.entries,
                staging: &staging,
                failpoint: &failpoint,
            };
            Ok::<_, Error>(import::check(&import))
        });
        match checked.await.map_err(Error::Task)?? {
            Ok(()) => Ok(()),
            Err(error @ ImportError::Conflict { .. }) => Err(host_changed(&error).into()),
            Err(error) => Err(Refusal::new(Reason::ImportFailed, error).into()),
        }
    }
}

fn finish(plan: Plan, prepared: Prepared, rulebook: &Arc<Rulebook>) -> Result<Planned, Stop> {
    let bytes = plan.to_bytes().map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    let shown =
        event::canon::parse(&bytes).map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    if event::redact::holds_secret(&shown) {
        return Err(Reason::PlanHoldsSecret.into());
    }
    let digest = plan_digest(&bytes);
    Ok(Planned { plan, bytes, digest, prepared, rulebook: rulebook.clone() })
}

pub(crate) fn subject_of(path: &RelPath) -> PathText {
    if path.is_root() { ".".into() } else { PathText::from_bytes(path.as_bytes()) }
}

fn shown(patch: &Patch, digest: Digest, protected: &Protected) -> receipt::Patch {
    let paths = |paths: Vec<&RelPath>| paths.into_iter().map(subject_of).collect();
    let entry = |entry: &Entry| receipt::PatchEntry {
        op: entry.change.op(),
        path: subject_of(&entry.path),
        before: entry.change.before().map(file_state),
        after: entry.change.after().map(file_state),
    };
    receipt::Patch {
        digest,
        totals: Totals { entries: patch.entries.len() as u64, bytes: patch.written_bytes() },
        protected: paths(patch.protected(protected)),
        deletions: paths(patch.deletions()),
        entries: patch.entries.iter().take(SHOWN_ENTRIES).map(entry).collect(),
        links: patch.links().map(link).collect(),
        not_carried: not_carried(&patch.not_carried),
    }
}

fn link((path, target): (&RelPath, &[u8])) -> receipt::PatchLink {
    receipt::PatchLink { path: subject_of(path), target: PathText::from_bytes(target) }
}

/// As many as a plan has room for beside all that goes to the host.
fn not_carried(entries: &[NotCarried]) -> Option<receipt::NotCarried> {
    let mut bytes = 0;
    let fits = |entry: &&NotCarried| {
        bytes += entry.path.as_bytes().len();
        bytes <= NOT_CARRIED_BYTES
    };
    let shown = entries.iter().take(SHOWN_NOT_CARRIED).take_while(fits);
    let entry = |entry: &NotCarried| receipt::NotCarriedEntry {
        path: subject_of(&entry.path),
        reason: entry.reason.as_str().to_owned(),
    };
    (!entries.is_empty()).then(|| receipt::NotCarried {
        total: entries.len() as u64,
        entries: shown.map(entry).collect(),
    })
}

/// With what the record needs to show that it is not what was approved.
fn host_changed(error: &ImportError) -> Refusal {
    let refusal = Refusal::new(Reason::HostChanged, error);
    match error {
        ImportError::Conflict { path, expected, actual, .. } => {
            let path = Some(path.to_string());
            let differs = Differs { path, expected: *expected, actual: *actual };
            Refusal { differs: Some(Box::new(differs)), ..refusal }
        }
        _ => refusal,
    }
}

/// That nothing goes to the host does not mean that nothing happened.
fn empty(patch: &Patch) -> Refusal {
    let stays = &patch.not_carried;
    if stays.is_empty() {
        return Reason::PatchEmpty.into();
    }
    let name = |entry: &NotCarried| format!("{} ({})", entry.path, entry.reason.as_str());
    let names: Vec<_> = stays.iter().take(NAMED_NOT_CARRIED).map(name).collect();
    let detail = format!(
        "nothing that may go to the workspace has changed; {} of the private copy are not carried: {}",
        stays.len(),
        named(&names, stays.len())
    );
    Refusal::new(Reason::PatchEmpty, detail)
}
