//! The tools about what the private copy changed: their names, texts and arguments. It parses; it decides
//! nothing.

use std::collections::BTreeSet;

use event::Digest;
use event::id::RunId;
use receipt::PathText;
use serde::Deserialize;

use super::{Texts, decode, invalid, place};
use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

/// A name is a place in the patch; more of them than this name the whole.
const PATHS: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Inspect,
    Import,
    Undo,
}

/// Which part of the present patch is meant; no names mean all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Choice {
    /// Of the whole patch or of the part.
    pub(crate) digest: Option<Digest>,
    pub(crate) paths: BTreeSet<RelPath>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Inspect { paths: BTreeSet<RelPath> },
    Import(Choice),
    Undo { run: RunId, digest: Option<Digest> },
}

impl Tool {
    /// What a model is offered. That an import is taken back is a person's wish alone, so it is not among them.
    pub(super) const ALL: &[Self] = &[Self::Inspect, Self::Import];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Inspect => "inspect_patch",
            Self::Import => "import_patch",
            Self::Undo => "undo_patch",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Inspect => Texts {
                description: "Show what the private copy changed against the workspace, all of it or the named paths with what is below them.",
                schema: r#"{"additionalProperties":false,"properties":{"paths":{"items":{},"maxItems":500,"minItems":1,"type":"array"}},"type":"object"}"#,
            },
            Self::Import => Texts {
                description: "Write the private copy's changes to the workspace, all or none. With paths only those, with what is below them and what they need; the rest can be imported later.",
                schema: r#"{"additionalProperties":false,"properties":{"digest":{"description":"the patch that is meant; the present one if absent","type":"string"},"paths":{"items":{},"maxItems":500,"minItems":1,"type":"array"}},"type":"object"}"#,
            },
            Self::Undo => Texts {
                description: "Take an import of a run back.",
                schema: r#"{"additionalProperties":false,"properties":{"digest":{"type":"string"},"run":{"type":"string"}},"required":["run"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Inspect => {
                let Inspect { paths } = decode(bytes)?;
                Ok(Arguments::Inspect { paths: names(paths)? })
            }
            Self::Import => {
                let Import { digest, paths } = decode(bytes)?;
                Ok(Arguments::Import(Choice { digest, paths: names(paths)? }))
            }
            Self::Undo => {
                let Undo { run, digest } = decode(bytes)?;
                Ok(Arguments::Undo { run, digest })
            }
        }
    }
}

/// Text, or `{"b64": …}` where a path is not UTF-8. An empty list would not say whether all or nothing is meant.
fn names(paths: Option<Vec<PathText>>) -> Result<BTreeSet<RelPath>, Refusal> {
    let Some(paths) = paths else { return Ok(BTreeSet::new()) };
    if paths.is_empty() || paths.len() > PATHS {
        return Err(invalid(format!("paths must name 1 to {PATHS}, or be absent for all")));
    }
    let name = |path: &PathText| match path.as_str() {
        Some(text) => place(text),
        None => RelPath::parse(path.as_bytes())
            .map_err(|error| Refusal::new(Reason::PathInvalid, error)),
    };
    paths.iter().map(name).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inspect {
    paths: Option<Vec<PathText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Import {
    digest: Option<Digest>,
    paths: Option<Vec<PathText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Undo {
    run: RunId,
    digest: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Choice, Tool};
    use crate::refusal::Reason;
    use crate::tree::RelPath;

    #[test]
    fn a_part_of_a_patch_is_named_by_paths_of_any_bytes() {
        let path = |bytes: &[u8]| RelPath::parse(bytes).unwrap();
        let chosen = Tool::Import.arguments(br#"{"paths":["a/b/",{"b64":"/w=="},"./c"]}"#);
        let paths = [path(b"a/b"), path(b"\xff"), path(b"c")].into_iter().collect();
        assert_eq!(chosen, Ok(Arguments::Import(Choice { digest: None, paths })));
        assert_eq!(Tool::Import.arguments(b"{}"), Ok(Arguments::Import(Choice::default())));
        for (text, reason) in [
            (r#"{"paths":[]}"#, Reason::ArgumentsInvalid),
            (r#"{"paths":"a"}"#, Reason::ArgumentsInvalid),
            (r#"{"paths":["../x"]}"#, Reason::PathInvalid),
            (r#"{"paths":["/x"]}"#, Reason::PathInvalid),
        ] {
            let refused = Tool::Import.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, reason, "{text}");
        }
    }

    #[test]
    fn to_take_back_is_offered_to_no_model() {
        assert!(!Tool::ALL.contains(&Tool::Undo));
    }
}
