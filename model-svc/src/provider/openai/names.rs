//! Tool names as this dialect takes them: letters, digits, `_` and `-` only. Ours also have dots, so they are written with
//! `_` and read back by table, never by guess.

use std::collections::HashMap;

use crate::turn::{Answer, ToolCall, Turn};

/// From the provider's spelling to ours.
pub(super) struct Names(HashMap<String, String>);

impl Names {
    /// `None` when two of the turn's tools would share a spelling.
    pub(super) fn new(turn: &Turn) -> Option<Self> {
        let mut ours = HashMap::new();
        for tool in &turn.tools {
            if ours.insert(Self::wire(&tool.name), tool.name.clone()).is_some() {
                return None;
            }
        }
        Some(Self(ours))
    }

    pub(super) fn wire(name: &str) -> String {
        let taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        name.chars().map(|c| if taken(c) { c } else { '_' }).collect()
    }

    /// A name that was not offered stays as it came: the kernel answers it and never runs it.
    pub(super) fn restore(&self, answer: Answer) -> Answer {
        let calls = answer.calls.into_iter().map(|call| ToolCall {
            name: self.0.get(&call.name).cloned().unwrap_or(call.name),
            ..call
        });
        Answer { calls: calls.collect(), ..answer }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_name_has_only_what_this_dialect_takes() {
        assert_eq!(Names::wire("process.exec"), "process_exec");
        assert_eq!(Names::wire("read_file-2"), "read_file-2");
        assert_eq!(Names::wire("ä b"), "__b");
    }
}
