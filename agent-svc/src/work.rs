//! One run as its session's driver holds it: the kernel's state beside what the kernel never sees. It is what the
//! database says, folded.

use std::collections::BTreeMap;

use event::id::{CallId, RunId};
use kernel::{Run, record};
use manifest::Profile;
use proto::model::v1::Message;
use receipt::Executor;

use crate::ids;
use crate::outcome::Usage;
use crate::permission::Ask;
use crate::store::{Change, Journal};

#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) run: Run,
    /// Present in a child.
    pub(crate) descent: Option<Descent>,
    pub(crate) calls: BTreeMap<CallId, Call>,
    pub(crate) messages: Vec<Message>,
    pub(crate) usage: Usage,
    /// What the run waits for a person for.
    pub(crate) ask: Option<Ask>,
}

/// Which run began this one, and what it may do at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descent {
    pub(crate) parent: RunId,
    pub(crate) profile: Profile,
}

/// One tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// The model's own name for it.
    pub(crate) provider_id: String,
    pub(crate) tool: String,
    /// As the model wrote them.
    pub(crate) arguments: Vec<u8>,
    /// Absent when nobody offers such a tool.
    pub(crate) executor: Option<Executor>,
    /// The last attempt whose start the stream tells.
    pub(crate) announced: u32,
    pub(crate) output: Output,
    /// Why its executor did not take what people had allowed of it, for those who are asked again.
    pub(crate) uncounted: Option<String>,
}

/// How much of a call's output the stream holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// Everything before it has been read from the executor.
    pub(crate) offset: u64,
    /// How many bytes of it were put into events.
    pub(crate) shown: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Damaged {
    #[error("a record of the run cannot be read")]
    Record(#[source] record::Unreadable),
    #[error("the run's record does not fit together")]
    Misfit(#[source] record::Misfit),
    #[error("a call of the run is not there any more")]
    CallMissing,
}

impl Work {
    pub(crate) fn new(id: RunId, descent: Option<Descent>) -> Self {
        Self {
            run: Run::new(ids::of_run(id)),
            descent,
            calls: BTreeMap::new(),
            messages: Vec::new(),
            usage: Usage::default(),
            ask: None,
        }
    }

    pub(crate) fn recover(id: RunId, journal: Journal) -> Result<Self, Damaged> {
        let Journal { records, messages, calls, usage, ask, descent } = journal;
        let events = records
            .iter()
            .map(|record| record::decode(record))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Damaged::Record)?;
        let run = record::fold(ids::of_run(id), events).map_err(Damaged::Misfit)?;
        Ok(Self { run, descent, calls, messages, usage, ask })
    }

    pub(crate) fn id(&self) -> RunId {
        ids::run(self.run.id())
    }

    /// The same here as what was committed there.
    pub(crate) fn follow(&mut self, change: Change) {
        match change {
            Change::Said(message) => self.messages.push(message),
            Change::Spent(Usage { prompt_tokens, completion_tokens }) => {
                self.usage.prompt_tokens = self.usage.prompt_tokens.saturating_add(prompt_tokens);
                self.usage.completion_tokens =
                    self.usage.completion_tokens.saturating_add(completion_tokens);
            }
            Change::Called { id, call } => {
                self.calls.insert(id, call);
            }
            Change::Announced { call, attempt } => self.on(call, |call| call.announced = attempt),
            Change::Retried(call) => self.on(call, |call| call.output.offset = 0),
            Change::Dropped { call, why, .. } => self.on(call, |call| call.uncounted = Some(why)),
            Change::Output { call, output } => self.on(call, |call| call.output = output),
            Change::Asked { ask, .. } => self.ask = Some(*ask),
            Change::Answered { .. } => self.ask = None,
            Change::Began { .. }
            | Change::Counted { .. }
            | Change::Used(_)
            | Change::Over
            | Change::Entered(_)
            | Change::Ended(_) => (),
        }
    }

    fn on(&mut self, id: CallId, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.get_mut(&id) {
            change(call);
        }
    }
}
