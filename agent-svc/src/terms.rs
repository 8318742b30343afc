//! What the manifest means to a run: its prompt and its limits. Which call is allowed is the executors' to say.

use std::time::Duration;

use kernel::{Budget, Limits, Millis};
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
                steps: max_steps,
                tool_calls: max_tool_calls,
                tokens: max_model_tokens,
                wall_time: max_wall_time.map(millis),
            },
            ask_timeout: manifest.interaction.permission_timeout.unwrap_or(default),
        }
    }

    pub(crate) fn prompt(&self, requested: Limits) -> kernel::Prompt {
        kernel::Prompt {
            ceiling: CEILING,
            manifest: self.limits,
            requested,
            ask_timeout: millis(self.ask_timeout),
        }
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
