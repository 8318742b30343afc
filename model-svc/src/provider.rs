//! Whoever answers a turn. Each asks at most once, never again by itself, and never says what its key is.

mod openai;
mod scripted;

pub(crate) use openai::{Endpoint, MaxTokensField, NotAnEndpoint, OpenAi, Settings};
pub(crate) use scripted::{NoScript, Scripted};

use crate::turn::{Answer, Failure, Turn};

#[derive(Debug)]
pub(crate) enum Provider {
    OpenAi(OpenAi),
    Scripted(Scripted),
}

/// The tokens that a turn may cost: `input` at most, and of output anything from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) input: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Provider {
    pub(crate) fn need(&self, turn: &Turn) -> Need {
        match self {
            Self::OpenAi(provider) => provider.need(turn),
            Self::Scripted(script) => script.need(turn),
        }
    }

    /// `input` and `output` are what was reserved: upper bounds of what the turn may cost.
    pub(crate) async fn complete(
        &self,
        turn: &Turn,
        input: u64,
        output: u64,
    ) -> Result<Answer, Failure> {
        match self {
            Self::OpenAi(provider) => provider.complete(turn, input, output).await,
            Self::Scripted(script) => script.complete(turn).await,
        }
    }
}
