//! Plans about what the private copy changed: seeing it, and taking it to the workspace. It changes nothing.

use std::sync::Arc;

use event::{Differs, Digest};
use manifest::{Action, Protected};
use receipt::{EffectClass, PathText, Plan, Scope, Totals};

use super::parts::Parts;
use super::{Planner, Stop, subject_of};
use crate::environment::Present;
use crate::error::Error;
use crate::failpoint::Failpoint;
use crate::import::{self, Conflict, Import, ImportError, Owners, StagingName};
use crate::patch::{Entry, Patch, file_state};
use crate::refusal::{Reason, Refusal, named};
use crate::tool::Tool;
use crate::tool::patch::Arguments;
use crate::tree::{Dir, NotCarried, RelPath};

/// How many entries of a patch a plan shows.
const SHOWN_ENTRIES: usize = 200;
/// How many entries that stay in the copy a plan shows, and the bytes of their paths.
const SHOWN_NOT_CARRIED: usize = 100;
const NOT_CARRIED_BYTES: usize = 32 * 1024;
/// How many of them a sentence names.
const NAMED_NOT_CARRIED: usize = 20;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    Inspect(Present),
    Import(Present),
}

impl Planner<'_> {
    pub(super) async fn patch(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Inspect => self.inspect(tool).await?,
            Arguments::Import { digest } => self.import(tool, digest).await?,
        };
        Ok((plan, super::Prepared::Patch(prepared)))
    }

    async fn inspect(&self, tool: Tool) -> Result<(Plan, Prepared), Stop> {
        let present = self.present().await?;
        let mut plan = self.pure(tool, Action::FsRead, present.digest.to_string().into());
        let mut parts = Parts::default();
        self.decide_paths(Action::FsRead, &present.patch, &mut parts);
        parts.put_into(&mut plan);
        plan.snapshot = Some(self.snapshot(&present));
        Ok((plan, Prepared::Inspect(present)))
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
        Ok((plan, Prepared::Import(present)))
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
                owners: &Owners::new(),
                staging: &staging,
                failpoint: &failpoint,
            };
            Ok::<_, Error>(import::check(&import))
        });
        match checked.await.map_err(Error::Task)?? {
            Ok(()) => Ok(()),
            Err(error @ ImportError::Conflict(_)) => Err(host_changed(&error).into()),
            Err(error) => Err(Refusal::new(Reason::ImportFailed, error).into()),
        }
    }
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
        ImportError::Conflict(conflicts) => {
            let Conflict { path, expected, actual, what: _ } = &conflicts.first;
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
