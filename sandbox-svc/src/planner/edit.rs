//! Plans of the edits: every path that would be written is decided, and a person sees states, sizes, modes and a
//! diff. It reads the copy and changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use manifest::{Action, Decision, Target};
use receipt::{Effect, EffectClass, Plan, Scope};

use super::parts::Parts;
use super::read::several;
use super::{Planner, Stop, subject_of};
use crate::edit::{Proposal, Proposer, Quarantined};
use crate::error::Error;
use crate::refusal::{Reason, Refusal};
use crate::store::Kept;
use crate::tool::Tool;
use crate::tool::edit::{Arguments, Change, New};
use crate::tree::RelPath;

/// Files that one run may keep in quarantine, and their bytes.
const KEPT_FILES: u64 = 256;
const KEPT_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    /// What would be written, and how the rules decide each write.
    Propose {
        proposal: Arc<Proposal>,
        writes: Vec<(RelPath, Decision)>,
    },
    Edit(Arc<Proposal>),
    /// The rules say no, so nothing was worked out.
    Denied,
}

/// What an edit touches.
#[derive(Default)]
struct Touched<'a> {
    written: BTreeSet<&'a RelPath>,
    read: BTreeSet<&'a RelPath>,
}

impl Planner<'_> {
    pub(super) async fn edit(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Propose { changes } => self.propose(tool, changes).await?,
            arguments => self.write(tool, arguments).await?,
        };
        Ok((plan, super::Prepared::Edit(prepared)))
    }

    async fn propose(&self, tool: Tool, changes: Vec<Change>) -> Result<(Plan, Prepared), Stop> {
        let paths: Vec<_> = changes.iter().map(|change| &change.path).collect();
        let mut plan = self.reading(tool, &paths);
        if plan.effect == Effect::Deny {
            return Ok((plan, Prepared::Denied));
        }
        let proposal = self.work_out(move |proposer| proposer.apply(&changes)).await?;
        plan.subject = Some(proposal.digest.to_string().into());
        let decide = |path: &RelPath| {
            (path.clone(), self.rulebook.decide_write(&path.to_subject(), Target::File))
        };
        let files = proposal.patch.entries.iter();
        let files = files.filter(|entry| entry.change.after().is_some_and(|it| !it.is_directory()));
        let writes = files.map(|entry| decide(&entry.path)).collect();
        Ok((plan, Prepared::Propose { proposal, writes }))
    }

    async fn write(&self, tool: Tool, arguments: Arguments) -> Result<(Plan, Prepared), Stop> {
        let kept = match &arguments {
            Arguments::Restore { id, .. } => Some(self.kept(*id).await?),
            _ => None,
        };
        let touched = Touched::by(&arguments, kept.as_ref());
        let mut plan = Plan {
            effect_class: EffectClass::Staged,
            scopes: vec![Scope::Once],
            ..self.pure(tool, Action::FsWrite, several(&touched.written))
        };
        let mut reads = Parts::default();
        for path in &touched.read {
            reads.add_at(path, &self.decide(Action::FsRead, &path.to_subject()));
        }
        let mut parts = reads.clone();
        for path in &touched.written {
            parts.add_at(path, &self.rulebook.decide_write(&path.to_subject(), Target::File));
        }
        parts.put_into(&mut plan);
        if plan.effect == Effect::Deny {
            return Ok((plan, Prepared::Denied));
        }
        let proposal = self.worked_out(arguments, kept).await?;
        let mut parts = reads;
        self.decide_paths(Action::FsWrite, &proposal.patch, &mut parts);
        parts.put_into(&mut plan);
        let protected = proposal.patch.protected(self.rulebook.protected());
        plan.edit = Some(proposal.to_plan(protected.into_iter().map(subject_of).collect()));
        Ok((plan, Prepared::Edit(proposal)))
    }

    async fn worked_out(
        &self,
        arguments: Arguments,
        kept: Option<Quarantined>,
    ) -> Result<Arc<Proposal>, Stop> {
        let call = self.call;
        match (arguments, kept) {
            (Arguments::Apply { changes, proposal }, _) => {
                let worked_out = self.work_out(move |proposer| proposer.apply(&changes)).await?;
                match proposal {
                    Some(meant) if meant != worked_out.digest => {
                        Err(Reason::ProposalChanged.into())
                    }
                    Some(_) | None => Ok(worked_out),
                }
            }
            (Arguments::Move { source, destination, expected }, _) => {
                self.work_out(move |it| it.relocate(&source, &destination, expected)).await
            }
            (Arguments::Quarantine { path, expected }, _) => {
                let proposal =
                    self.work_out(move |it| it.quarantine(call, &path, expected)).await?;
                let kept = self.store.kept(self.environment.run).await.map_err(Error::Store)?;
                room(kept, &proposal)?;
                Ok(proposal)
            }
            (Arguments::Restore { destination, expected, .. }, Some(kept)) => {
                self.work_out(move |it| it.restore(&kept, destination.as_ref(), expected)).await
            }
            (Arguments::Restore { .. }, None) => Err(Reason::QuarantineUnknown.into()),
            (Arguments::Propose { .. }, _) => Err(Reason::ArgumentsInvalid.into()),
        }
    }

    async fn kept(&self, id: event::id::CallId) -> Result<Quarantined, Stop> {
        let kept = self.store.quarantined(self.environment.run, id).await.map_err(Error::Store)?;
        Ok(kept.ok_or(Reason::QuarantineUnknown)?)
    }

    async fn work_out(
        &self,
        work: impl FnOnce(Proposer<'_>) -> Result<Proposal, Stop> + Send + 'static,
    ) -> Result<Arc<Proposal>, Stop> {
        let (environment, rulebook) = (self.environment.clone(), self.rulebook.clone());
        let worked_out =
            tokio::task::spawn_blocking(move || work(Proposer::new(&environment, &rulebook)?));
        Ok(Arc::new(worked_out.await.map_err(Error::Task)??))
    }
}

impl<'a> Touched<'a> {
    fn by(arguments: &'a Arguments, kept: Option<&'a Quarantined>) -> Self {
        let mut touched = Self::default();
        match arguments {
            Arguments::Propose { changes } | Arguments::Apply { changes, .. } => {
                touched.written.extend(changes.iter().map(|change| &change.path));
                // Such an edit tells whether something is in the file.
                let edited = changes.iter().filter(|it| matches!(it.new, New::Edits(_)));
                touched.read.extend(edited.map(|change| &change.path));
            }
            Arguments::Move { source, destination, .. } => {
                touched.written.extend([source, destination]);
                // The content may be read under its new name.
                touched.read.insert(source);
            }
            Arguments::Quarantine { path, .. } => {
                touched.written.insert(path);
            }
            Arguments::Restore { destination, .. } => {
                let from = kept.map(|kept| &kept.path);
                touched.written.extend(destination.as_ref().or(from));
                touched.read.extend(from);
            }
        }
        touched
    }
}

fn room(kept: Kept, proposal: &Proposal) -> Result<(), Refusal> {
    let size = proposal.patch.entries.iter().filter_map(|entry| entry.change.before());
    let size: u64 = size.map(crate::tree::Node::size).sum();
    if kept.files >= KEPT_FILES || kept.bytes.saturating_add(size) > KEPT_BYTES {
        let detail = format!(
            "the run keeps {} files with {} bytes; the most are {KEPT_FILES} and {KEPT_BYTES}",
            kept.files, kept.bytes
        );
        return Err(Refusal::new(Reason::QuarantineFull, detail));
    }
    Ok(())
}
