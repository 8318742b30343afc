//! An ask as a person reads it: the whole plan, every argument with its size, then what matters most, next to the
//! question. Nothing is hidden and nothing is cut.
use std::{cmp::Reverse, fmt::Write as _};

use event::{Effect, Layer, Matched, Scope};
use receipt::{
    Diff, EditOperation, FileState, Mount, MountMode, Network, Part, PatchEntry, PatchOp, PathText,
    Plan, Policy, Stdin, ToolCall, ToolServer,
};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;

use super::Ask;
use crate::escape;

/// The built-in rule of paths that tools run or obey on their own.
const PROTECTED: &str = "protected_paths";

pub(super) fn of(ask: &Ask) -> String {
    let Ask { permission_id, action, plan_digest, expires_at, plan: value, .. } = ask;
    let plan = ask.plan();
    // The plan's own subject: it is what the digest is about.
    let subject = plan.as_ref().and_then(|plan| plan.subject.as_ref()).map(told);
    let who = ask.child.as_ref().map_or_else(
        || "The run".to_owned(),
        |child| format!("A child of the run, {} {},", escape::line(&child.profile), child.run),
    );
    let mut out = format!("{who} asks for {}", escape::line(action));
    if let Some(subject) = subject {
        out.push_str(&format!(": {subject}"));
    }
    let json = escape::json(value);
    let (bytes, lines) = (value.to_string().len(), json.lines().count());
    let until = expires_at.format(&Rfc3339).unwrap_or_else(|_| expires_at.to_string());
    out.push_str(&format!(
        "\npermission {permission_id}, open until {until}\nplan {plan_digest}, {bytes} bytes, in full ({lines} lines):\n{json}"
    ));
    if let Some(argv) = value.get("argv") {
        section(&mut out, "arguments:", arguments(argv));
    }
    if let Some(Value::String(task)) = value.get("task") {
        let task = format!("{}: {}", escape::extent(task), escape::line(task));
        section(&mut out, "what the child is told to do:", vec![task]);
    }
    let mut hidden = Vec::new();
    unseen(value, &mut String::new(), &mut hidden);
    section(&mut out, "characters that would not be seen, in:", hidden);
    if let Some(plan) = &plan {
        let several = plan.steps.len();
        for (index, step) in plan.steps.iter().enumerate() {
            let title = format!("command {} of {several}, arguments:", index + 1);
            section(&mut out, &title, words(step.argv.iter().map(String::as_str)));
        }
        let check = plan.check.iter().map(|name| escape::line(name));
        section(&mut out, "the check of the manifest that this is:", check.collect());
        section(&mut out, "what the program reads, which is not shown:", input(plan));
        section(&mut out, "what the tool server is called for:", called(plan));
        section(&mut out, "what the server says of its tool, which decides nothing:", claims(plan));
        section(&mut out, "what would be written to the private copy:", written(plan));
        section(&mut out, "how it would differ:", difference(plan));
        section(&mut out, "what is taken back:", undoes(plan));
        section(&mut out, "rules:", rules(plan));
        section(
            &mut out,
            "network, by name, and what goes out cannot be taken back:",
            network(plan),
        );
        section(&mut out, "policy files:", policies(plan));
        section(&mut out, "directories of the host:", mounts(plan));
        section(
            &mut out,
            "protected paths, which tools run or obey on their own:",
            protected(plan),
        );
        let needs = ask.needs().into_iter().map(|sentence| format!("the yes of {sentence}"));
        section(&mut out, "needed:", needs.collect());
        section(&mut out, "what a yes covers:", scopes(plan));
    }
    let why = ask.reason.as_deref().map(escape::line);
    section(&mut out, "why it is asked:", why.into_iter().collect());
    out
}

fn section(out: &mut String, title: &str, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    out.push('\n');
    out.push_str(title);
    for line in lines {
        out.push_str("\n  ");
        out.push_str(&line);
    }
}

fn arguments(argv: &Value) -> Vec<String> {
    words(argv.as_array().into_iter().flatten().filter_map(Value::as_str))
}

/// Every word with its size.
fn words<'a>(argv: impl Iterator<Item = &'a str>) -> Vec<String> {
    let shown =
        |(index, word)| format!("[{index}] {}: {}", escape::extent(word), escape::line(word));
    argv.enumerate().map(shown).collect()
}

fn input(plan: &Plan) -> Vec<String> {
    let line = |stdin: &Stdin| format!("{} bytes, {}", stdin.bytes, stdin.digest);
    plan.stdin.iter().map(line).collect()
}

/// The tool, then every argument with its size.
fn called(plan: &Plan) -> Vec<String> {
    let Some(ToolServer { server, call }) = &plan.mcp else { return Vec::new() };
    let Some(ToolCall { tool, definition, arguments, .. }) = call else {
        return vec![format!("{} is started, and lists its tools", escape::line(server))];
    };
    let tool =
        format!("{} of {}, as defined by {definition}", escape::line(tool), escape::line(server));
    let argument = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}: {}: {}", escape::line(name), escape::extent(&text), escape::line(&text))
    };
    [tool].into_iter().chain(arguments.iter().map(argument)).collect()
}

/// Line by line, so that no line of a server passes for one of ours.
fn claims(plan: &Plan) -> Vec<String> {
    let call = plan.mcp.as_ref().and_then(|server| server.call.as_ref());
    let Some(ToolCall { description, hints, .. }) = call else { return Vec::new() };
    let lines = description.iter().flat_map(|text| text.split_terminator('\n'));
    let lines = lines.map(|line| format!("| {}", escape::line(line)));
    let hints = hints.iter().map(|(hint, value)| format!("| {}: {value}", escape::line(hint)));
    lines.chain(hints).collect()
}

/// A path or subject with its size; bytes that are no text in the plan's own form.
fn told(path: &PathText) -> String {
    let text = match path.as_str() {
        Some(text) => return format!("{} ({})", escape::line(text), escape::extent(text)),
        None => serde_json::to_string(path).unwrap_or_default(),
    };
    format!("{} (not text)", escape::line(&text))
}

/// Every string with a character that a terminal would hide, move or turn around; arguments and
/// the lines of a diff are listed anyway.
fn unseen(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    match value {
        Value::String(text)
            if !escape::is_plain(text) && !at.starts_with("argv[") && at != "edit.diff.text" =>
        {
            found.push(format!("{at}, {}: {}", escape::extent(text), escape::line(text)));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Writing to a String does not fail.
                let Ok(()) = write!(at, "[{index}]") else { return };
                unseen(item, at, found);
                at.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                at.push_str(if length == 0 { "" } else { "." });
                at.push_str(&escape::line(name));
                unseen(member, at, found);
                at.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether two parts are decided alike.
fn alike(one: &Part, other: &Part) -> bool {
    let ground = |part: &Part| Part { subject: None, ..part.clone() };
    ground(one) == ground(other)
}

/// Every rule that decides, strictest first, with what it decides about.
fn rules(plan: &Plan) -> Vec<String> {
    let mut groups: Vec<Vec<&Part>> = Vec::new();
    for part in &plan.parts {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| alike(first, part)))
        {
            Some(group) => group.push(part),
            None => groups.push(vec![part]),
        }
    }
    groups.sort_by_key(|group| group.first().map(|part| Reverse(part.effect)));
    let mut lines = Vec::new();
    for group in groups {
        let Some(Part { action, subject, effect, layer, rule, justification, matching }) =
            group.first()
        else {
            continue;
        };
        let about = match (group.len(), subject) {
            (1, Some(subject)) => format!(" {}", told(subject)),
            (1, None) => String::new(),
            (several, _) => format!(" {several} subjects"),
        };
        lines.push(format!(
            "{} {}{about}: {} of {}",
            effect.as_str(),
            escape::line(action),
            escape::line(rule),
            layer.as_str()
        ));
        if let Some(why) = justification {
            lines.push(format!("  because: {}", escape::line(why)));
        }
        for Matched { layer: of, rule: also, effect } in matching {
            if (of, also) != (layer, rule) {
                let (effect, of) = (effect.as_str(), of.as_str());
                lines.push(format!("  beside: {effect} by {} of {of}", escape::line(also)));
            }
        }
    }
    lines
}

/// Where the command may connect to, then what is taken out of that again.
fn network(plan: &Plan) -> Vec<String> {
    let Network::Broker { layers, private } = &plan.network else { return Vec::new() };
    let reached = plan.parts.iter().filter(|part| part.action == "network");
    let reached = reached.map(|part| {
        let hosts = part.subject.as_ref().map(told).unwrap_or_default();
        let public = part.subject.as_ref().and_then(PathText::as_str) == Some("*:443");
        let public = if public { ", every public host with TLS" } else { "" };
        format!("{} {hosts}{public}", part.effect.as_str())
    });
    let denied = layers.iter().flat_map(|layer| {
        let rules = layer.rules.iter().filter(|rule| rule.effect == Effect::Deny);
        layer.never.iter().chain(rules).map(move |rule| {
            format!("not {}, which {} denies", escape::line(&rule.hosts), layer.layer.as_str())
        })
    });
    let private =
        private.iter().map(|host| format!("{} may be inside this site", escape::line(host)));
    reached.chain(denied).chain(private).collect()
}

/// Every file of an edit with its states, and what of it never goes to the workspace.
fn written(plan: &Plan) -> Vec<String> {
    let Some(edit) = &plan.edit else { return Vec::new() };
    let state = |state: &Option<FileState>| match state {
        Some(FileState { mode, sha256, size }) => format!("{sha256}, {size} bytes, mode {mode}"),
        None => "nothing".to_owned(),
    };
    let entry = |PatchEntry { op, path, before, after }: &PatchEntry| {
        let op = match op {
            PatchOp::Create => "create",
            PatchOp::Update => "update",
            PatchOp::Delete => "delete",
        };
        format!("{op} {}: {} -> {}", told(path), state(before), state(after))
    };
    let operation = match &edit.operation {
        EditOperation::Apply => None,
        EditOperation::Move { source, destination } => {
            Some(format!("move {} to {}", told(source), told(destination)))
        }
        EditOperation::Quarantine { id } => Some(format!("keep as {}", escape::line(id))),
        EditOperation::Restore { id } => Some(format!("bring back {}", escape::line(id))),
    };
    let stays = edit.not_carried.iter().flat_map(|not_carried| &not_carried.entries);
    let stays = stays.map(|entry| {
        let (path, reason) = (told(&entry.path), escape::line(&entry.reason));
        format!("stays in the private copy: {path}, {reason}")
    });
    operation.into_iter().chain(edit.entries.iter().map(entry)).chain(stays).collect()
}

/// Line by line, so that no line of a file passes for one of ours.
fn difference(plan: &Plan) -> Vec<String> {
    let Some(edit) = &plan.edit else { return Vec::new() };
    let note = match &edit.diff {
        Diff::Whole { .. } => None,
        Diff::Cut { .. } => Some("(only the beginning is shown)".to_owned()),
        Diff::Withheld {} => Some("(it holds what may not be shown)".to_owned()),
    };
    let lines = edit.diff.text().unwrap_or_default().split_terminator('\n');
    lines.map(|line| format!("| {}", escape::line(line))).chain(note).collect()
}

fn policies(plan: &Plan) -> Vec<String> {
    if plan.policies.is_empty() {
        return Vec::new();
    }
    let above = plan.policies.iter();
    let above = above.map(|Policy { layer, digest }| format!("{} {digest}", layer.as_str()));
    above.chain([format!("manifest {}", plan.manifest)]).collect()
}

/// A writable one is changed at once: nothing of it waits for an import.
fn mounts(plan: &Plan) -> Vec<String> {
    let line = |mount: &Mount| {
        let Mount { source, target, mode } = mount;
        let (source, target) = (escape::line(source), escape::line(target));
        match mode {
            MountMode::Ro => format!("{source} for reading, at {target}"),
            MountMode::Rw => {
                format!("{source} of the workspace itself, written directly, at {target}")
            }
        }
    };
    plan.mounts.iter().map(line).collect()
}

fn undoes(plan: &Plan) -> Vec<String> {
    let of = plan.patch.as_ref().and_then(|patch| patch.undoes);
    of.map(|of| format!("what run {} imported, patch {}", of.run, of.patch)).into_iter().collect()
}

fn protected(plan: &Plan) -> Vec<String> {
    let decided = plan.parts.iter();
    let decided = decided.filter(|part| (part.layer, &*part.rule) == (Layer::System, PROTECTED));
    let decided = decided.filter_map(|part| part.subject.as_ref());
    let listed = plan.patch.iter().flat_map(|patch| &patch.protected);
    let edited = plan.edit.iter().flat_map(|edit| &edit.protected);
    let mut lines: Vec<String> = Vec::new();
    for line in decided.chain(listed).chain(edited).map(told) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn scopes(plan: &Plan) -> Vec<String> {
    let covers = |scope: &Scope| {
        match scope {
        Scope::Once => "once: this one call".to_owned(),
        Scope::Run => {
            "run: every later call of this run that is exactly this action (its subject, arguments, program, image, \
             limits and rules), whatever the private copy holds then, until the run ends or 'harness grants revoke'"
                .to_owned()
        }
    }
    };
    plan.scopes.iter().map(covers).collect()
}

#[cfg(test)]
mod tests;
