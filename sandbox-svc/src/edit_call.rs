//! An admitted edit: what was planned goes into the private copy, all of it or nothing, by the same steps and the same
//! journal as an import into a workspace. What it takes out of the copy is kept outside of it first.

use std::io;
use std::sync::Arc;

use event::Digest;
use event::id::CallId;
use receipt::{EditOperation, Plan};
use serde_json::{Value, json};

use crate::answer::{changed, document, text};
use crate::edit::{Proposal, Quarantined, Supply, look, stale};
use crate::environment::Environment;
use crate::error::Error;
use crate::exec::Unsettled;
use crate::import::{
    self, Bytes, Import, ImportError, Left, Outcome, Owners, Phase, Resumed, StagingName,
};
use crate::journal;
use crate::patch::{Change, Entry};
use crate::refusal::{Reason, Refusal, named};
use crate::sandbox::Sandbox;
use crate::session::now_ms;
use crate::store::{Edited, ExecutionRow, Fate, ImportRow, Mutation, StoreError};
use crate::tree::{Blobs, Dir, Node, RelPath};

const SHOWN_LEFT: usize = 20;

pub(crate) struct Editing<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) environment: &'a Arc<Environment>,
    pub(crate) row: &'a ExecutionRow,
    pub(crate) plan: &'a Plan,
}

pub(crate) enum Ended {
    Done {
        result: Vec<u8>,
        edited: Edited,
    },
    Refused(Refusal),
    /// A kill came before the copy was touched: it may begin anew.
    Untouched,
}

enum Work {
    Begin(Arc<Proposal>),
    GoOn(Phase),
}

impl Editing<'_> {
    pub(crate) async fn begin(&self, proposal: &Arc<Proposal>) -> Result<Ended, Unsettled> {
        let entries = proposal.patch.entries.clone();
        let ended = self.blocking(entries.clone(), Work::Begin(proposal.clone())).await?;
        let ended = self.judge(&entries, ended)?;
        self.sweep(&entries, &ended).await?;
        Ok(ended)
    }

    /// After a kill: finishes what had begun to be applied, or takes it back.
    pub(crate) async fn go_on(&self, journal: ImportRow) -> Result<Ended, Unsettled> {
        let entries = journal::entries(&journal)?;
        let ended = self.blocking(entries.clone(), Work::GoOn(journal.phase)).await?;
        let ended = self.judge(&entries, ended)?;
        self.sweep(&entries, &ended).await?;
        Ok(ended)
    }

    /// Bytes that are kept for no file in quarantine have done their work.
    async fn sweep(&self, entries: &[Entry], ended: &Ended) -> Result<(), Unsettled> {
        let fate = match ended {
            Ended::Done { edited, .. } => edited.quarantine.as_ref(),
            Ended::Refused(_) | Ended::Untouched => None,
        };
        let (come, gone) = match fate {
            Some(Fate::In(kept)) => (Some(kept.node.digest()), None),
            Some(Fate::Out(call)) => (None, Some(*call)),
            None => (None, None),
        };
        let mut keep = self.sandbox.store.kept_digests(self.environment.run, gone).await?;
        keep.extend(come);
        let states = |entry: &Entry| {
            let both = [entry.change.before().cloned(), entry.change.after().cloned()];
            both.into_iter().flatten().filter(|node| !node.is_directory())
        };
        let done: Vec<Digest> = entries
            .iter()
            .flat_map(states)
            .map(|node| node.digest())
            .filter(|digest| !keep.contains(digest))
            .collect();
        let environment = self.environment.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&environment, &done));
        let fault =
            Error::file("what an edit kept cannot be removed", self.environment.place.copy());
        Ok(swept.await.map_err(Error::Task)?.map_err(fault)?)
    }

    async fn blocking(
        &self,
        entries: Vec<Entry>,
        work: Work,
    ) -> Result<Result<Resumed, ImportError>, Unsettled> {
        let call = self.row.plan.call;
        let store = self.sandbox.store.clone();
        let failpoint = self.sandbox.failpoint.clone();
        let environment = self.environment.clone();
        let runtime = tokio::runtime::Handle::current();
        self.environment.forget_seen();
        let task = tokio::task::spawn_blocking(move || {
            let copy = Dir::open(&environment.place.copy()).map_err(ImportError::Staging)?;
            let blobs = kept(&environment)?;
            let staging = StagingName::of(call);
            // Whatever is new belongs to whom its directory belongs.
            let owners = Owners::new();
            let import = Import {
                host: &copy,
                entries: &entries,
                owners: &owners,
                staging: &staging,
                failpoint: &failpoint,
            };
            let mut journal = journal::writer(&store, &runtime, call, &entries);
            match work {
                Work::Begin(proposal) => {
                    supply(&copy, &blobs, &proposal)?;
                    import::run(&import, Bytes::Kept(&blobs), &mut journal).map(Resumed::Ended)
                }
                Work::GoOn(phase) => import::resume(&import, phase, &mut journal),
            }
        });
        journal::settled(&self.sandbox.store, call, task.await.map_err(Error::Task)?).await
    }

    fn judge(
        &self,
        entries: &[Entry],
        ended: Result<Resumed, ImportError>,
    ) -> Result<Ended, Unsettled> {
        match ended {
            Ok(Resumed::Untouched) => Ok(Ended::Untouched),
            Ok(Resumed::Ended(Outcome::Applied)) => Ok(self.done(entries)?),
            Ok(Resumed::Ended(Outcome::Undone { cause, left })) if left.paths.is_empty() => {
                Ok(Ended::Refused(refusal(&cause)))
            }
            Ok(Resumed::Ended(Outcome::Undone { cause, left: Left { paths, .. } })) => {
                let shown: Vec<_> =
                    paths.iter().take(SHOWN_LEFT).map(ToString::to_string).collect();
                let detail = format!("{cause}; not taken back: {}", named(&shown, paths.len()));
                Ok(Ended::Refused(Refusal::new(Reason::EditIncomplete, detail)))
            }
            Err(error) => Ok(Ended::Refused(refusal(&error))),
        }
    }

    fn done(&self, entries: &[Entry]) -> Result<Ended, Error> {
        let malformed = || Error::Store(StoreError::Malformed("plan"));
        let edit = self.plan.edit.as_ref().ok_or_else(malformed)?;
        let call = self.row.plan.call;
        let facts = Facts { call, at_ms: now_ms(), entries };
        let (kind, mut value, mutations, fate) = match &edit.operation {
            EditOperation::Apply => {
                let value = json!({ "changes": changed(entries) });
                ("patch-result", value, facts.each(), None)
            }
            EditOperation::Move { .. } => {
                let (value, mutation) = facts.moved().ok_or_else(malformed)?;
                ("move-result", value, vec![mutation], None)
            }
            EditOperation::Quarantine { id } => {
                let (value, mutation, kept) = facts.quarantined(id).ok_or_else(malformed)?;
                ("quarantine-result", value, vec![mutation], Some(Fate::In(kept)))
            }
            EditOperation::Restore { id } => {
                let out = crate::tool::edit::parse_id(id).ok_or_else(malformed)?;
                let (value, mutation) = facts.restored(id).ok_or_else(malformed)?;
                ("restore-result", value, vec![mutation], Some(Fate::Out(out)))
            }
        };
        value["status"] = "applied".into();
        value["proposalId"] = edit.digest.to_string().into();
        value["planDigest"] = self.row.plan.digest.to_string().into();
        if let Some(receipt::NotCarried { entries, .. }) = &edit.not_carried {
            let stays = |entry: &receipt::NotCarriedEntry| json!({ "path": crate::answer::bytes_text(entry.path.as_bytes()), "reason": entry.reason });
            value["notCarried"] = entries.iter().map(stays).collect();
        }
        let result = event::canon::to_bytes(&document(kind, value))
            .map_err(|error| Error::Seal(event::SealError::Canonical(error)))?;
        // A child's edits are of the copy that it shares.
        let run = self.environment.run;
        Ok(Ended::Done { result, edited: Edited { run, mutations, quarantine: fate } })
    }
}

/// What the entries of one edit say.
struct Facts<'a> {
    call: CallId,
    at_ms: i64,
    entries: &'a [Entry],
}

impl Facts<'_> {
    fn mutation(&self, operation: &'static str, entry: &Entry) -> Mutation {
        let state =
            |node: Option<&Node>| node.filter(|node| !node.is_directory()).map(Node::digest);
        Mutation {
            call: self.call,
            at_ms: self.at_ms,
            operation,
            path: entry.path.clone(),
            destination: None,
            before: state(entry.change.before()),
            after: state(entry.change.after()),
        }
    }

    fn each(&self) -> Vec<Mutation> {
        let one = |entry: &Entry| match &entry.change {
            Change::Create { after } if after.is_directory() => {
                self.mutation("make_directory", entry)
            }
            Change::Create { .. } => self.mutation("create", entry),
            Change::Update { .. } => self.mutation("update", entry),
            Change::Delete { .. } => self.mutation("quarantine", entry),
        };
        self.entries.iter().map(one).collect()
    }

    fn gone(&self) -> Option<(&Entry, &Node)> {
        self.entries.iter().find_map(|entry| match &entry.change {
            Change::Delete { before } => Some((entry, before)),
            Change::Create { .. } | Change::Update { .. } => None,
        })
    }

    /// The file that is new; directories on the way to it are made along.
    fn come(&self) -> Option<(&Entry, &Node)> {
        self.entries.iter().find_map(|entry| match &entry.change {
            Change::Create { after } if !after.is_directory() => Some((entry, after)),
            Change::Create { .. } | Change::Update { .. } | Change::Delete { .. } => None,
        })
    }

    fn moved(&self) -> Option<(Value, Mutation)> {
        let ((source, _), (destination, node)) = (self.gone()?, self.come()?);
        let mut value = file_value(node);
        value["source"] = text(&source.path);
        value["destination"] = text(&destination.path);
        let mutation = Mutation {
            destination: Some(destination.path.clone()),
            after: Some(node.digest()),
            ..self.mutation("move", source)
        };
        Some((value, mutation))
    }

    fn quarantined(&self, id: &str) -> Option<(Value, Mutation, Quarantined)> {
        let (entry, node) = self.gone()?;
        let mut value = file_value(node);
        value["path"] = text(&entry.path);
        value["quarantineId"] = id.into();
        let kept = Quarantined { id: self.call, path: entry.path.clone(), node: node.carried() };
        Some((value, self.mutation("quarantine", entry), kept))
    }

    fn restored(&self, id: &str) -> Option<(Value, Mutation)> {
        let (entry, node) = self.come()?;
        let mut value = file_value(node);
        value["path"] = text(&entry.path);
        value["quarantineId"] = id.into();
        Some((value, self.mutation("restore", entry)))
    }
}

fn file_value(node: &Node) -> Value {
    json!({ "digest": node.digest().to_string(), "size": node.size(), "mode": node.mode_text() })
}

fn kept(environment: &Environment) -> Result<Blobs, ImportError> {
    environment.place.kept().and_then(|path| Blobs::open(&path)).map_err(ImportError::Staging)
}

/// Every new file's bytes, and those of a file that goes, are outside of the copy before it is touched.
fn supply(copy: &Dir, blobs: &Blobs, proposal: &Proposal) -> Result<(), ImportError> {
    for (digest, supply) in &proposal.supplies {
        let put = match supply {
            Supply::Bytes(bytes) => {
                blobs.put_file(bytes.as_slice()).map_err(ImportError::Staging)?
            }
            Supply::Copy(path) => {
                let changed = || ImportError::CopyChanged { path: path.clone() };
                let look::Standing::File(seen) = look::look(copy, path).map_err(|_| changed())?
                else {
                    return Err(changed());
                };
                let file = seen.open(path).map_err(|_| changed())?;
                blobs.put_file(file).map_err(ImportError::Staging)?
            }
            Supply::Kept => *digest,
        };
        if put != *digest {
            let path = proposal.patch.entries.first().map(|entry| entry.path.clone());
            return Err(ImportError::CopyChanged { path: path.unwrap_or_else(RelPath::root) });
        }
    }
    Ok(())
}

/// Blocks.
fn sweep(environment: &Environment, done: &[Digest]) -> io::Result<()> {
    let blobs = Blobs::open(&environment.place.kept()?)?;
    done.iter().try_for_each(|digest| blobs.forget(*digest))
}

fn refusal(error: &ImportError) -> Refusal {
    match error {
        ImportError::Conflict(conflicts) => {
            let import::Conflict { path, expected, actual, .. } = &conflicts.first;
            stale(path, *expected, *actual)
        }
        ImportError::CopyChanged { .. } => Refusal::new(Reason::PlanStale, error),
        ImportError::Write { .. }
        | ImportError::Staging(_)
        | ImportError::Journal(_)
        | ImportError::Interrupted
        | ImportError::Stopped(_) => Refusal::new(Reason::EditFailed, error),
    }
}
