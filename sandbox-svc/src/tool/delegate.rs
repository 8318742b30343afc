//! The tool that lets another run begin: its name, text and arguments. It parses; it decides nothing.

use manifest::Profile;
use serde::Deserialize;

use super::{Texts, decode, invalid};
use crate::refusal::Refusal;

/// Of what a child is told to do.
const TASK_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Delegate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) profile: Profile,
    pub(crate) task: String,
}

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::Delegate];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delegate => "delegate",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::Delegate => Texts {
                description: "Let a child work on a part of the task in the same private copy, with a budget out of yours, and wait for its answer. explorer and reviewer read; tester also runs the checks; implementer also edits and runs commands. A child imports nothing and has no children.",
                schema: r#"{"additionalProperties":false,"properties":{"profile":{"enum":["explorer","implementer","tester","reviewer"],"type":"string"},"task":{"description":"all that the child is told","maxLength":16384,"minLength":1,"type":"string"}},"required":["profile","task"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        let Delegate { profile, task } = decode(bytes)?;
        if task.trim().is_empty() || task.len() > TASK_BYTES {
            return Err(invalid(format!(
                "task must have 1 to {TASK_BYTES} bytes and say something"
            )));
        }
        Ok(Arguments { profile, task })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delegate {
    profile: Profile,
    task: String,
}

#[cfg(test)]
mod tests {
    use manifest::Profile;

    use super::{Arguments, TASK_BYTES, Tool};
    use crate::refusal::Reason;

    #[test]
    fn a_child_has_one_of_four_profiles_and_something_to_do() {
        let arguments = Tool::Delegate.arguments(br#"{"profile":"tester","task":"test it"}"#);
        let expected = Arguments { profile: Profile::Tester, task: "test it".to_owned() };
        assert_eq!(arguments, Ok(expected));
        let long = format!(r#"{{"profile":"tester","task":"{}"}}"#, "x".repeat(TASK_BYTES + 1));
        for text in [
            "{}",
            r#"{"profile":"tester"}"#,
            r#"{"profile":"tester","task":" \n"}"#,
            r#"{"profile":"root","task":"x"}"#,
            r#"{"profile":"tester","task":"x","tools":["delegate"]}"#,
            &long,
        ] {
            let refused = Tool::Delegate.arguments(text.as_bytes()).unwrap_err();
            assert_eq!(refused.reason, Reason::ArgumentsInvalid, "{text}");
        }
    }
}
