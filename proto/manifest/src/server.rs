//! Tool servers of a task: which command each is, and which of its tools a model may be offered. What a tool does
//! or says of itself is not known here and decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fields::{Field, Reader};

pub(crate) const MAX_SERVERS: usize = 20;
pub(crate) const MAX_TOOLS: usize = 200;
/// As the protocol has it, without what a shell or a pattern could read otherwise.
pub(crate) const TOOL_PATTERN: &str = "^[A-Za-z0-9_./-]{1,128}$";
pub(crate) const SERVER_PATTERN: &str = "^[a-z][a-z0-9-]{0,31}$";
pub(crate) const SERVER_KEYS: [&str; 4] = ["command", "tools", "timeout", "output"];
const MAX_NAME: usize = 32;
const MAX_TOOL_NAME: usize = 128;

/// One tool server, spoken to over its standard input and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Started like any command of the task.
    pub argv: Vec<String>,
    /// What of it is offered; nothing else is.
    pub tools: Vec<String>,
    /// Of one call; it only shortens `limits.time`.
    pub timeout: Option<Duration>,
    /// What the server may write during one call; it only lowers `limits.output`.
    pub output: Option<u64>,
}

impl Server {
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.iter().any(|offered| offered == tool)
    }
}

/// The subject of a call of `tool`: no two calls of different tools have the same.
pub fn tool_subject(server: &str, tool: &str) -> String {
    format!("{server}/{tool}")
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    allow_commands: Option<&[String]>,
) -> Option<BTreeMap<String, Server>> {
    let entries = reader.map(&field.path, field.node)?;
    if entries.len() > MAX_SERVERS {
        let what = format!("{} has more than {MAX_SERVERS} servers", field.path);
        reader.fault(field.node.place, what);
        return None;
    }
    let mut servers = Vec::new();
    for entry in entries {
        let path = format!("{}.{}", field.path, entry.key);
        if !is_server_name(&entry.key) {
            let what = format!(
                "{path} is no name of a server; use at most {MAX_NAME} of a-z 0-9 -, a letter first"
            );
            reader.fault(entry.place, what);
        }
        let server = server(reader, &Field { path, node: &entry.value }, allow_commands);
        servers.push(server.map(|server| (entry.key.clone(), server)));
    }
    servers.into_iter().collect()
}

fn server(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    allow_commands: Option<&[String]>,
) -> Option<Server> {
    let table = reader.table(&field.path, field.node, &SERVER_KEYS)?;
    let argv = reader.required(&table, "command").and_then(|field| {
        let argv = reader.some_texts(&field)?;
        let listed = allow_commands.is_none_or(|allowed| allowed.contains(&argv[0]));
        if !listed {
            let what = format!("{} runs {}; add it to allow_commands", field.path, argv[0]);
            reader.fault(field.node.place, what);
        }
        listed.then_some(argv)
    });
    let tools = reader.required(&table, "tools").and_then(|field| tools(reader, &field));
    let timeout = match table.get("timeout") {
        Some(field) => reader.duration(&field).map(Some),
        None => Some(None),
    };
    let output = match table.get("output") {
        Some(field) => reader.bytes(&field).map(Some),
        None => Some(None),
    };
    Some(Server { argv: argv?, tools: tools?, timeout: timeout?, output: output? })
}

fn tools(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let each = reader.each_text(field, false)?;
    if each.len() > MAX_TOOLS {
        reader.fault(field.node.place, format!("{} lists more than {MAX_TOOLS}", field.path));
        return None;
    }
    let mut tools: Vec<String> = Vec::new();
    let mut sound = true;
    for (item, text) in each {
        let Some(text) = text else {
            sound = false;
            continue;
        };
        let fault = if !is_tool_name(&text) {
            Some(format!(
                "{} is no name of a tool; use at most {MAX_TOOL_NAME} of A-Z a-z 0-9 _ . / -",
                item.path
            ))
        } else if tools.contains(&text) {
            Some(format!("{} is listed twice; remove one", item.path))
        } else {
            None
        };
        match fault {
            Some(what) => {
                reader.fault(item.node.place, what);
                sound = false;
            }
            None => tools.push(text),
        }
    }
    sound.then_some(tools)
}

fn is_server_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(plain)
}

fn is_tool_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
    (1..=MAX_TOOL_NAME).contains(&name.len()) && name.bytes().all(plain)
}
