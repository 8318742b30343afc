//! Plans of the tools that look at the private copy. They change nothing, and so does this.

use manifest::Action;
use receipt::Plan;

use super::parts::Parts;
use super::{Planner, subject_of};
use crate::tool::Tool;
use crate::tool::read::Arguments;
use crate::tree::RelPath;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile { path: RelPath, start: u64, end: Option<u64> },
}

impl Planner<'_> {
    pub(super) fn read(&self, tool: Tool, arguments: Arguments) -> (Plan, super::Prepared) {
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
        };
        (plan, super::Prepared::Read(prepared))
    }
}
