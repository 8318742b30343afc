//! The tools about what the private copy changed: their names, texts and arguments. It parses; it decides
//! nothing.

use event::Digest;
use serde::Deserialize;

use super::{Nothing, Texts, decode};
use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Inspect,
    Import,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Inspect,
    Import { digest: Option<Digest> },
}

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::Inspect, Self::Import];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Inspect => "inspect_patch",
            Self::Import => "import_patch",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Inspect => Texts {
                description: "Show what the private copy changed against the workspace.",
                schema: r#"{"additionalProperties":false,"properties":{},"type":"object"}"#,
            },
            Self::Import => Texts {
                description: "Write the private copy's changes to the workspace, all or none.",
                schema: r#"{"additionalProperties":false,"properties":{"digest":{"description":"the patch that is meant; the present one if absent","type":"string"}},"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Inspect => decode::<Nothing>(bytes).map(|_| Arguments::Inspect),
            Self::Import => {
                let Import { digest } = decode(bytes)?;
                Ok(Arguments::Import { digest })
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Import {
    digest: Option<Digest>,
}
