//! What is decided about one action on one subject, and everything that had a say in it. Plain values.

use event::{Digest, Effect};
pub use event::{Layer, Matched};
use serde::Serialize;

use crate::action::Action;
use crate::requirement::Requirement;

/// The rules of [`Layer::System`], by the names they have in decisions.
pub mod system {
    /// The subject is no path inside the workspace.
    pub const PATH: &str = "path";
    /// The subject is no `host:port` by name.
    pub const HOST: &str = "host";
    /// The subject of a command is not what an argv looks like.
    pub const ARGV: &str = "argv";
    /// `.git`, in any spelling.
    pub const GIT_DIRECTORY: &str = "git_directory";
    /// Outside of what the task may modify.
    pub const ALLOWED_PATHS: &str = "allowed_paths";
    /// What tools run or obey on their own.
    pub const PROTECTED_PATHS: &str = "protected_paths";
    /// An import is to be taken back.
    pub const UNDO: &str = "undo";
    /// A shell, interpreter or wrapper behind a wildcard.
    pub const INTERPRETER: &str = "interpreter";
    /// What a command of the class runs cannot be told.
    pub const UNPARSABLE: &str = "unparsable";
    /// Layers ask for roles that nobody has together.
    pub const APPROVERS: &str = "approvers";
}

/// What holds for one action on one subject, and where that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub action: Action,
    /// In its one normal form; as it was given when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub effect: Effect,
    pub layer: Layer,
    /// The rule's id, or its place such as `permissions.fs.write[src/**]`; `default` when no rule names the
    /// action; one of [`system`].
    pub rule: String,
    /// For people.
    pub reason: String,
    /// The rule's author's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
    /// Every rule that matches, of all layers: strictest first, then by layer, then by rule.
    pub matching: Vec<Matched>,
    /// Who must answer: present exactly when the effect is ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Requirement>,
    /// The manifest's digest; a ceiling's own where only that is judged.
    pub manifest: Digest,
}

impl Decision {
    /// The strictest of several; the first of equals.
    pub fn strictest(decisions: impl IntoIterator<Item = Self>) -> Option<Self> {
        decisions.into_iter().reduce(
            |strictest, next| {
                if next.effect > strictest.effect { next } else { strictest }
            },
        )
    }
}
