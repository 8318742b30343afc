//! What a person wants of a run: words for its model, or an import that is to be taken back. Whether it may be is
//! sandbox-svc's to say.

use event::Digest;
use event::id::RunId;
use receipt::Executor;
use serde_json::json;

use crate::work::{Call, Output};

/// The tool by which an import is taken back. No model is offered it.
const UNDO: &str = "undo_patch";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Prompt(String),
    Undo(Undo),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undo {
    /// Who wishes it.
    pub(crate) by: String,
    pub(crate) run: RunId,
    /// Which import of the run; the newest where it is absent.
    pub(crate) digest: Option<Digest>,
}

impl Undo {
    /// The one call of its run.
    pub(crate) fn call(&self) -> Call {
        let arguments = match self.digest {
            Some(digest) => json!({ "digest": digest, "run": self.run }),
            None => json!({ "run": self.run }),
        };
        Call {
            // No model has a name for it.
            provider_id: String::new(),
            tool: UNDO.to_owned(),
            arguments: arguments.to_string().into_bytes(),
            executor: Some(Executor::SandboxSvc),
            announced: 0,
            output: Output::default(),
            uncounted: None,
        }
    }
}
