//! An admitted import: the patch that was planned goes into the workspace, and the run's base follows it. The
//! journal is in the store, so that a kill at any step is finished or taken back at the next start.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tracing::warn;
use transport::Chain;

use crate::answer::{bytes_text, text};
use crate::environment::Environment;
use crate::error::Error;
use crate::exec::Unsettled;
use crate::import::{
    self, Bytes, Import, ImportError, Left, Outcome, Owners, Phase, Resumed, StagingName,
};
use crate::journal;
use crate::patch::{self, Change, Entry, file_state};
use crate::refusal::{Reason, Refusal, named};
use crate::sandbox::Sandbox;
use crate::session::now_ms;
use crate::store::{ExecutionRow, ImportRow, Store, UndoRow};
use crate::tree::{Blobs, Dir, Inventory, Kind, Node, RelPath};
use crate::undo::UndoRecords;

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

/// What is written, and where its bytes are.
pub(crate) struct Begin {
    pub(crate) entries: Vec<Entry>,
    pub(crate) from: Origin,
}

pub(crate) enum Origin {
    Copy(Arc<Environment>),
    /// The kept bytes of an import that is taken back.
    Undo(UndoRow),
}

impl Importing<'_> {
    pub(crate) async fn begin(&self, begin: Begin) -> Result<Imported, Unsettled> {
        let (sandbox, row) = (self.sandbox, self.row);
        // Room for what this one replaces.
        let bytes = begin.entries.iter().flat_map(sizes).fold(0, u64::saturating_add);
        if bytes <= sandbox.undo.retention.bytes {
            sandbox.undo.sweep(&sandbox.store, bytes).await?;
        }
        let keep = Keep {
            records: sandbox.undo.clone(),
            row: UndoRow {
                call: row.plan.call,
                tenant: row.tenant.clone(),
                session: row.plan.session,
                run: row.plan.run,
                workspace: self.workspace.to_owned(),
                patch: patch::Patch { entries: begin.entries.clone(), ..patch::Patch::default() },
                owners: Owners::new(),
                bytes: 0,
                made_ms: now_ms(),
            },
        };
        let ended =
            self.blocking(begin.entries.clone(), Work::Begin(Box::new((begin.from, keep)))).await?;
        self.judge(begin.entries, ended).await
    }

    /// After a kill: finishes what had begun to be applied, or takes it back. Needs no copy.
    pub(crate) async fn go_on(&self, journal: ImportRow) -> Result<Imported, Unsettled> {
        let entries = journal::entries(&journal)?;
        let ended = self.blocking(entries.clone(), Work::GoOn(journal.phase)).await?;
        self.judge(entries, ended).await
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
        let runtime = Handle::current();
        let task = tokio::task::spawn_blocking(move || {
            let host = open(&path)?;
            let staging = StagingName::of(call);
            let nobody = Owners::new();
            let owners = match &work {
                Work::Begin(begin) => match &begin.0 {
                    Origin::Undo(record) => &record.owners,
                    Origin::Copy(_) => &nobody,
                },
                Work::GoOn(_) => &nobody,
            };
            let import = Import {
                host: &host,
                entries: &entries,
                owners,
                staging: &staging,
                failpoint: &failpoint,
            };
            let mut journal = journal::writer(&store, &runtime, call, &entries);
            let (origin, keep) = match &work {
                Work::Begin(begin) => (&begin.0, &begin.1),
                Work::GoOn(phase) => return import::resume(&import, *phase, &mut journal),
            };
            match origin {
                Origin::Copy(environment) => {
                    let copy = open(&environment.place.copy())?;
                    let blobs = Blobs::open(&environment.place.blobs());
                    let blobs = blobs.map_err(ImportError::Staging)?;
                    keep_bytes(&blobs, &copy, &entries)?;
                    keep.keep(&import, &blobs, &store, &runtime)?;
                    import::run(&import, Bytes::Copy(&copy), &mut journal).map(Resumed::Ended)
                }
                Origin::Undo(record) => {
                    let blobs = Blobs::open(&keep.records.place(record.call));
                    let blobs = blobs.map_err(ImportError::Staging)?;
                    keep.keep(&import, &blobs, &store, &runtime)?;
                    import::run(&import, Bytes::Kept(&blobs), &mut journal).map(Resumed::Ended)
                }
            }
        });
        journal::settled(&self.sandbox.store, call, task.await.map_err(Error::Task)?).await
    }

    async fn judge(
        &self,
        entries: Vec<Entry>,
        ended: Result<Resumed, ImportError>,
    ) -> Result<Imported, Unsettled> {
        match ended {
            Ok(Resumed::Untouched) => Ok(Imported::Untouched),
            Ok(Resumed::Ended(Outcome::Applied)) => {
                let kept = self.sandbox.store.undo_row(self.row.plan.call).await?;
                let result = self.result(&entries, kept.as_ref())?;
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

    fn result(&self, entries: &[Entry], kept: Option<&UndoRow>) -> Result<Vec<u8>, Error> {
        let patch = patch::Patch { entries: entries.to_vec(), ..patch::Patch::default() };
        let states = import::final_states(entries);
        let mut value = json!({
            "schemaVersion": 1,
            "kind": "environment-patch-import",
            "status": "applied",
            "patch": patch.digest().to_string(),
            "workspace": self.workspace,
            "totals": { "entries": entries.len(), "bytes": patch.written_bytes() },
            // What was seen on the host when all was in place.
            "paths": states.iter().take(SHOWN_PATHS).map(final_state).collect::<Vec<_>>(),
            "pathsTotal": states.len(),
            "undo": { "kept": kept.is_some() },
        });
        if let Some(kept) = kept {
            let until = self.sandbox.undo.until_ms(kept.made_ms);
            value["undo"]["until"] = until.into();
        }
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
    Begin(Box<(Origin, Keep)>),
    GoOn(Phase),
}

/// Where it is noted what the import replaces and writes.
struct Keep {
    records: UndoRecords,
    row: UndoRow,
}

impl Keep {
    /// An import is not held up by what cannot be kept; its result says whether it was.
    fn keep(
        &self,
        import: &Import<'_>,
        from: &Blobs,
        store: &Store,
        runtime: &Handle,
    ) -> Result<(), ImportError> {
        let call = self.row.call;
        let bytes = match self.records.fill(call, import.entries, from) {
            Ok(bytes) => bytes,
            Err(not_kept) => {
                warn!(%call, error = %Chain(&not_kept), "an import cannot be taken back later");
                return Ok(());
            }
        };
        let row = UndoRow { owners: import::owners(import), bytes, ..self.row.clone() };
        let noted = runtime.block_on(store.note_undo(&row));
        noted.map_err(|error| ImportError::Journal(io::Error::other(error.to_string())))
    }
}

fn sizes(entry: &Entry) -> impl Iterator<Item = u64> {
    let sides = [entry.change.before(), entry.change.after()];
    sides.into_iter().flatten().map(Node::size)
}

fn open(path: &Path) -> Result<Dir, ImportError> {
    Dir::open(path).map_err(|source| ImportError::Write { path: RelPath::root(), source })
}

fn refusal(error: &ImportError) -> Refusal {
    let reason = match error {
        ImportError::Conflict(_) => Reason::HostChanged,
        ImportError::CopyChanged { .. } => Reason::PlanStale,
        ImportError::Write { .. }
        | ImportError::Staging(_)
        | ImportError::Journal(_)
        | ImportError::Interrupted
        | ImportError::Stopped(_) => Reason::ImportFailed,
    };
    Refusal::new(reason, error)
}

fn final_state((path, node): (&&RelPath, &Option<&Node>)) -> Value {
    let mut value = json!({ "path": text(path), "kind": kind(*node) });
    if let Some(node) = node {
        let receipt::FileState { mode, sha256, size } = file_state(node);
        value["mode"] = mode.into();
        value["sha256"] = sha256.to_string().into();
        value["size"] = size.into();
        if let Node::Link { target } = node {
            value["target"] = bytes_text(target);
        }
    }
    value
}

fn kind(node: Option<&Node>) -> &'static str {
    match node {
        None => "absent",
        Some(Node::File { .. }) => "file",
        Some(Node::Directory { .. }) => "directory",
        Some(Node::Link { .. }) => "link",
    }
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
fn keep_bytes(blobs: &Blobs, copy: &Dir, entries: &[Entry]) -> Result<(), ImportError> {
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
