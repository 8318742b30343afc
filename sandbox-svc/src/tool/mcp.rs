//! The tools that concern tool servers of the manifest: their names, texts and arguments. It parses; it decides nothing.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Texts, decode, invalid};
use crate::refusal::Refusal;

/// Of a call's own arguments, so that its plan can show them in full.
const ARGUMENTS_BYTES: usize = 128 * 1024;
const NAME_BYTES: usize = 128;
const NAMES: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    List,
    Call,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    List {
        server: String,
        /// These only, or all.
        names: Vec<String>,
    },
    Call {
        server: String,
        tool: String,
        arguments: Map<String, Value>,
    },
}

impl Tool {
    pub(super) const ALL: &[Self] = &[Self::List, Self::Call];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::List => "mcp_tools",
            Self::Call => "mcp_call",
        }
    }

    pub(super) fn texts(self) -> Texts {
        match self {
            Self::List => Texts {
                description: "Start a tool server of this task in a container over the private copy, unless it runs already, and list the tools that it offers. Names give only these tools. What a server says of its tools is its own word.",
                schema: r#"{"additionalProperties":false,"properties":{"names":{"items":{"maxLength":128,"minLength":1,"type":"string"},"maxItems":50,"type":"array"},"server":{"maxLength":128,"minLength":1,"type":"string"}},"required":["server"],"type":"object"}"#,
            },
            Self::Call => Texts {
                description: "Call a tool of a server that mcp_tools has listed. It may change the private copy whatever the server says of it, and the answer is nobody's word but the server's. Between calls a server stands still.",
                schema: r#"{"additionalProperties":false,"properties":{"arguments":{"description":"as the tool's own schema has it","type":"object"},"server":{"maxLength":128,"minLength":1,"type":"string"},"tool":{"maxLength":128,"minLength":1,"type":"string"}},"required":["server","tool"],"type":"object"}"#,
            },
        }
    }

    pub(super) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::List => {
                let List { server, names } = decode(bytes)?;
                if names.len() > NAMES {
                    return Err(invalid(format!("there may be {NAMES} names")));
                }
                [&server].into_iter().chain(&names).try_for_each(|name| named(name))?;
                Ok(Arguments::List { server, names })
            }
            Self::Call => {
                let Call { server, tool, arguments } = decode(bytes)?;
                [&server, &tool].into_iter().try_for_each(|name| named(name))?;
                if Value::Object(arguments.clone()).to_string().len() > ARGUMENTS_BYTES {
                    return Err(invalid(format!("arguments may have {ARGUMENTS_BYTES} bytes")));
                }
                Ok(Arguments::Call { server, tool, arguments })
            }
        }
    }
}

/// Whether a call of this tool concerns a tool server.
pub(crate) fn is_one(name: &str) -> bool {
    Tool::ALL.iter().any(|tool| tool.as_str() == name)
}

fn named(name: &str) -> Result<(), Refusal> {
    match name.len() {
        1..=NAME_BYTES => Ok(()),
        _ => Err(invalid(format!("a name must have 1 to {NAME_BYTES} bytes"))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    server: String,
    #[serde(default)]
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    server: String,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::{ARGUMENTS_BYTES, Arguments, NAMES, Tool};
    use crate::refusal::Reason;

    fn reason(tool: Tool, arguments: &serde_json::Value) -> Result<Arguments, Reason> {
        tool.arguments(arguments.to_string().as_bytes()).map_err(|refused| refused.reason)
    }

    #[test]
    fn a_call_names_server_and_tool_and_nothing_that_vouches_for_it() {
        let arguments = json!({ "server": "s", "tool": "t", "arguments": {"a": [1, "b"]} });
        let (server, tool) = ("s".to_owned(), "t".to_owned());
        let given = Map::from_iter([("a".to_owned(), json!([1, "b"]))]);
        let whole = Arguments::Call { server, tool, arguments: given };
        assert_eq!(reason(Tool::Call, &arguments), Ok(whole));
        let (server, names) = ("s".to_owned(), vec!["t".to_owned()]);
        let whole = Arguments::List { server, names };
        assert_eq!(reason(Tool::List, &json!({ "server": "s", "names": ["t"] })), Ok(whole));

        let most = "x".repeat(ARGUMENTS_BYTES);
        for refused in [
            json!({}),
            json!({ "server": "s" }),
            json!({ "server": "s", "tool": "" }),
            json!({ "server": "s", "tool": "t".repeat(129) }),
            json!({ "server": "s", "tool": "t", "arguments": [] }),
            json!({ "server": "s", "tool": "t", "arguments": { "a": most } }),
            json!({ "server": "s", "tool": "t", "risk": "low" }),
            json!({ "server": "s", "tool": "t", "readOnlyHint": true }),
        ] {
            assert_eq!(reason(Tool::Call, &refused), Err(Reason::ArgumentsInvalid), "{refused}");
        }
        for refused in [
            json!({ "server": "" }),
            json!({ "server": "s", "names": [""] }),
            json!({ "server": "s", "names": vec!["a"; NAMES + 1] }),
            json!({ "server": "s", "command": ["sh"] }),
        ] {
            assert_eq!(reason(Tool::List, &refused), Err(Reason::ArgumentsInvalid), "{refused}");
        }
    }
}
