//! Plans of the tools that look at the private copy. They change nothing, and so does this.

use std::collections::BTreeSet;

use manifest::Action;
use receipt::{PathText, Plan};

use super::parts::Parts;
use super::{Planner, subject_of};
use crate::tool::Tool;
use crate::tool::read::{Arguments, Slice};
use crate::tree::RelPath;

#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    ListFiles { path: RelPath, limit: usize, after: Option<RelPath> },
    ReadFile(Slice),
    ReadFiles(Vec<Slice>),
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
            Arguments::ReadFile(slice) => {
                (self.reading(tool, &[&slice.path]), Prepared::ReadFile(slice))
            }
            Arguments::ReadFiles(slices) => {
                let paths: Vec<_> = slices.iter().map(|slice| &slice.path).collect();
                (self.reading(tool, &paths), Prepared::ReadFiles(slices))
            }
        };
        (plan, super::Prepared::Read(prepared))
    }

    /// A part for each file, once.
    pub(super) fn reading(&self, tool: Tool, paths: &[&RelPath]) -> Plan {
        let different: BTreeSet<_> = paths.iter().copied().collect();
        let mut plan = self.pure(tool, Action::FsRead, several(&different));
        let mut parts = Parts::default();
        for path in different {
            parts.add_at(path, &self.decide(Action::FsRead, &path.to_subject()));
        }
        parts.put_into(&mut plan);
        plan
    }
}

/// What a plan is about that is about these.
pub(super) fn several(paths: &BTreeSet<&RelPath>) -> PathText {
    match paths.first() {
        Some(path) if paths.len() == 1 => subject_of(path),
        Some(_) | None => format!("{} paths", paths.len()).into(),
    }
}
