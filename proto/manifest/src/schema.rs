//! The manifest itself: which keys it may have, what they must hold, and what it then says.

use std::collections::BTreeMap;
use std::time::Duration;

use event::{Digest, Effect};

use crate::execution::{Execution, optional};
use crate::fault::Faults;
use crate::fields::{Field, Reader, nearest};
use crate::glob;
use crate::policy::{Action, Policy, Rule};
use crate::tree::{self, Place, Value};

const MAX_BYTES: usize = 256 * 1024;
const MAX_PATTERN: usize = 1_024;
const MAX_MODELS: usize = 128;
const MAX_MODEL_BYTES: usize = 256;
/// Names that are kept for later: a manifest may have rules for them, and no tool uses them.
const RESERVED: [&str; 4] = ["git.push", "git.branch", "git.diff", "workspace.path_scope"];
const KEYS: [&str; 11] = [
    "id",
    "title",
    "goal",
    "acceptance",
    "allowed_paths",
    "permissions",
    "budget",
    "delivery",
    "execution",
    "interaction",
    "models",
];
const EFFECTS: [(&str, Effect); 3] =
    [("allow", Effect::Allow), ("ask", Effect::Ask), ("deny", Effect::Deny)];

/// A reviewed task file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Kebab case.
    pub id: String,
    pub title: String,
    pub goal: String,
    pub acceptance: Vec<String>,
    /// What the task may modify.
    pub allowed_paths: Vec<String>,
    pub budget: Budget,
    pub delivery: Delivery,
    pub policy: Policy,
    pub execution: Execution,
    pub interaction: Interaction,
    /// The models a session may use; empty leaves it to the grant.
    pub models: Vec<String>,
    /// SHA-256 of the file's bytes.
    pub digest: Digest,
}

/// Absent members do not limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub max_model_tokens: Option<u64>,
    pub max_tool_calls: Option<u64>,
    pub max_steps: Option<u64>,
    pub max_wall_time: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    PullRequest,
    Merge,
    Artifact,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interaction {
    pub on_disconnect: Option<OnDisconnect>,
    pub permission_timeout: Option<Duration>,
}

/// What happens to open asks when the last client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDisconnect {
    Deny,
    Hold,
}

impl Manifest {
    /// Strict; `file` is only named in faults.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, Faults> {
        let mut reader = Reader::new(file);
        let manifest = match text(bytes) {
            Ok(text) => match tree::parse(text) {
                Ok(tree) => read(&mut reader, &tree, Digest::of(bytes)),
                Err(tree::NotYaml { place, what }) => {
                    reader.fault(place, what);
                    None
                }
            },
            Err((place, what)) => {
                reader.fault(place, what);
                None
            }
        };
        reader.finish(manifest)
    }

    /// Whether the task may modify this workspace-relative path.
    pub fn may_modify(&self, path: &str) -> bool {
        is_relative(path)
            && self.allowed_paths.iter().any(|pattern| {
                glob::matches(pattern, path)
                    || (pattern.ends_with('/') && path.starts_with(pattern))
            })
    }
}

fn text(bytes: &[u8]) -> Result<&str, (Place, String)> {
    if bytes.len() > MAX_BYTES {
        return Err((Place::START, format!("larger than {MAX_BYTES} bytes; shorten it")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        let place = Place { line: line as u64 + 1, column: 1 };
        (place, "not UTF-8; save the file as UTF-8".to_owned())
    })?;
    if text.starts_with('\u{feff}') {
        let what = "starts with a byte order mark; save the file without it";
        return Err((Place::START, what.to_owned()));
    }
    if text.trim().is_empty() {
        return Err((
            Place::START,
            "empty; write id, title, goal, acceptance, allowed_paths and permissions".to_owned(),
        ));
    }
    Ok(text)
}

fn read(reader: &mut Reader<'_>, tree: &tree::Node, digest: Digest) -> Option<Manifest> {
    let table = reader.table("", tree, &KEYS)?;
    let id = reader.required(&table, "id").and_then(|field| id(reader, &field));
    let title = reader.required(&table, "title").and_then(|field| reader.text(&field));
    let goal = reader.required(&table, "goal").and_then(|field| reader.text(&field));
    let acceptance =
        reader.required(&table, "acceptance").and_then(|field| reader.some_texts(&field));
    let allowed_paths =
        reader.required(&table, "allowed_paths").and_then(|field| allowed_paths(reader, &field));
    let policy = reader.required(&table, "permissions").and_then(|field| policy(reader, &field));
    let budget = optional(&table, "budget", Budget::default(), |field| budget(reader, field));
    let delivery =
        optional(&table, "delivery", Delivery::PullRequest, |field| delivery(reader, field));
    let execution =
        optional(&table, "execution", Execution::none(), |field| Execution::read(reader, field));
    let interaction =
        optional(&table, "interaction", Interaction::default(), |field| interaction(reader, field));
    let models = optional(&table, "models", Vec::new(), |field| models(reader, field));
    Some(Manifest {
        id: id?,
        title: title?,
        goal: goal?,
        acceptance: acceptance?,
        allowed_paths: allowed_paths?,
        budget: budget?,
        delivery: delivery?,
        policy: policy?,
        execution: execution?,
        interaction: interaction?,
        models: models?,
        digest,
    })
}

fn id(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let kebab = text.len() <= 128
        && text.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        });
    if !kebab {
        reader.fault(
            field.node.place,
            format!("{} must be words of a-z and 0-9 joined by single hyphens", field.path),
        );
        return None;
    }
    Some(text)
}

fn allowed_paths(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let paths = reader.some_texts(field)?;
    let items = reader.items(field)?;
    for (item, path) in items.iter().zip(&paths) {
        // A trailing slash means the directory.
        if !is_relative(path.strip_suffix('/').unwrap_or(path))
            || path.chars().count() > MAX_PATTERN
        {
            reader.fault(
                item.node.place,
                format!(
                    "{} must be a path or pattern inside the workspace, without . or .. or \\",
                    item.path
                ),
            );
        }
    }
    Some(paths)
}

/// Workspace-relative, with no segment that could lead elsewhere.
fn is_relative(path: &str) -> bool {
    !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

fn policy(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Policy> {
    let entries = reader.map(&field.path, field.node)?;
    let mut rules = BTreeMap::new();
    for entry in entries {
        let name = Field { path: format!("{}.{}", field.path, entry.key), node: &entry.value };
        let rule = rule(reader, &name);
        match Action::ALL.into_iter().find(|action| action.as_str() == entry.key) {
            Some(action) => {
                if let Some(rule) = rule {
                    rules.insert(action, rule);
                }
            }
            None if RESERVED.contains(&entry.key.as_str()) => {}
            None => {
                let known: Vec<_> =
                    Action::ALL.into_iter().map(Action::as_str).chain(RESERVED).collect();
                let advice = match nearest(&entry.key, &known) {
                    Some(name) => format!("did you mean {name}?"),
                    None => format!("known actions: {}", known.join(", ")),
                };
                reader.fault(entry.place, format!("unknown action {}; {advice}", entry.key));
            }
        }
    }
    Some(Policy::new(rules))
}

fn rule(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Rule> {
    let Value::Map(entries) = &field.node.value else {
        return reader.one_of(field, &EFFECTS).map(Rule::Flat);
    };
    let mut patterns = Vec::new();
    for entry in entries {
        let name = Field { path: format!("{}[{}]", field.path, entry.key), node: &entry.value };
        let fits = !entry.key.is_empty()
            && entry.key.chars().count() <= MAX_PATTERN
            && !entry.key.chars().any(char::is_control);
        if !fits {
            reader.fault(
                entry.place,
                format!("{} is no pattern; use 1 to {MAX_PATTERN} printable characters", name.path),
            );
        }
        if let Some(effect) = reader.one_of(&name, &EFFECTS) {
            patterns.push((entry.key.clone(), effect));
        }
    }
    if entries.is_empty() {
        reader.fault(
            field.node.place,
            format!("{} has no pattern; write allow, ask or deny, or add patterns", field.path),
        );
        return None;
    }
    Some(Rule::patterns(patterns))
}

fn budget(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Budget> {
    let known = ["max_model_tokens", "max_tool_calls", "max_steps", "max_wall_time"];
    let table = reader.table(&field.path, field.node, &known)?;
    let mut number = |key| optional(&table, key, None, |field| reader.positive(field).map(Some));
    let max_model_tokens = number("max_model_tokens");
    let max_tool_calls = number("max_tool_calls");
    let max_steps = number("max_steps");
    let max_wall_time =
        optional(&table, "max_wall_time", None, |field| reader.duration(field).map(Some));
    Some(Budget {
        max_model_tokens: max_model_tokens?,
        max_tool_calls: max_tool_calls?,
        max_steps: max_steps?,
        max_wall_time: max_wall_time?,
    })
}

fn delivery(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Delivery> {
    let table = reader.table(&field.path, field.node, &["type"])?;
    let kinds = [
        ("pull_request", Delivery::PullRequest),
        ("merge", Delivery::Merge),
        ("artifact", Delivery::Artifact),
        ("none", Delivery::None),
    ];
    optional(&table, "type", Delivery::PullRequest, |field| reader.one_of(field, &kinds))
}

fn interaction(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Interaction> {
    let table = reader.table(&field.path, field.node, &["on_disconnect", "permission_timeout"])?;
    let kinds = [("deny", OnDisconnect::Deny), ("hold", OnDisconnect::Hold)];
    let on_disconnect =
        optional(&table, "on_disconnect", None, |field| reader.one_of(field, &kinds).map(Some));
    let permission_timeout =
        optional(&table, "permission_timeout", None, |field| reader.duration(field).map(Some));
    Some(Interaction { on_disconnect: on_disconnect?, permission_timeout: permission_timeout? })
}

fn models(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Vec<String>> {
    let models = reader.some_texts(field)?;
    let items = reader.items(field)?;
    for (index, (item, model)) in items.iter().zip(&models).enumerate() {
        if model.len() > MAX_MODEL_BYTES {
            reader.fault(
                item.node.place,
                format!("{} is longer than {MAX_MODEL_BYTES} bytes", item.path),
            );
        }
        if models[..index].contains(model) {
            reader.fault(item.node.place, format!("{} is listed twice; remove one", item.path));
        }
    }
    if models.len() > MAX_MODELS {
        reader.fault(field.node.place, format!("{} lists more than {MAX_MODELS}", field.path));
    }
    Some(models)
}
