//! The tools a session offers, by family, and how their arguments are decoded. It parses; it decides nothing.

pub(crate) mod command;
pub(crate) mod cursor;
pub(crate) mod delegate;
pub(crate) mod edit;
pub(crate) mod mcp;
pub(crate) mod patch;
pub(crate) mod read;
pub(crate) mod search;
pub(crate) mod status;

use std::fmt;

use manifest::{Backend, Execution};
use proto::common::v1 as wire;
use serde::de::DeserializeOwned;

use crate::refusal::{Reason, Refusal};
use crate::tree::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Read(read::Tool),
    Search(search::Tool),
    Status(status::Tool),
    Edit(edit::Tool),
    Command(command::Tool),
    Mcp(mcp::Tool),
    Patch(patch::Tool),
    Delegate(delegate::Tool),
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    Read(read::Arguments),
    Search(search::Arguments),
    Status(status::Arguments),
    Edit(edit::Arguments),
    Command(command::Arguments),
    Mcp(mcp::Arguments),
    Patch(patch::Arguments),
    Delegate(delegate::Arguments),
}

/// A tool as a model sees it.
pub(crate) struct Texts {
    pub(crate) description: &'static str,
    /// Canonical JSON.
    pub(crate) schema: &'static str,
}

impl Tool {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read(tool) => tool.as_str(),
            Self::Search(tool) => tool.as_str(),
            Self::Status(tool) => tool.as_str(),
            Self::Edit(tool) => tool.as_str(),
            Self::Command(tool) => tool.as_str(),
            Self::Mcp(tool) => tool.as_str(),
            Self::Patch(tool) => tool.as_str(),
            Self::Delegate(tool) => tool.as_str(),
        }
    }

    /// The tools of a session; without a back end there is no command tool, and without servers none for these.
    pub(crate) fn offered(execution: &Execution) -> impl Iterator<Item = Self> {
        let commands = match execution.backend {
            Backend::None => &[],
            Backend::Oci => command::Tool::ALL,
        };
        let servers = if execution.servers.is_empty() { &[] } else { mcp::Tool::ALL };
        let read = read::Tool::ALL.iter().copied().map(Self::Read);
        let search = search::Tool::ALL.iter().copied().map(Self::Search);
        let status = status::Tool::ALL.iter().copied().map(Self::Status);
        let edit = edit::Tool::ALL.iter().copied().map(Self::Edit);
        let command = commands.iter().copied().map(Self::Command);
        let mcp = servers.iter().copied().map(Self::Mcp);
        let patch = patch::Tool::ALL.iter().copied().map(Self::Patch);
        let delegate = delegate::Tool::ALL.iter().copied().map(Self::Delegate);
        let known = read.chain(search).chain(status).chain(edit);
        known.chain(command).chain(mcp).chain(patch).chain(delegate)
    }

    pub(crate) fn parse(name: &str, execution: &Execution) -> Result<Self, Refusal> {
        let for_people = Self::Patch(patch::Tool::Undo);
        Self::offered(execution)
            .chain([for_people])
            .find(|tool| tool.as_str() == name)
            .ok_or_else(|| Reason::ToolUnknown.into())
    }

    /// As a model sees it, with the servers that the manifest names.
    pub(crate) fn to_wire(self, execution: &Execution) -> wire::Tool {
        let Texts { description, schema } = match self {
            Self::Read(tool) => tool.texts(),
            Self::Search(tool) => tool.texts(),
            Self::Status(tool) => tool.texts(),
            Self::Edit(tool) => tool.texts(),
            Self::Command(tool) => tool.texts(),
            Self::Mcp(tool) => tool.texts(),
            Self::Patch(tool) => tool.texts(),
            Self::Delegate(tool) => tool.texts(),
        };
        let mut description = description.to_owned();
        if let Self::Mcp(_) = self {
            let names: Vec<_> = execution.servers.keys().map(String::as_str).collect();
            description.push_str(&format!(" Servers of this task: {}.", names.join(", ")));
        }
        wire::Tool {
            name: self.as_str().to_owned(),
            description,
            input_schema: schema.as_bytes().to_vec(),
        }
    }

    pub(crate) fn arguments(self, bytes: &[u8]) -> Result<Arguments, Refusal> {
        match self {
            Self::Read(tool) => tool.arguments(bytes).map(Arguments::Read),
            Self::Search(tool) => tool.arguments(bytes).map(Arguments::Search),
            Self::Status(tool) => tool.arguments(bytes).map(Arguments::Status),
            Self::Edit(tool) => tool.arguments(bytes).map(Arguments::Edit),
            Self::Command(tool) => tool.arguments(bytes).map(Arguments::Command),
            Self::Mcp(tool) => tool.arguments(bytes).map(Arguments::Mcp),
            Self::Patch(tool) => tool.arguments(bytes).map(Arguments::Patch),
            Self::Delegate(tool) => tool.arguments(bytes).map(Arguments::Delegate),
        }
    }
}

/// Bounded and strict; what a model writes is anybody's text.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let value = event::canon::parse_untrusted(bytes)
        .map_err(|error| invalid(format!("the arguments are not acceptable JSON: {error}")))?;
    if !value.is_object() {
        return Err(invalid("the arguments are not an object"));
    }
    serde_json::from_value(value).map_err(|_| Reason::ArgumentsInvalid.into())
}

fn invalid(detail: impl fmt::Display) -> Refusal {
    Refusal::new(Reason::ArgumentsInvalid, detail)
}

fn place(text: &str) -> Result<RelPath, Refusal> {
    RelPath::parse_text(text).map_err(|error| Refusal::new(Reason::PathInvalid, error))
}

#[cfg(test)]
mod tests {
    use manifest::{Backend, Execution, Manifest};

    use super::Tool;
    use crate::refusal::Reason;

    fn execution(text: &str) -> Execution {
        let text = format!(
            "id: a\ntitle: a\ngoal: a\nacceptance: [a]\nallowed_paths: ['**']\npermissions: {{fs.read: allow}}\n{text}"
        );
        Manifest::parse(text.as_bytes(), "a.yaml").unwrap().execution
    }

    const COMMANDS: &str = "execution: {backend: oci, image: 'a:1', allow_commands: [a]}";
    const SERVERS: &str = "execution: {backend: oci, image: 'a:1', allow_commands: [a], servers: {notes: {command: [a], tools: [x]}, s: {command: [a], tools: [x]}}}";

    #[test]
    fn without_a_back_end_there_is_no_command_tool() {
        let names: Vec<_> = Tool::offered(&execution("")).map(Tool::as_str).collect();
        assert_eq!(
            names,
            [
                "list_files",
                "read_file",
                "read_files",
                "search_files",
                "search_many",
                "environment_status",
                "workspace_diff",
                "mutation_audit",
                "propose_edits",
                "apply_edits",
                "move_file",
                "quarantine_file",
                "restore_file",
                "inspect_patch",
                "import_patch",
                "delegate",
            ]
        );
        for name in ["process.exec", "run_batch", "run_check"] {
            let refused = Tool::parse(name, &execution("")).unwrap_err();
            assert_eq!(refused.reason, Reason::ToolUnknown);
            assert_eq!(Tool::parse(name, &execution(COMMANDS)).unwrap().as_str(), name);
        }
    }

    #[test]
    fn without_servers_there_is_no_tool_for_them_and_with_some_they_are_named() {
        for name in ["mcp_tools", "mcp_call"] {
            let refused = Tool::parse(name, &execution(COMMANDS)).unwrap_err();
            assert_eq!(refused.reason, Reason::ToolUnknown);
            let tool = Tool::parse(name, &execution(SERVERS)).unwrap();
            let wire = tool.to_wire(&execution(SERVERS));
            assert!(wire.description.ends_with(" Servers of this task: notes, s."), "{name}");
        }
    }

    #[test]
    fn every_schema_is_canonical_json() {
        let execution = execution(SERVERS);
        assert_eq!(execution.backend, Backend::Oci);
        for tool in Tool::offered(&execution) {
            let schema = tool.to_wire(&execution).input_schema;
            assert!(event::canon::is_canonical(&schema), "{}", tool.as_str());
        }
    }
}
