//! What every request must hold before a provider sees it, whichever provider: bounded, and each tool call answered exactly
//! once and in order.

use crate::turn::{Failure, Kind, Message, Turn};

const MAX_MESSAGES: usize = 4_096;
const MAX_TOOLS: usize = 128;
pub(crate) const MAX_CALLS: usize = 128;
pub(crate) const MAX_ID: usize = 128;
const MAX_NAME: usize = 64;

pub(crate) fn check(turn: &Turn) -> Result<(), Failure> {
    let sound = (1..=MAX_MESSAGES).contains(&turn.messages.len())
        && turn.tools.len() <= MAX_TOOLS
        && tools_are_sound(turn)
        && calls_are_answered(&turn.messages);
    if sound { Ok(()) } else { Err(Failure::new(Kind::InvalidRequest)) }
}

fn tools_are_sound(turn: &Turn) -> bool {
    turn.tools.iter().enumerate().all(|(index, tool)| {
        (1..=MAX_NAME).contains(&tool.name.len())
            && tool.input_schema.is_object()
            && turn.tools[..index].iter().all(|other| other.name != tool.name)
    })
}

fn calls_are_answered(messages: &[Message]) -> bool {
    let mut messages = messages.iter();
    while let Some(message) = messages.next() {
        match message {
            Message::System(_) | Message::User(_) => {}
            Message::Tool { .. } => return false,
            Message::Assistant { calls, .. } => {
                let unique = calls.iter().enumerate().all(|(index, call)| {
                    (1..=MAX_ID).contains(&call.id.len())
                        && calls[..index].iter().all(|other| other.id != call.id)
                });
                let answered = calls.iter().all(|call| {
                    matches!(messages.next(), Some(Message::Tool { id, .. }) if *id == call.id)
                });
                if calls.len() > MAX_CALLS || !unique || !answered {
                    return false;
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::calls_are_answered;
    use crate::turn::{Message, ToolCall};

    fn user() -> Message {
        Message::User("go".into())
    }

    fn assistant(ids: &[&str]) -> Message {
        let call = |id: &&str| ToolCall {
            id: (*id).into(),
            name: "read_file".into(),
            arguments: "{}".into(),
        };
        Message::Assistant { text: String::new(), calls: ids.iter().map(call).collect() }
    }

    fn reply(id: &str) -> Message {
        Message::Tool { id: id.into(), content: "done".into() }
    }

    #[test]
    fn each_call_is_answered_once_in_order_and_at_once() {
        for (name, messages, expected) in [
            ("no calls", vec![user(), assistant(&[]), user()], true),
            ("all answered", vec![user(), assistant(&["a", "b"]), reply("a"), reply("b")], true),
            ("two turns", vec![assistant(&["a"]), reply("a"), assistant(&["a"]), reply("a")], true),
            ("unanswered", vec![assistant(&["a"])], false),
            ("one unanswered", vec![assistant(&["a", "b"]), reply("a"), user()], false),
            ("out of order", vec![assistant(&["a", "b"]), reply("b"), reply("a")], false),
            ("twice", vec![assistant(&["a"]), reply("a"), reply("a")], false),
            ("late", vec![assistant(&["a"]), user(), reply("a")], false),
            ("of nobody", vec![user(), reply("a")], false),
            ("one id for two", vec![assistant(&["a", "a"]), reply("a"), reply("a")], false),
            ("no id", vec![assistant(&[""]), reply("")], false),
        ] {
            assert_eq!(calls_are_answered(&messages), expected, "{name}");
        }
    }
}
