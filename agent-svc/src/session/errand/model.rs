//! Asks the model for one turn. A turn that model-svc may know already is asked about before it is asked for, and an
//! answer that nobody can vouch for is lost, not repeated.

use std::time::Duration;

use event::FinishReason;
use event::id::CallId;
use kernel::{ModelEnd, Reason, Seen};
use proto::model::v1 as model;
use proto::model::v1::complete_response::Message;
use proto::model::v1::get_completion_response::State;
use tonic::Streaming;
use transport::Fault;

use super::{Errand, Pause, Then, parsed};
use crate::outcome::Usage;
use crate::peers::Turn;
use crate::session::content::{Answer, Content, Reply};
use crate::session::progress::Progress;
use crate::{ids, transcript};

const MAX_TEXT: usize = 512 * 1024;
const MAX_ARGUMENTS: usize = 256 * 1024;
const MAX_NAME: usize = 512;
const MAX_OPAQUE: usize = 1024 * 1024;
/// Words are told this often, or when there are this many of them.
const WORDS_EVERY: Duration = Duration::from_millis(50);
const WORDS: usize = 1024;
const WORDS_KEPT: usize = 3;

/// Nobody waited for the answer any more, or it was never heard: as a new call, the turn may be asked for again.
const LOST: [&str; 2] = ["MODEL_ABORTED", "MODEL_IN_DOUBT"];
/// The request would have cost more than the run has left, so none was made.
const OVER_BUDGET: &str = "BUDGET_EXCEEDED";

/// How a turn ended.
enum Turned {
    Answered(model::Answer),
    Failed(model::ModelError),
    Refused(Reason, String),
    Lost,
}

/// What came of one attempt to hear the answer.
enum Heard {
    Turned(Turned),
    /// It was interrupted; model-svc may know more.
    Interrupted,
    Fault(Fault),
}

pub(in crate::session) async fn ask(errand: Errand, call: CallId, turn: Turn, known: bool) {
    let size: usize = turn.messages.iter().map(prost::Message::encoded_len).sum();
    let turned = if size > transcript::MAX_BYTES {
        let detail = "the conversation is longer than a model can be shown".to_owned();
        Some(Turned::Refused(Reason::of("TRANSCRIPT_TOO_LARGE"), detail))
    } else {
        asked(&errand, call, &turn, known).await
    };
    let Some(turned) = turned else { return };
    let (tokens, end, content) = ended(turned, size);
    let seen = Seen::ModelEnded { call: ids::of_call(call), tokens, end };
    errand.done(seen, content).await;
}

/// Nothing, when the errand was dropped.
async fn asked(errand: &Errand, call: CallId, turn: &Turn, mut known: bool) -> Option<Turned> {
    let mut pause = Pause::new();
    loop {
        let heard = if known { remembered(errand, call).await } else { Ok(None) };
        let heard = match heard {
            Ok(Some(turned)) => Heard::Turned(turned),
            Ok(None) => hear(errand, call, turn).await,
            Err(heard) => heard,
        };
        known = true;
        match heard {
            Heard::Turned(turned) => return Some(turned),
            Heard::Interrupted => pause.wait().await,
            Heard::Fault(fault) => match errand.after(fault, &mut pause).await {
                Then::Again => (),
                Then::Refused(reason, detail) => return Some(Turned::Refused(reason, detail)),
                Then::Dropped => return None,
            },
        }
    }
}

/// What model-svc knows about the turn; nothing when it never heard of it.
async fn remembered(errand: &Errand, call: CallId) -> Result<Option<Turned>, Heard> {
    let answer = errand.runtime.peers.model.completion(errand.owner, call).await;
    match answer.map_err(Heard::Fault)?.state {
        Some(State::NotFound(_)) => Ok(None),
        Some(State::Answer(answer)) => Ok(Some(Turned::Answered(answer))),
        Some(State::Failed(error)) => Ok(Some(Turned::Failed(error))),
        Some(State::InDoubt(_)) => Ok(Some(Turned::Lost)),
        Some(State::Running(_)) | None => Err(Heard::Interrupted),
    }
}

async fn hear(errand: &Errand, call: CallId, turn: &Turn) -> Heard {
    let target = errand.target(call, turn.attempt);
    let mut stream = match errand.runtime.peers.model.complete(errand.owner, target, turn).await {
        Ok(stream) => stream,
        Err(fault) => return Heard::Fault(fault),
    };
    let mut words = Words { request: call, index: 0, held: String::new() };
    let heard = listen(errand, &mut stream, &mut words).await;
    words.tell(errand, words.held.len()).await;
    heard
}

async fn listen(
    errand: &Errand,
    stream: &mut Streaming<model::CompleteResponse>,
    words: &mut Words,
) -> Heard {
    loop {
        let next = tokio::select! {
            next = stream.message() => next,
            () = tokio::time::sleep(WORDS_EVERY), if words.complete() > 0 => {
                words.tell(errand, words.complete()).await;
                continue;
            }
        };
        match next.map_err(Fault::from) {
            Ok(Some(model::CompleteResponse { message })) => match message {
                Some(Message::Delta(model::Text { text })) => words.add(errand, &text).await,
                // What a model thinks is neither recorded nor shown.
                Some(Message::Reasoning(_)) | None => (),
                Some(Message::Answer(answer)) => return Heard::Turned(Turned::Answered(answer)),
                Some(Message::Failed(error)) => return Heard::Turned(Turned::Failed(error)),
            },
            Ok(None) => return Heard::Interrupted,
            Err(fault) => return Heard::Fault(fault),
        }
    }
}

/// Words that have come and have not been told.
struct Words {
    request: CallId,
    index: u32,
    held: String,
}

impl Words {
    async fn add(&mut self, errand: &Errand, text: &str) {
        self.held.push_str(text);
        if self.held.len() >= WORDS {
            self.tell(errand, self.complete()).await;
        }
    }

    /// How much can be told by itself. Redaction judges each event by itself, so the last words wait for what follows.
    fn complete(&self) -> usize {
        let line = self.held.rfind('\n').map(|at| at + 1);
        let spaces = self.held.char_indices().rev().filter(|(_, of)| of.is_whitespace());
        let words = spaces.map(|(at, of)| at + of.len_utf8()).nth(WORDS_KEPT);
        line.max(words).unwrap_or(0)
    }

    async fn tell(&mut self, errand: &Errand, end: usize) {
        let rest = self.held.split_off(end);
        let text = std::mem::replace(&mut self.held, rest);
        if text.is_empty() {
            return;
        }
        let (request, index) = (self.request, self.index);
        self.index = self.index.saturating_add(1);
        errand.progress(Progress::Said { request, index, text }).await;
    }
}

/// `size` is that of the conversation in bytes: what a turn costs that nobody can tell the cost of.
fn ended(turned: Turned, size: usize) -> (u64, ModelEnd, Content) {
    let no_answer = |usage: Usage, retryable, end, reply| {
        let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        (tokens, end, Content::NoAnswer { usage, retryable, reply })
    };
    let unknown = Usage { prompt_tokens: estimate(size), completion_tokens: 0 };
    match turned {
        Turned::Answered(answer) => match parse(answer) {
            Ok((end, answer)) => {
                let Usage { prompt_tokens, completion_tokens } = answer.usage;
                let tokens = prompt_tokens.saturating_add(completion_tokens);
                (tokens, end, Content::Answer(Box::new(answer)))
            }
            Err(usage) => {
                let reason = Reason::of("MODEL_INVALID_RESPONSE");
                no_answer(usage, false, ModelEnd::Failed(reason), None)
            }
        },
        Turned::Failed(error) => {
            let model::ModelError { kind, retryable, billed, usage: told, .. } = error;
            let reply = Reply::read(error.status, error.request_id);
            let told = told.map(usage);
            let cost = if billed { told.unwrap_or(unknown) } else { told.unwrap_or_default() };
            let end = match kind.as_str() {
                OVER_BUDGET => ModelEnd::OverBudget,
                kind if LOST.contains(&kind) => ModelEnd::Lost,
                kind => ModelEnd::Failed(parsed(kind)),
            };
            no_answer(cost, retryable, end, reply)
        }
        Turned::Refused(reason, detail) => (0, ModelEnd::Failed(reason), Content::Detail(detail)),
        Turned::Lost => no_answer(unknown, true, ModelEnd::Lost, None),
    }
}

fn estimate(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(3)).unwrap_or(u64::MAX)
}

fn usage(told: proto::common::v1::Usage) -> Usage {
    let proto::common::v1::Usage { prompt_tokens, completion_tokens, total_tokens: _ } = told;
    Usage { prompt_tokens, completion_tokens }
}

/// The answer, if its parts agree; else only what it cost.
fn parse(answer: model::Answer) -> Result<(ModelEnd, Answer), Usage> {
    let finish = answer.finish();
    let model::Answer { model, text, calls, opaque, usage: told, .. } = answer;
    let usage = told.map(usage).unwrap_or_default();
    let mut names: Vec<_> = calls.iter().map(|call| call.provider_id.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
    let large = calls.iter().any(|call| {
        call.arguments.len() > MAX_ARGUMENTS
            || call.name.len() > MAX_NAME
            || call.provider_id.len() > MAX_NAME
    });
    let large =
        large || text.len() > MAX_TEXT || opaque.len() > MAX_OPAQUE || model.len() > 2 * MAX_NAME;
    if twice || large {
        return Err(usage);
    }
    let calls: Vec<_> = calls.into_iter().map(|call| (CallId::new(), call)).collect();
    let ids = calls.iter().map(|(id, _)| ids::of_call(*id)).collect();
    let (end, finish, calls) = match finish {
        model::Finish::Stop if calls.is_empty() => (ModelEnd::Stop, FinishReason::Stop, calls),
        model::Finish::ToolCalls => (ModelEnd::Calls(ids), FinishReason::ToolCalls, calls),
        // Calls of an answer that was cut short are not answered, so they are not kept.
        model::Finish::Length => (ModelEnd::Length, FinishReason::Length, Vec::new()),
        model::Finish::Error => (ModelEnd::Error, FinishReason::Error, Vec::new()),
        model::Finish::Stop | model::Finish::Unspecified => return Err(usage),
    };
    Ok((end, Answer { model, finish, text, calls, opaque, usage }))
}

#[cfg(test)]
mod tests {
    use kernel::ModelEnd;
    use proto::model::v1 as model;

    use event::id::CallId;

    use super::{Words, parse};

    #[test]
    fn the_last_words_wait_for_what_follows() {
        let complete = |held: &str| {
            let words = Words { request: CallId::nil(), index: 0, held: held.to_owned() };
            held[..words.complete()].to_owned()
        };
        assert_eq!(complete("one two three"), "");
        assert_eq!(complete("one two Authorization: Bearer ab"), "one ");
        assert_eq!(complete("a line\nand Authorization: Bearer ab"), "a line\n");
    }

    fn answer(finish: model::Finish, calls: &[&str]) -> model::Answer {
        let calls = calls.iter().map(|id| model::ToolCall {
            provider_id: (*id).to_owned(),
            name: "list_files".to_owned(),
            arguments: b"{}".to_vec(),
        });
        model::Answer { finish: finish.into(), calls: calls.collect(), ..model::Answer::default() }
    }

    #[test]
    fn the_finish_must_agree_with_the_calls() {
        use model::Finish::{Error, Length, Stop, ToolCalls, Unspecified};
        assert!(matches!(parse(answer(Stop, &[])), Ok((ModelEnd::Stop, _))));
        assert!(parse(answer(Stop, &["a"])).is_err());
        assert!(parse(answer(Unspecified, &[])).is_err());
        assert!(parse(answer(ToolCalls, &["a", "a"])).is_err());
        let (end, parsed) = parse(answer(ToolCalls, &["a", "b"])).unwrap();
        let ids = parsed.calls.iter().map(|(id, _)| crate::ids::of_call(*id)).collect();
        assert_eq!(end, ModelEnd::Calls(ids));
        for finish in [Length, Error] {
            assert!(parse(answer(finish, &["a"])).unwrap().1.calls.is_empty());
        }
    }
}
