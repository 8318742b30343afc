//! The tools that look for text in the private copy: their names, texts and arguments. It parses; it decides
//! nothing.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::cursor::{Binding, Place};
use super::{Texts, decode, invalid, place};
use crate::refusal::Refusal;
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    One,
    Many,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) kind: Kind,
    pub(crate) queries: Vec<Query>,
    /// Matches of each query.
    pub(crate) limit: usize,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    One,
    Many,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) regex: bool,
    pub(crate) case_sensitive: bool,
    /// A file, or a directory to look below.
    pub(crate) path: RelPath,
    /// The last match that was shown before.
    pub(crate) after: Option<Place>,
}

const QUERY_CHARACTERS: usize = 200;
const LIMIT: usize = 100;
const MOST: usize = 500;
const QUERIES: usize = 10;
const LIMIT_PER_QUERY: usize = 20;

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::One, Self::Many];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::One => "search_files",
            Self::Many => "search_many",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::One => Texts {
                description: "Find lines of text files in the private copy. Each match has its path, line, column, the line's text (cut at 500 characters) and the digest of its file. The query is literal unless regex is true (Rust regex syntax, line by line). Files that are binary, too large, or that may not be read are skipped and counted. When truncated is true, call again with the same arguments and cursor = nextCursor.",
                schema: r#"{"additionalProperties":false,"properties":{"caseSensitive":{"description":"false if absent","type":"boolean"},"cursor":{"description":"nextCursor of the page before","type":"string"},"limit":{"description":"matches in this page; 100 if absent","maximum":500,"minimum":1,"type":"integer"},"path":{"description":"a file, or a directory to look below; the whole copy if absent","type":"string"},"query":{"description":"the text to find, without line breaks","maxLength":200,"minLength":1,"type":"string"},"regex":{"description":"the query is a regular expression; false if absent","type":"boolean"}},"required":["query"],"type":"object"}"#,
            },
            Self::Many => Texts {
                description: "Run 1 to 10 different searches in one call; every file is read once. Each query is as in search_files, and its nextCursor continues it there. limitPerQuery times the number of queries is at most 500.",
                schema: r#"{"additionalProperties":false,"properties":{"limitPerQuery":{"description":"20 if absent","maximum":500,"minimum":1,"type":"integer"},"queries":{"items":{"additionalProperties":false,"properties":{"caseSensitive":{"type":"boolean"},"path":{"type":"string"},"query":{"maxLength":200,"minLength":1,"type":"string"},"regex":{"type":"boolean"}},"required":["query"],"type":"object"},"maxItems":10,"minItems":1,"type":"array"}},"required":["queries"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::One => {
                let One { query, regex, case_sensitive, path, limit, cursor } = decode(bytes)?;
                let limit = limit.unwrap_or(LIMIT);
                if !(1..=MOST).contains(&limit) {
                    return Err(invalid(format!("limit must be 1 to {MOST}")));
                }
                let mut query = self::query(Asked { query, regex, case_sensitive, path })?;
                if let Some(cursor) = cursor {
                    query.after = Some(query.binding().decode(&cursor)?);
                }
                Ok(Arguments { kind: Kind::One, queries: vec![query], limit })
            }
            Self::Many => {
                let Many { queries, limit_per_query } = decode(bytes)?;
                let limit = limit_per_query.unwrap_or(LIMIT_PER_QUERY);
                if !(1..=QUERIES).contains(&queries.len()) {
                    return Err(invalid(format!("there must be 1 to {QUERIES} queries")));
                }
                if limit == 0 || limit.saturating_mul(queries.len()) > MOST {
                    let detail = format!("limitPerQuery times the queries must be 1 to {MOST}");
                    return Err(invalid(detail));
                }
                let queries: Vec<_> = queries.into_iter().map(query).collect::<Result<_, _>>()?;
                let different: BTreeSet<_> = queries.iter().map(Query::binding).collect();
                if different.len() != queries.len() {
                    return Err(invalid("a query is there twice"));
                }
                Ok(Arguments { kind: Kind::Many, queries, limit })
            }
        }
    }
}

impl Query {
    /// A cursor belongs to what is looked for, and where.
    pub(crate) fn binding(&self) -> Binding {
        let flags = [u8::from(self.regex), u8::from(self.case_sensitive)];
        Binding::of(&[b"search", self.text.as_bytes(), &flags, self.path.as_bytes()])
    }
}

fn query(Asked { query, regex, case_sensitive, path }: Asked) -> Result<Query, Refusal> {
    if query.is_empty() || query.chars().count() > QUERY_CHARACTERS {
        return Err(invalid(format!("a query has 1 to {QUERY_CHARACTERS} characters")));
    }
    if query.contains(['\n', '\r', '\0']) {
        return Err(invalid(
            "a query holds a line break or a zero byte; lines are searched one by one",
        ));
    }
    Ok(Query {
        text: query,
        regex: regex.unwrap_or(false),
        case_sensitive: case_sensitive.unwrap_or(false),
        path: path.as_deref().map_or_else(|| Ok(RelPath::root()), place)?,
        after: None,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct One {
    query: String,
    regex: Option<bool>,
    case_sensitive: Option<bool>,
    path: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Asked {
    query: String,
    regex: Option<bool>,
    case_sensitive: Option<bool>,
    path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Many {
    queries: Vec<Asked>,
    limit_per_query: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::Tool;
    use crate::refusal::Reason;

    #[test]
    fn searches_are_bounded_and_different() {
        let long = format!(r#"{{"query":"{}"}}"#, "x".repeat(201));
        let many = format!(r#"{{"queries":[{}]}}"#, [r#"{"query":"a"}"#; 11].join(","));
        for (tool, text, reason) in [
            (Tool::One, "{}", Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":""}"#, Reason::ArgumentsInvalid),
            (Tool::One, &long, Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":"a\nb"}"#, Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":"a","limit":0}"#, Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":"a","limit":501}"#, Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":"a","glob":"*"}"#, Reason::ArgumentsInvalid),
            (Tool::One, r#"{"query":"a","path":"../x"}"#, Reason::PathInvalid),
            (Tool::One, r#"{"query":"a","cursor":"AAAA"}"#, Reason::CursorStale),
            (Tool::Many, r#"{"queries":[]}"#, Reason::ArgumentsInvalid),
            (Tool::Many, r#"{"queries":[{"query":"a"},{"query":"a"}]}"#, Reason::ArgumentsInvalid),
            (
                Tool::Many,
                r#"{"queries":[{"query":"a"},{"query":"b"}],"limitPerQuery":251}"#,
                Reason::ArgumentsInvalid,
            ),
            (Tool::Many, &many, Reason::ArgumentsInvalid),
        ] {
            let refused = tool.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, reason, "{text}");
        }
    }
}
