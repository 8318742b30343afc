//! Plans of the tools that tell how the environment stands. They change nothing, and so does this.

use manifest::Action;
use receipt::{Limits, Plan};

use super::parts::Parts;
use super::{Planner, Stop};
use crate::environment::Present;
use crate::error::Error;
use crate::patch::Patch;
use crate::store::{Kept, Numbered};
use crate::tool::Tool;
use crate::tool::cursor::{Binding, Place};
use crate::tool::status::Arguments;
use crate::tree::RelPath;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    Environment { present: Present, commands: Option<Commands>, kept: Kept },
    Diff { present: Present, patch: Patch, binding: Binding, from: Place },
    Audit { rows: Vec<Numbered>, more: bool },
}

/// What commands would run in.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(crate) image: String,
    pub(crate) programs: Vec<String>,
    pub(crate) limits: Limits,
}

impl Planner<'_> {
    pub(super) async fn status(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Environment => self.environment_status(tool).await?,
            Arguments::Diff { path, cursor } => self.diff(tool, &path, cursor.as_deref()).await?,
            Arguments::Audit { after, limit } => {
                let rows = self.store.mutations(self.environment.run, after, limit + 1).await;
                let mut rows = rows.map_err(Error::Store)?;
                let more = rows.len() as u64 > limit;
                rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                (self.listing(tool), Prepared::Audit { rows, more })
            }
        };
        Ok((plan, super::Prepared::Status(prepared)))
    }

    /// Of the whole copy: names and digests, no contents.
    fn listing(&self, tool: Tool) -> Plan {
        let mut plan = self.pure(tool, Action::FsList, ".".into());
        Parts::of([self.decide(Action::FsList, ".")]).put_into(&mut plan);
        plan
    }

    async fn environment_status(&self, tool: Tool) -> Result<(Plan, Prepared), Stop> {
        let present = self.present().await?;
        let execution = &self.manifest().execution;
        let commands =
            execution.image.as_ref().filter(|_| self.engine.is_some()).map(|image| Commands {
                image: image.clone(),
                programs: execution.allow_commands.clone(),
                limits: self.ceilings.lower(&execution.limits, None),
            });
        let kept = self.store.kept(self.environment.run).await.map_err(Error::Store)?;
        let mut plan = self.listing(tool);
        plan.snapshot = Some(self.snapshot(&present));
        Ok((plan, Prepared::Environment { present, commands, kept }))
    }

    async fn diff(
        &self,
        tool: Tool,
        path: &RelPath,
        cursor: Option<&str>,
    ) -> Result<(Plan, Prepared), Stop> {
        let present = self.present().await?;
        let within = |at: &RelPath| at == path || at.is_below(path);
        let entries = present.patch.entries.iter().filter(|entry| within(&entry.path));
        let patch = Patch { entries: entries.cloned().collect(), ..Patch::default() };
        // What a page shows belongs to this very patch.
        let binding =
            Binding::of(&[b"diff", path.as_bytes(), present.digest.as_bytes().as_slice()]);
        let from = match cursor {
            Some(cursor) => binding.decode(cursor)?,
            None => Place { path: RelPath::root(), number: 0 },
        };
        let mut plan = self.pure(tool, Action::FsRead, super::subject_of(path));
        let mut parts = Parts::default();
        self.decide_paths(Action::FsRead, &patch, &mut parts);
        parts.put_into(&mut plan);
        plan.snapshot = Some(self.snapshot(&present));
        Ok((plan, Prepared::Diff { present, patch, binding, from }))
    }
}
