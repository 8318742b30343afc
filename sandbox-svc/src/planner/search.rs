//! Plans of the searches: every file that would be looked into is decided, and the files are told by how they were
//! decided. It changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use manifest::Action;
use receipt::Plan;

use super::parts::Parts;
use super::{Planner, Stop};
use crate::error::Error;
use crate::refusal::{Reason, Refusal};
use crate::tool::Tool;
use crate::tool::search::{Arguments, Kind, Query};
use crate::tree::scan::Found;
use crate::tree::{Node, RelPath};

/// Of a compiled expression, and of what matching it may build.
const REGEX_BYTES: usize = 1 << 20;
const DFA_BYTES: usize = 8 << 20;
const NESTED: u32 = 50;
const DETAIL_CHARACTERS: usize = 300;

#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) searches: Vec<Search>,
    pub(crate) limit: usize,
    pub(crate) found: Arc<Found>,
}

/// A query that can be carried out.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) query: Query,
    pub(crate) matcher: RegexMatcher,
}

impl Planner<'_> {
    pub(super) async fn search(
        &self,
        tool: Tool,
        arguments: Arguments,
    ) -> Result<(Plan, super::Prepared), Stop> {
        let Arguments { kind, queries, limit } = arguments;
        let (environment, rulebook) = (self.environment.clone(), self.rulebook.clone());
        let read = tokio::task::spawn_blocking(move || environment.found(&rulebook));
        let found = read.await.map_err(Error::Task)??;
        for query in &queries {
            crate::answer::is_there(self.environment, &found, &query.path)?;
        }
        let subject = match queries.as_slice() {
            [query] => super::subject_of(&query.path),
            queries => format!("{} queries", queries.len()).into(),
        };
        let mut plan = self.pure(tool, Action::FsRead, subject);
        let mut parts = Parts::default();
        let files: BTreeSet<&RelPath> =
            queries.iter().flat_map(|query| files(&found, &query.path)).collect();
        let decisions =
            files.into_iter().map(|path| self.decide(Action::FsRead, &path.to_subject()));
        parts.add_grouped(Action::FsRead, decisions);
        parts.put_into(&mut plan);
        let searches = queries.into_iter().map(prepare).collect::<Result<_, _>>()?;
        Ok((plan, super::Prepared::Search(Prepared { kind, searches, limit, found })))
    }
}

/// The files at or below a place, in path order.
pub(crate) fn files<'a>(found: &'a Found, place: &'a RelPath) -> impl Iterator<Item = &'a RelPath> {
    let own = found.inventory.iter().filter(move |(path, _)| *path == place);
    own.take(1)
        .chain(found.inventory.below(place))
        .filter(|(_, node)| matches!(node, Node::File { .. }))
        .map(|(path, _)| path)
}

fn prepare(query: Query) -> Result<Search, Refusal> {
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(!query.case_sensitive)
        .fixed_strings(!query.regex)
        .multi_line(true)
        .crlf(true)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(DFA_BYTES)
        .nest_limit(NESTED)
        .build(&query.text)
        .map_err(|error| {
            let detail: String = error.to_string().chars().take(DETAIL_CHARACTERS).collect();
            Refusal::new(Reason::PatternInvalid, detail)
        })?;
    Ok(Search { query, matcher })
}
