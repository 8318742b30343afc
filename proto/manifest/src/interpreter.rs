//! Which programs run other programs, and what they would run. It reads argvs and scripts, and starts nothing.

use crate::command::Command;

/// What is inside a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inspection {
    /// The program that makes it one of the class: a shell, an interpreter or a wrapper.
    pub(crate) class: Option<String>,
    /// The argvs inside it.
    pub(crate) segments: Vec<Vec<String>>,
    /// Why some of it cannot be told.
    pub(crate) unparsable: Option<String>,
}

pub(crate) fn inspect(_command: &Command) -> Inspection {
    Inspection::default()
}
