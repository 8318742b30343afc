//! Plans about what the private copy changed: seeing it, and taking it to the workspace. It changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use event::id::RunId;
use event::{Differs, Digest};
use manifest::{Action, Protected, system};
use receipt::{EffectClass, PathText, Plan, Scope, Totals};

use super::parts::Parts;
use super::{Planner, Stop, subject_of};
use crate::environment::Present;
use crate::error::Error;
use crate::failpoint::Failpoint;
use crate::import::{self, Conflict, Import, ImportError, Owners, StagingName};
use crate::patch::{Entry, Patch, Unknown, file_state};
use crate::refusal::{Reason, Refusal, named};
use crate::store::UndoRow;
use crate::tool::Tool;
use crate::tool::patch::{Arguments, Choice};
use crate::tree::{Dir, NotCarried, RelPath};

/// How many entries of a patch a plan shows.
const SHOWN_ENTRIES: usize = 200;
/// How many entries that stay in the copy a plan shows, and the bytes of their paths.
const SHOWN_NOT_CARRIED: usize = 100;
const NOT_CARRIED_BYTES: usize = 32 * 1024;
/// How many paths a sentence names.
const NAMED: usize = 20;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    Inspect(Present),
    Import(Present),
    Undo(UndoRow),
}

impl Planner<'_> {
    pub(super) async fn patch(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Inspect { paths } => self.inspect(tool, &paths).await?,
            Arguments::Import(choice) => self.import(tool, &choice).await?,
            Arguments::Undo { run, digest } => self.undo(tool, run, digest).await?,
        };
        Ok((plan, super::Prepared::Patch(prepared)))
    }

    async fn inspect(
        &self,
        tool: Tool,
        paths: &BTreeSet<RelPath>,
    ) -> Result<(Plan, Prepared), Stop> {
        let present = part(self.present().await?, paths)?;
        let mut plan = self.pure(tool, Action::FsRead, present.digest.to_string().into());
        let mut parts = Parts::default();
        self.decide_paths(Action::FsRead, &present.patch, &mut parts);
        parts.put_into(&mut plan);
        plan.snapshot = Some(self.snapshot(&present));
        Ok((plan, Prepared::Inspect(present)))
    }

    async fn import(&self, tool: Tool, choice: &Choice) -> Result<(Plan, Prepared), Stop> {
        let whole = self.present().await?;
        if whole.patch.entries.is_empty() {
            return Err(empty(&whole.patch).into());
        }
        let of = whole.digest;
        let present = part(whole, &choice.paths)?;
        let meant = [of, present.digest];
        if choice.digest.is_some_and(|digest| !meant.contains(&digest)) {
            return Err(Reason::PatchUnknown.into());
        }
        self.check_host(present.patch.clone()).await?;
        let mut plan = self.writing(tool, &present.patch, present.digest);
        let patch = plan.patch.as_mut();
        if let Some(patch) = patch.filter(|_| present.digest != of) {
            patch.part_of = Some(of);
        }
        self.decide_writing(&present.patch, present.digest, &mut plan, None);
        Ok((plan, Prepared::Import(present)))
    }

    /// Never without a person: nobody reviewed the workspace as it was before.
    async fn undo(
        &self,
        tool: Tool,
        run: RunId,
        digest: Option<Digest>,
    ) -> Result<(Plan, Prepared), Stop> {
        let rows = self.store.undo_rows(run, digest).await.map_err(Error::Store)?;
        let tenant = &self.session.grant.tenant;
        let ours =
            |row: &UndoRow| row.tenant == *tenant && row.workspace == self.environment.workspace;
        // Another tenant's is as good as none.
        let record = rows.into_iter().find(ours).ok_or(Reason::UndoUnknown)?;
        let reversed = Arc::new(record.patch.reversed());
        let digest = reversed.digest();
        self.check_host(reversed.clone()).await?;
        let mut plan = self.writing(tool, &reversed, digest);
        if let Some(patch) = plan.patch.as_mut() {
            patch.undoes = Some(receipt::Undoes { run, patch: record.patch.digest() });
        }
        self.decide_writing(&reversed, digest, &mut plan, Some(system::UNDO));
        Ok((plan, Prepared::Undo(record)))
    }

    fn writing(&self, tool: Tool, patch: &Patch, digest: Digest) -> Plan {
        Plan {
            effect_class: EffectClass::Idempotent,
            scopes: vec![Scope::Once],
            workspace: Some(self.environment.workspace.clone()),
            patch: Some(shown(patch, digest, self.rulebook.protected())),
            ..self.pure(tool, Action::PatchImport, digest.to_string().into())
        }
    }

    fn decide_writing(&self, patch: &Patch, digest: Digest, plan: &mut Plan, asks: Option<&str>) {
        let subject = digest.to_string();
        let import = match asks {
            None => self.decide(Action::PatchImport, &subject),
            Some(rule) => self.rulebook.decide_asking(Action::PatchImport, &subject, rule),
        };
        let mut parts = Parts::of([import]);
        self.decide_paths(Action::FsWrite, patch, &mut parts);
        parts.put_into(plan);
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

/// What is named of the present patch.
fn part(present: Present, paths: &BTreeSet<RelPath>) -> Result<Present, Refusal> {
    if paths.is_empty() {
        return Ok(present);
    }
    let chosen = present.patch.select(paths).map_err(|Unknown(unknown)| {
        let names: Vec<_> = unknown.iter().take(NAMED).map(ToString::to_string).collect();
        let detail = format!("the patch has nothing at {}", named(&names, unknown.len()));
        Refusal::new(Reason::PatchPathUnknown, detail)
    })?;
    let patch = Arc::new(chosen);
    Ok(Present { digest: patch.digest(), patch, ..present })
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
        part_of: None,
        undoes: None,
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
    let names: Vec<_> = stays.iter().take(NAMED).map(name).collect();
    let detail = format!(
        "nothing that may go to the workspace has changed; {} of the private copy are not carried: {}",
        stays.len(),
        named(&names, stays.len())
    );
    Refusal::new(Reason::PatchEmpty, detail)
}
