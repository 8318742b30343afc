//! One session as one connection knows it: what was shown, what is waited for. It never asks agent-svc anything.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use acp::RequestId;
use event::id::PermissionId;
use proto::agent::v1::Outcome;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::approval::Ask;
use crate::grant::Life;

/// Asks that are remembered, settled ones included, so that a late answer is told who was first.
const ASKS: usize = 1024;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) life: Arc<Mutex<Life>>,
    /// By id, which is by age.
    asks: BTreeMap<PermissionId, Ask>,
    prompt: Prompt,
    /// What came before agent-svc had confirmed the prompt.
    early: Option<Over>,
    /// When it was opened here, until it is prompted.
    unprompted: Option<Instant>,
}

#[derive(Debug)]
enum Prompt {
    Never,
    Sent,
    Running(RequestId),
    Over,
}

/// How waiting for a run ends.
#[derive(Debug)]
pub(super) enum Over {
    Outcome(Box<Outcome>),
    /// Its events cannot be followed any more.
    Lost,
}

impl Session {
    pub(super) fn opened(life: Arc<Mutex<Life>>) -> Self {
        Self { unprompted: Some(Instant::now()), ..Self::attached(life) }
    }

    pub(super) fn attached(life: Arc<Mutex<Life>>) -> Self {
        Self { life, asks: BTreeMap::new(), prompt: Prompt::Never, early: None, unprompted: None }
    }

    pub(super) fn shown(&mut self, ask: Ask) {
        self.asks.insert(ask.permission, ask);
        if self.asks.len() > ASKS {
            self.asks.pop_first();
        }
    }

    pub(super) fn ask(&self, id: &str) -> Option<&Ask> {
        self.asks.get(&PermissionId::parse(id).ok()?)
    }

    /// False when there was a prompt before.
    pub(super) fn begin(&mut self) -> bool {
        match self.prompt {
            Prompt::Never => {
                self.prompt = Prompt::Sent;
                self.unprompted = None;
                true
            }
            Prompt::Sent | Prompt::Running(_) | Prompt::Over => false,
        }
    }

    /// agent-svc has the prompt. Returns what to answer if the run is over already.
    pub(super) fn started(&mut self, request: RequestId) -> Option<(RequestId, Over)> {
        match self.early.take() {
            Some(over) => {
                self.prompt = Prompt::Over;
                Some((request, over))
            }
            None => {
                self.prompt = Prompt::Running(request);
                None
            }
        }
    }

    /// agent-svc did not take the prompt; unless there was a run before, it may be sent again.
    pub(super) fn not_started(&mut self, already_run: bool) {
        self.prompt = if already_run { Prompt::Over } else { Prompt::Never };
    }

    /// Nothing more will come of the run. Returns whom to answer, if somebody waits.
    pub(super) fn ended(&mut self, over: Over) -> Option<(RequestId, Over)> {
        match std::mem::replace(&mut self.prompt, Prompt::Over) {
            Prompt::Running(request) => Some((request, over)),
            Prompt::Sent => {
                (self.prompt, self.early) = (Prompt::Sent, Some(over));
                None
            }
            Prompt::Never | Prompt::Over => None,
        }
    }

    /// Whether it was opened here and has waited too long for its prompt; true once.
    pub(super) fn expires(&mut self, limit: Duration) -> bool {
        let expired = self.unprompted.is_some_and(|since| since.elapsed() >= limit);
        if expired {
            self.unprompted = None;
        }
        expired
    }
}
