//! An admitted import: the patch that was planned goes into the workspace, and the run's base follows it. The
//! journal is in the store, so that a kill at any step is finished or taken back at the next start.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::answer::{bytes_text, op, text};
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::exec::Unsettled;
use crate::import::{self, Import, ImportError, Left, Outcome, Phase, Resumed, StagingName};
use crate::patch::{self, Change, Entry, file_state};
use crate::refusal::{Reason, Refusal, named};
use crate::sandbox::Sandbox;
use crate::store::{ExecutionRow, ImportRow, StoreError};
use crate::tree::{Blobs, Dir, Inventory, Kind, Node, RelPath};

/// How many paths a result names.
const SHOWN_PATHS: usize = 500;
const SHOWN_LEFT: usize = 20;
const SHOWN_NOT_CARRIED: usize = 20;

pub(crate) struct Importing<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) workspace: &'a str,
    pub(crate) host: &'a Path,
    pub(crate) row: &'a ExecutionRow,
    /// What the approved patch leaves in the copy.
    pub(crate) not_carried: Option<&'a receipt::NotCarried>,
}

pub(crate) enum Imported {
    Done {
        entries: Vec<Entry>,
        result: Vec<u8>,
    },
    Refused(Refusal),
    /// A kill came before the workspace was touched: it may begin anew.
    Untouched,
}

impl Importing<'_> {
    pub(crate) async fn begin(
        &self,
        environment: &Arc<Environment>,
        present: &Present,
    ) -> Result<Imported, Unsettled> {
        let entries = present.patch.entries.clone();
        let work = Work::Begin(environment.clone());
        let ended = self.blocking(entries.clone(), work).await?;
        self.judge(entries, ended)
    }

    /// After a kill: finishes what had begun to be applied, or takes it back. Needs no copy.
    pub(crate) async fn go_on(&self, journal: ImportRow) -> Result<Imported, Unsettled> {
        let entries = patch::decode(&journal.entries)
            .map_err(|_| Error::Store(StoreError::Malformed("list of entries")))?;
        let ended = self.blocking(entries.clone(), Work::GoOn(journal.phase)).await?;
        self.judge(entries, ended)
    }

    async fn blocking(
        &self,
        entries: Vec<Entry>,
        work: Work,
    ) -> Result<Result<Resumed, ImportError>, Unsettled> {
        let call = self.row.plan.call;
        let store = self.sandbox.store.clone();
        let failpoint = self.sandbox.failpoint.clone();
        let path = self.host.to_owned();
        let runtime = tokio::runtime::Handle::current();
        let task = tokio::task::spawn_blocking(move || {
            let host = open(&path)?;
            let staging = StagingName::of(call);
            let import =
                Import { host: &host, entries: &entries, staging: &staging, failpoint: &failpoint };
            let bytes = patch::encode(&entries);
            let mut journal = |phase: Phase| {
                runtime
                    .block_on(store.enter_import(call, phase, &bytes))
                    .map_err(|error| io::Error::other(error.to_string()))
            };
            match work {
                Work::Begin(environment) => {
                    let copy = open(&environment.place.copy())?;
                    keep_bytes(&environment, &copy, &entries)?;
                    import::run(&import, &copy, &mut journal).map(Resumed::Ended)
                }
                Work::GoOn(phase) => import::resume(&import, phase, &mut journal),
            }
        });
        let ended = task.await.map_err(Error::Task)?;
        let begun = self.sandbox.store.import(call).await?.is_some();
        match ended {
            Err(ImportError::Stopped(stopped)) => Err(stopped.into()),
            // The journal says how to go on; somebody tries again.
            Err(error) if begun => Err(Unsettled::Import(error)),
            ended => Ok(ended),
        }
    }

    fn judge(
        &self,
        entries: Vec<Entry>,
        ended: Result<Resumed, ImportError>,
    ) -> Result<Imported, Unsettled> {
        match ended {
            Ok(Resumed::Untouched) => Ok(Imported::Untouched),
            Ok(Resumed::Ended(Outcome::Applied)) => {
                let result = self.result(&entries)?;
                Ok(Imported::Done { entries, result })
            }
            Ok(Resumed::Ended(Outcome::Undone { cause, left })) if left.paths.is_empty() => {
                Ok(Imported::Refused(refusal(&cause)))
            }
            Ok(Resumed::Ended(Outcome::Undone { cause, left })) => {
                let detail = format!("{cause}; {}", self.not_taken_back(&left));
                Ok(Imported::Refused(Refusal::new(Reason::ImportIncomplete, detail)))
            }
            Err(error) => Ok(Imported::Refused(refusal(&error))),
        }
    }

    fn not_taken_back(&self, left: &Left) -> String {
        let paths: Vec<_> = left.paths.iter().take(SHOWN_LEFT).map(ToString::to_string).collect();
        let paths = named(&paths, left.paths.len());
        if left.kept {
            let staging = StagingName::of(self.row.plan.call);
            format!("not taken back, the old files are in {}: {paths}", staging.as_str())
        } else {
            format!("the staging directory is gone and with it the old files; changed: {paths}")
        }
    }

    fn result(&self, entries: &[Entry]) -> Result<Vec<u8>, Error> {
        let patch = patch::Patch { entries: entries.to_vec(), ..patch::Patch::default() };
        let mut value = json!({
            "status": "applied",
            "patch": patch.digest().to_string(),
            "workspace": self.workspace,
            "totals": { "entries": entries.len(), "bytes": patch.written_bytes() },
            "paths": entries.iter().take(SHOWN_PATHS).map(final_state).collect::<Vec<_>>(),
        });
        // Whoever reads "applied" must not take it for everything.
        if let Some(receipt::NotCarried { total, entries }) = self.not_carried {
            let stays = |entry: &receipt::NotCarriedEntry| {
                let path = bytes_text(entry.path.as_bytes());
                json!({ "path": path, "reason": entry.reason })
            };
            let named: Vec<_> = entries.iter().take(SHOWN_NOT_CARRIED).map(stays).collect();
            value["notCarried"] = named.into();
            value["notCarriedTotal"] = (*total).into();
        }
        event::canon::to_bytes(&value)
            .map_err(|error| Error::Seal(event::SealError::Canonical(error)))
    }
}

enum Work {
    Begin(Arc<Environment>),
    GoOn(Phase),
}

fn open(path: &Path) -> Result<Dir, ImportError> {
    Dir::open(path).map_err(|source| ImportError::Write { path: RelPath::root(), source })
}

fn refusal(error: &ImportError) -> Refusal {
    let reason = match error {
        ImportError::Conflict { .. } => Reason::HostChanged,
        ImportError::CopyChanged { .. } => Reason::PlanStale,
        ImportError::Write { .. }
        | ImportError::Staging(_)
        | ImportError::Journal(_)
        | ImportError::Interrupted
        | ImportError::Stopped(_) => Reason::ImportFailed,
    };
    Refusal::new(reason, error)
}

fn final_state(entry: &Entry) -> Value {
    let mut value = json!({ "path": text(&entry.path), "op": op(entry) });
    if let Some(node) = entry.change.after() {
        let receipt::FileState { mode, sha256, size } = file_state(node);
        value["mode"] = mode.into();
        value["sha256"] = sha256.to_string().into();
        value["size"] = size.into();
    }
    value
}

/// The base as the workspace is now, for the paths of the patch.
pub(crate) fn advanced(base: &Inventory, entries: &[Entry]) -> Inventory {
    let mut base = base.clone();
    for entry in entries {
        if let Change::Delete { .. } = entry.change {
            base.remove(&entry.path);
        }
    }
    for entry in entries {
        if let Some(after) = entry.change.after() {
            base.insert(entry.path.clone(), after.clone());
        }
    }
    base
}

/// The new base needs its bytes before anything depends on them.
fn keep_bytes(environment: &Environment, copy: &Dir, entries: &[Entry]) -> Result<(), ImportError> {
    let blobs = Blobs::open(&environment.place.blobs()).map_err(ImportError::Staging)?;
    for entry in entries {
        let Some(Node::File { digest, .. }) = entry.change.after() else { continue };
        let changed = || ImportError::CopyChanged { path: entry.path.clone() };
        let (parent, name) = entry.path.split().ok_or_else(changed)?;
        let parent = copy.descend(&parent).map_err(|_| changed())?;
        let seen = parent.look(name).ok().flatten().filter(|meta| meta.kind == Kind::File);
        let file = parent.open_file(name, &seen.ok_or_else(changed)?).map_err(|_| changed())?;
        let kept = blobs
            .put_file(file)
            .map_err(|source| ImportError::Write { path: entry.path.clone(), source })?;
        if kept != *digest {
            return Err(changed());
        }
    }
    Ok(())
}
