//! What the manifest means to a run: its prompt and its limits. Which call is allowed is the executors' to say.

use std::time::Duration;

use kernel::{Budget, CallId, Limits, Millis};
use manifest::Manifest;
use proto::model::v1::Message;
use receipt::OnDisconnect;

use crate::transcript;

/// What a run may use at most, whatever a manifest or a client says.
const CEILING: Budget = Budget {
    steps: 100,
    tool_calls: 500,
    tokens: 5_000_000,
    wall_time: Millis(12 * 60 * 60 * 1000),
};
/// How many model turns a run has when the manifest does not say.
const STEPS: u64 = 8;
/// What a child may use at most, however much its parent has left.
const CHILD: Limits = Limits {
    steps: Some(STEPS),
    tool_calls: Some(100),
    tokens: Some(1_000_000),
    wall_time: Some(Millis(15 * 60 * 1000)),
};
/// How long an ask stays open when the manifest does not say.
const ASK_TIMEOUT: Duration = Duration::from_secs(120);
const ASK_TIMEOUT_ON_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) system: Message,
    limits: Limits,
    ask_timeout: Duration,
}

impl Terms {
    pub(crate) fn of(manifest: &Manifest, on_disconnect: OnDisconnect) -> Self {
        let manifest::Budget { max_model_tokens, max_tool_calls, max_steps, max_wall_time } =
            manifest.budget;
        let default = match on_disconnect {
            OnDisconnect::Deny => ASK_TIMEOUT,
            OnDisconnect::Hold => ASK_TIMEOUT_ON_HOLD,
        };
        Self {
            system: transcript::system(manifest),
            limits: Limits {
                steps: Some(max_steps.unwrap_or(STEPS)),
                tool_calls: max_tool_calls,
                tokens: max_model_tokens,
                wall_time: max_wall_time.map(millis),
            },
            ask_timeout: manifest.interaction.permission_timeout.unwrap_or(default),
        }
    }

    /// A child's own limits, within what its parent has left.
    pub(crate) fn child_prompt(&self, left: Budget) -> kernel::Prompt {
        kernel::Prompt {
            ceiling: left,
            manifest: CHILD,
            requested: Limits::default(),
            ask_timeout: millis(self.ask_timeout),
            calls: Vec::new(),
        }
    }

    /// With `calls` the run does these and asks no model.
    pub(crate) fn prompt(&self, requested: Limits, calls: Vec<CallId>) -> kernel::Prompt {
        kernel::Prompt {
            ceiling: CEILING,
            manifest: self.limits,
            requested,
            ask_timeout: millis(self.ask_timeout),
            calls,
        }
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use kernel::Limits;
    use manifest::Manifest;
    use receipt::OnDisconnect;

    use super::{CEILING, Terms};
    use crate::tests::mesh::MANIFEST;

    #[test]
    fn a_manifest_that_names_no_steps_has_eight() {
        let steps = |budget: &str| {
            let text = format!("{MANIFEST}{budget}");
            let manifest = Manifest::parse(text.as_bytes(), "fix-it.yaml").unwrap();
            let prompt =
                Terms::of(&manifest, OnDisconnect::Deny).prompt(Limits::default(), Vec::new());
            (prompt.manifest.steps, prompt.ceiling)
        };
        assert_eq!(steps(""), (Some(8), CEILING));
        assert_eq!(steps("budget: {max_tool_calls: 3}\n"), (Some(8), CEILING));
        assert_eq!(steps("budget: {max_steps: 30}\n"), (Some(30), CEILING));
    }
}
