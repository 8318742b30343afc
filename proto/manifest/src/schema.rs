//! The manifest itself: which keys it may have, what they must hold, and what it then says.

use std::time::Duration;

use event::Digest;

use crate::allowed;
use crate::ballot::Side;
use crate::decision::Layer;
use crate::evaluate::Evaluator;
use crate::execution::{Backend, Execution, Mode, optional};
use crate::fault::Faults;
use crate::fields::{Field, Reader};
use crate::place::At;
use crate::policy::Policy;
use crate::policy_test::{self, PolicyTest};
use crate::protected::Protected;
use crate::tree::Node;
use crate::{rules, source};

const REQUIRED: &str = "id, title, goal, acceptance, allowed_paths and permissions";
const MAX_MODELS: usize = 128;
const MAX_MODEL_BYTES: usize = 256;
pub(crate) const MANIFEST_KEYS: [&str; 14] = [
    "id",
    "title",
    "goal",
    "acceptance",
    "allowed_paths",
    "permissions",
    "hard_deny",
    "approvers",
    "tests",
    "budget",
    "delivery",
    "execution",
    "interaction",
    "models",
];
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
    /// Examples of the rules; they hold.
    pub tests: Vec<PolicyTest>,
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
    pub at: At,
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
        let mut reader = Reader::new(file, "the manifest");
        let manifest = source::tree(&mut reader, bytes, REQUIRED)
            .and_then(|tree| read(&mut reader, &tree, Digest::of(bytes)));
        // Examples of half a file say nothing.
        if let Some(manifest) = manifest.as_ref().filter(|_| reader.is_content()) {
            let protected = Protected::default();
            policy_test::run(&mut reader, &manifest.tests, &manifest.alone(&protected));
        }
        reader.finish(manifest)
    }

    /// Judged without ceilings.
    pub(crate) fn alone<'p>(&'p self, protected: &'p Protected) -> Evaluator<'p> {
        Evaluator {
            sides: vec![Side { layer: Layer::Manifest, policy: &self.policy }],
            manifest: Some(self),
            protected,
            digest: self.digest,
        }
    }

    /// Why no command of this program is started whatever the rules say, when that is so.
    pub(crate) fn refusal(&self, program: &str) -> Option<String> {
        if self.execution.backend == Backend::None {
            return Some("execution has no back end, so there is no command tool".to_owned());
        }
        let listed = self.execution.allow_commands.iter().any(|listed| listed == program);
        (!listed).then(|| format!("execution.allow_commands does not list {program}"))
    }

    /// Whether the task may modify this workspace-relative path.
    pub fn may_modify(&self, path: &str) -> bool {
        is_relative(path) && self.allowed_paths.iter().any(|pattern| allowed::covers(pattern, path))
    }
}

fn read(reader: &mut Reader<'_>, tree: &Node, digest: Digest) -> Option<Manifest> {
    let table = reader.table("", tree, &MANIFEST_KEYS)?;
    let id = reader.required(&table, "id").and_then(|field| rules::kebab(reader, &field));
    let title = reader.required(&table, "title").and_then(|field| reader.text(&field));
    let goal = reader.required(&table, "goal").and_then(|field| reader.text(&field));
    let acceptance =
        reader.required(&table, "acceptance").and_then(|field| reader.some_texts(&field));
    let permissions = reader.required(&table, "permissions");
    let policy = rules::policy(reader, &table).filter(|_| permissions.is_some());
    let tests = optional(&table, "tests", Vec::new(), |field| policy_test::read(reader, field));
    let budget = optional(&table, "budget", Budget::default(), |field| budget(reader, field));
    let delivery =
        optional(&table, "delivery", Delivery::PullRequest, |field| delivery(reader, field));
    let execution =
        optional(&table, "execution", Execution::none(), |field| Execution::read(reader, field));
    let mode = execution.as_ref().map_or(Mode::Snapshot, |execution| execution.mode);
    let allowed_paths = reader
        .required(&table, "allowed_paths")
        .and_then(|field| allowed::read(reader, &field, mode, false));
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
        tests: tests?,
        execution: execution?,
        interaction: interaction?,
        models: models?,
        digest,
    })
}

/// Workspace-relative, with no segment that could lead elsewhere.
fn is_relative(path: &str) -> bool {
    !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
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
    let at = field.node.place.into();
    Some(Interaction { on_disconnect: on_disconnect?, permission_timeout: permission_timeout?, at })
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
