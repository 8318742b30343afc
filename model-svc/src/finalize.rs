//! The one judgement over a provider's finished answer, whatever its dialect: finish against calls, ids, names, arguments
//! and usage. It repairs nothing.

use event::canon;

use crate::transcript::{MAX_CALLS, MAX_ID};
use crate::turn::{Answer, Failure, Finish, Kind, ToolCall, Usage};

const MAX_NAME: usize = 64;

/// An answer as a dialect has read it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) model: String,
    pub(crate) request_id: Option<String>,
    pub(crate) finish: RawFinish,
    pub(crate) text: String,
    pub(crate) calls: Vec<RawCall>,
    pub(crate) usage: RawUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawFinish {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
    /// The older way to call, of which only one fits into an answer.
    FunctionCall,
    Missing,
    Unknown,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RawCall {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawUsage {
    Missing,
    Counted {
        prompt: u64,
        completion: u64,
        total: Option<u64>,
    },
    /// A counter that is no count.
    Garbage,
}

/// Whatever the verdict, the provider has generated something: a refusal carries what it cost. `estimate` is an upper bound
/// for it.
pub(crate) fn finalize(raw: Raw, estimate: Usage) -> Result<Answer, Failure> {
    let usage = usage(raw.usage, estimate);
    let paid = usage.unwrap_or_else(|paid| paid);
    let refused =
        |kind| Failure { request_id: raw.request_id.clone(), ..Failure::new(kind).billed(paid) };
    let finish = match (raw.finish, raw.calls.is_empty()) {
        (RawFinish::Stop, true) => Finish::Stop,
        (RawFinish::ToolCalls, false) => Finish::ToolCalls,
        (RawFinish::Length, _) => Finish::Length,
        (RawFinish::ContentFilter, _) => return Err(refused(Kind::ContentFiltered)),
        (RawFinish::FunctionCall, _) => return Err(refused(Kind::UnsupportedResponse)),
        (RawFinish::Stop | RawFinish::ToolCalls | RawFinish::Missing | RawFinish::Unknown, _) => {
            return Err(refused(Kind::InvalidResponse));
        }
    };
    // A cut turn exposes no call, even where its arguments happen to parse.
    let calls = match finish {
        Finish::Length => Some(Vec::new()),
        Finish::Stop | Finish::ToolCalls => calls(raw.calls),
    };
    let (Some(calls), Ok(usage)) = (calls, usage) else {
        return Err(refused(Kind::InvalidResponse));
    };
    Ok(Answer {
        model: raw.model,
        request_id: raw.request_id,
        finish,
        text: raw.text,
        calls,
        usage,
    })
}

/// A sum that does not add up is refused, and paid at the highest that it can mean.
fn usage(raw: RawUsage, estimate: Usage) -> Result<Usage, Usage> {
    match raw {
        RawUsage::Missing => Ok(estimate),
        // All zero for an answer that says something: nobody counted.
        RawUsage::Counted { prompt: 0, completion: 0, total: Some(0) | None } => Ok(estimate),
        RawUsage::Counted { prompt, completion, total } => {
            let counted = Usage { prompt, completion, estimated: false };
            match total {
                Some(total) if Some(total) != prompt.checked_add(completion) => {
                    let most = total.max(counted.total()).max(estimate.total());
                    Err(Usage { prompt, completion: most.saturating_sub(prompt), estimated: true })
                }
                Some(_) | None => Ok(counted),
            }
        }
        RawUsage::Garbage => Err(estimate),
    }
}

fn calls(raw: Vec<RawCall>) -> Option<Vec<ToolCall>> {
    if raw.len() > MAX_CALLS {
        return None;
    }
    let mut calls: Vec<ToolCall> = Vec::with_capacity(raw.len());
    for RawCall { id, name, arguments } in raw {
        let id = id.filter(|id| (1..=MAX_ID).contains(&id.len()))?;
        let name = name.filter(|name| (1..=MAX_NAME).contains(&name.len()))?;
        let arguments = object(arguments?)?;
        if calls.iter().any(|call| call.id == id) {
            return None;
        }
        calls.push(ToolCall { id, name, arguments });
    }
    Some(calls)
}

/// The text itself when it is a bounded JSON object without duplicate keys; nothing at all is the empty object.
fn object(text: String) -> Option<String> {
    if text.trim().is_empty() {
        return Some("{}".to_owned());
    }
    match canon::parse_untrusted(text.as_bytes()) {
        Ok(value) if value.is_object() => Some(text),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Raw, RawCall, RawFinish, RawUsage, finalize};
    use crate::turn::{Answer, Failure, Finish, Kind, ToolCall, Usage};

    const ESTIMATE: Usage = Usage { prompt: 40, completion: 10, estimated: true };
    const COUNTED: RawUsage = RawUsage::Counted { prompt: 7, completion: 3, total: Some(10) };
    const PAID: Usage = Usage { prompt: 7, completion: 3, estimated: false };

    fn call(id: &str, name: &str, arguments: &str) -> RawCall {
        RawCall { id: Some(id.into()), name: Some(name.into()), arguments: Some(arguments.into()) }
    }

    fn raw(finish: RawFinish, calls: Vec<RawCall>) -> Raw {
        Raw {
            model: "m".into(),
            request_id: Some("req_1".into()),
            finish,
            text: "hi".into(),
            calls,
            usage: COUNTED,
        }
    }

    fn refused(kind: Kind, usage: Usage) -> Result<Answer, Failure> {
        Err(Failure { request_id: Some("req_1".into()), ..Failure::new(kind).billed(usage) })
    }

    fn same(left: &Result<Answer, Failure>, right: &Result<Answer, Failure>) -> bool {
        left == right
    }

    #[test]
    fn finish_and_calls_must_agree() {
        let one = || vec![call("a", "read_file", "{}")];
        let invalid = || refused(Kind::InvalidResponse, PAID);
        for (finish, calls, expected) in [
            (RawFinish::Stop, one(), invalid()),
            (RawFinish::ToolCalls, vec![], invalid()),
            (RawFinish::Missing, vec![], invalid()),
            (RawFinish::Unknown, vec![], invalid()),
            (RawFinish::FunctionCall, vec![], refused(Kind::UnsupportedResponse, PAID)),
            (RawFinish::ContentFilter, vec![], refused(Kind::ContentFiltered, PAID)),
        ] {
            assert!(same(&finalize(raw(finish, calls), ESTIMATE), &expected), "{finish:?}");
        }
    }

    #[test]
    fn a_sound_answer_keeps_the_text_of_its_arguments() {
        let arguments = "{ \"ratio\": 1.50, \"n\": 9007199254740993 }";
        let calls = vec![call("a", "x", arguments), call("b", "multi_tool_use.parallel", " \n")];
        let answer = finalize(raw(RawFinish::ToolCalls, calls), ESTIMATE);
        let expected = Answer {
            model: "m".into(),
            request_id: Some("req_1".into()),
            finish: Finish::ToolCalls,
            text: "hi".into(),
            calls: vec![
                ToolCall { id: "a".into(), name: "x".into(), arguments: arguments.into() },
                ToolCall {
                    id: "b".into(),
                    name: "multi_tool_use.parallel".into(),
                    arguments: "{}".into(),
                },
            ],
            usage: PAID,
        };
        assert!(same(&answer, &Ok(expected)));
    }

    #[test]
    fn a_cut_turn_exposes_no_call() {
        let answer =
            finalize(raw(RawFinish::Length, vec![call("a", "x", "{\"a\":")]), ESTIMATE).ok();
        assert!(answer.is_some_and(|it| it.finish == Finish::Length && it.calls.is_empty()));
    }

    #[test]
    fn a_call_that_is_not_sound_spoils_the_answer() {
        let deep = format!("{}1{}", "{\"a\":".repeat(300), "}".repeat(300));
        for (name, calls) in [
            ("one id for two", vec![call("a", "x", "{}"), call("a", "y", "{}")]),
            ("an empty id", vec![call("", "x", "{}")]),
            ("no id", vec![RawCall { id: None, ..call("", "x", "{}") }]),
            ("no name", vec![RawCall { name: None, ..call("a", "x", "{}") }]),
            ("an empty name", vec![call("a", "", "{}")]),
            ("no arguments", vec![RawCall { arguments: None, ..call("a", "x", "") }]),
            ("a list", vec![call("a", "x", "[]")]),
            ("a string", vec![call("a", "x", "\"{}\"")]),
            ("cut text", vec![call("a", "x", "{\"a\":")]),
            ("two objects", vec![call("a", "x", "{}{\"a\":1}")]),
            ("one key twice", vec![call("a", "x", "{\"a\":1,\"a\":2}")]),
            ("too deep", vec![call("a", "x", &deep)]),
            ("a long id", vec![call(&"a".repeat(129), "x", "{}")]),
            ("too many", (0..129).map(|n| call(&n.to_string(), "x", "{}")).collect()),
        ] {
            let answer = finalize(raw(RawFinish::ToolCalls, calls), ESTIMATE);
            assert!(same(&answer, &refused(Kind::InvalidResponse, PAID)), "{name}");
        }
    }

    #[test]
    fn usage_is_the_providers_count_or_an_upper_bound_and_never_a_wrong_sum() {
        let with = |usage| {
            let answer = finalize(Raw { usage, ..raw(RawFinish::Stop, vec![]) }, ESTIMATE);
            answer.map(|answer| answer.usage).map_err(|failure| failure.usage)
        };
        let counted = |prompt, completion, total| RawUsage::Counted { prompt, completion, total };
        assert_eq!(with(COUNTED), Ok(PAID));
        assert_eq!(with(counted(7, 3, None)), Ok(PAID));
        assert_eq!(with(RawUsage::Missing), Ok(ESTIMATE));
        assert_eq!(with(counted(0, 0, Some(0))), Ok(ESTIMATE));
        assert_eq!(with(RawUsage::Garbage), Err(Some(ESTIMATE)));
        let highest = Usage { prompt: 7, completion: 43, estimated: true };
        assert_eq!(with(counted(7, 3, Some(9))), Err(Some(highest)));
        let highest = Usage { prompt: 7, completion: 993, estimated: true };
        assert_eq!(with(counted(7, 3, Some(1_000))), Err(Some(highest)));
    }
}
