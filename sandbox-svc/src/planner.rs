//! From a call to its plan: what would happen, in full, with the manifest's decision for each part. It reads
//! the copy, the workspace and the engine, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use event::Digest;
use event::id::CallId;
use manifest::{Action, Decision, Manifest, exec_subject};
use receipt::{
    Effect, EffectClass, Executor, Layer, Network, Part, PathText, Plan, Scope, Snapshot, Totals,
    Version, plan_digest,
};

use crate::engine::{self, Docker, Image, ImageError};
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::failpoint::Failpoint;
use crate::image::ImageName;
use crate::import::{self, Import, ImportError, StagingName};
use crate::limits::Ceilings;
use crate::patch::{Entry, Patch, file_state};
use crate::refusal::{Reason, Refusal, named};
use crate::session::Session;
use crate::tool::{Arguments, Tool};
use crate::tree::scan::ScanError;
use crate::tree::{Dir, NotCarried, RelPath};

/// How many entries of a patch a plan shows.
const SHOWN_ENTRIES: usize = 200;
/// How many entries that stay in the copy a plan shows, and the bytes of their paths.
const SHOWN_NOT_CARRIED: usize = 100;
const NOT_CARRIED_BYTES: usize = 32 * 1024;
/// How many of them a sentence names.
const NAMED_NOT_CARRIED: usize = 20;
/// Above this many paths the parts of a plan are grouped by the rule that decided them.
const SHOWN_PARTS: usize = 400;

/// A plan, its bytes, and what is needed to carry it out.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) prepared: Prepared,
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
    pub(crate) environment: &'a Arc<Environment>,
    pub(crate) engine: Option<&'a Docker>,
    pub(crate) ceilings: &'a Ceilings,
    pub(crate) call: CallId,
}

impl Planner<'_> {
    pub(crate) async fn plan(&self, tool: Tool, arguments: Arguments) -> Result<Planned, Stop> {
        let (plan, prepared) = match arguments {
            Arguments::ListFiles { path, limit, after } => {
                let mut plan = self.pure(tool, Action::FsList, subject_of(&path));
                plan.parts = vec![part(&self.decide(Action::FsList, &path.to_subject()))];
                (plan, Prepared::ListFiles { path, limit, after })
            }
            Arguments::ReadFile { path, start, end } => {
                let mut plan = self.pure(tool, Action::FsRead, subject_of(&path));
                let decision = self.decide(Action::FsRead, &path.to_subject());
                plan.parts = vec![Part { subject: Some(subject_of(&path)), ..part(&decision) }];
                (plan, Prepared::ReadFile { path, start, end })
            }
            Arguments::Exec { argv, timeout } => self.exec(tool, argv, timeout).await?,
            Arguments::InspectPatch => {
                let present = self.present().await?;
                let mut plan = self.pure(tool, Action::FsRead, present.digest.to_string().into());
                plan.parts = self.decide_paths(Action::FsRead, &present.patch);
                plan.snapshot = Some(self.snapshot(&present));
                (plan, Prepared::InspectPatch(present))
            }
            Arguments::ImportPatch { digest } => self.import(tool, digest).await?,
        };
        finish(plan, prepared)
    }

    fn manifest(&self) -> &Manifest {
        &self.session.manifest
    }

    fn decide(&self, action: Action, subject: &str) -> Decision {
        self.manifest().decide(action, Some(subject))
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
            policies: Vec::new(),
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
        let environment = self.environment.clone();
        let read = tokio::task::spawn_blocking(move || environment.present());
        Ok(read.await.map_err(Error::Task)??)
    }

    async fn exec(
        &self,
        tool: Tool,
        argv: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<(Plan, Prepared), Stop> {
        let execution = &self.manifest().execution;
        if !execution.allow_commands.contains(&argv[0]) {
            let allowed = execution.allow_commands.join(", ");
            let detail = format!("the manifest allows only these programs: {allowed}");
            return Err(Refusal::new(Reason::CommandNotAllowed, detail).into());
        }
        let image = self.image().await?;
        let limits = self.ceilings.lower(&execution.limits, timeout);
        let env = environment_variables(&image, limits.cpus_milli);
        let subject = exec_subject(&argv);
        let present = self.present().await?;
        let plan = Plan {
            effect_class: EffectClass::Staged,
            parts: vec![part(&self.decide(Action::ProcessExec, &subject))],
            argv: Some(argv),
            cwd: Some(engine::WORKSPACE.to_owned()),
            env: Some(env.keys().cloned().collect::<BTreeSet<_>>()),
            image: Some(image.id),
            limits: Some(limits),
            snapshot: Some(self.snapshot(&present)),
            ..self.pure(tool, Action::ProcessExec, subject.into())
        };
        Ok((plan, Prepared::Exec))
    }

    async fn image(&self) -> Result<Image, Stop> {
        let engine = self.engine.ok_or(Reason::ToolUnknown)?;
        let name = self.manifest().execution.image.as_deref().unwrap_or_default();
        let name = ImageName::parse(name).ok_or(Reason::ImageUnknown)?;
        match engine.image(&name).await {
            Ok(image) => Ok(image),
            Err(ImageError::Unknown) => Err(Reason::ImageUnknown.into()),
            Err(error @ ImageError::Refused(_)) => {
                Err(Refusal::new(Reason::ImageRefused, error).into())
            }
            Err(ImageError::Engine(error)) => {
                Err(Error::engine("the image cannot be inspected")(error).into())
            }
        }
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
        let mut parts = vec![part(&self.decide(Action::PatchImport, &subject))];
        parts.extend(self.decide_paths(Action::FsWrite, &patch));
        let plan = Plan {
            effect_class: EffectClass::Idempotent,
            scopes: vec![Scope::Once],
            parts,
            workspace: Some(self.environment.workspace.clone()),
            patch: Some(shown(&patch, present.digest)),
            ..self.pure(tool, Action::PatchImport, subject.into())
        };
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
            Err(error @ ImportError::Conflict { .. }) => {
                Err(Refusal::new(Reason::HostChanged, error).into())
            }
            Err(error) => Err(Refusal::new(Reason::ImportFailed, error).into()),
        }
    }

    /// A part for each path; what the task may not modify is denied whatever the rules say. Very many paths
    /// are grouped by the rule that decided them.
    fn decide_paths(&self, action: Action, patch: &Patch) -> Vec<Part> {
        let entries: BTreeMap<&RelPath, &Entry> =
            patch.entries.iter().map(|entry| (&entry.path, entry)).collect();
        let decided: Vec<(&RelPath, Part)> = entries
            .into_iter()
            .map(|(path, entry)| (path, self.decide_path(action, entry, patch)))
            .collect();
        if decided.len() <= SHOWN_PARTS {
            return decided.into_iter().map(|(_, part)| part).collect();
        }
        let mut groups: BTreeMap<(std::cmp::Reverse<Effect>, Layer, String), u64> = BTreeMap::new();
        for (_, part) in decided {
            let group = (std::cmp::Reverse(part.effect), part.layer, part.rule);
            *groups.entry(group).or_default() += 1;
        }
        let grouped =
            |((effect, layer, rule), count): ((std::cmp::Reverse<Effect>, _, _), u64)| Part {
                action: action.as_str().to_owned(),
                subject: Some(format!("{count} paths").into()),
                effect: effect.0,
                layer,
                rule,
                justification: None,
                matching: Vec::new(),
            };
        groups.into_iter().map(grouped).collect()
    }

    fn decide_path(&self, action: Action, entry: &Entry, patch: &Patch) -> Part {
        let path = &entry.path;
        let is_directory =
            |node: Option<&crate::tree::Node>| node.is_some_and(crate::tree::Node::is_directory);
        let directory = is_directory(entry.change.after().or_else(|| entry.change.before()));
        let mut text = path.to_subject();
        if directory {
            // So that a pattern for everything in it covers the directory itself.
            text.push('/');
        }
        let mut part =
            Part { subject: Some(subject_of(path)), ..part(&self.decide(action, &text)) };
        if action == Action::FsWrite && !self.may_modify(path, directory, patch) {
            part.effect = Effect::Deny;
            part.layer = Layer::System;
            "allowed_paths".clone_into(&mut part.rule);
        }
        part
    }

    /// A directory may be made or removed along with something in it that may.
    fn may_modify(&self, path: &RelPath, directory: bool, patch: &Patch) -> bool {
        self.manifest().may_modify(&path.to_subject())
            || directory
                && patch.entries.iter().any(|entry| {
                    entry.path.is_below(path)
                        && self.manifest().may_modify(&entry.path.to_subject())
                })
    }
}

fn finish(mut plan: Plan, prepared: Prepared) -> Result<Planned, Stop> {
    plan.effect = receipt::strictest(&plan.parts);
    let bytes = plan.to_bytes().map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    let shown =
        event::canon::parse(&bytes).map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    if event::redact::holds_secret(&shown) {
        return Err(Reason::PlanHoldsSecret.into());
    }
    let digest = plan_digest(&bytes);
    Ok(Planned { plan, bytes, digest, prepared })
}

fn part(decision: &Decision) -> Part {
    Part {
        action: decision.action.as_str().to_owned(),
        subject: decision.subject.clone().map(PathText::from),
        effect: decision.effect,
        layer: Layer::Manifest,
        rule: decision.rule.clone(),
        justification: None,
        matching: Vec::new(),
    }
}

fn subject_of(path: &RelPath) -> PathText {
    if path.is_root() { ".".into() } else { PathText::from_bytes(path.as_bytes()) }
}

fn shown(patch: &Patch, digest: Digest) -> receipt::Patch {
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
        protected: paths(patch.protected()),
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

/// Nothing of the service's own; the processors that there really are are told here.
pub(crate) fn environment_variables(image: &Image, cpus_milli: u64) -> BTreeMap<String, String> {
    let cpus = cpus_milli.div_ceil(1000).max(1);
    [
        ("CI", "1".to_owned()),
        ("HOME", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("OMP_NUM_THREADS", cpus.to_string()),
        ("PATH", image.path.clone()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
