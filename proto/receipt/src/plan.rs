//! What an executor is about to do, in full: a person approves exactly these bytes. A plan never acts,
//! and only the executor that will act makes one.

use std::collections::BTreeSet;

use event::id::{CallId, RunId, SessionId};
use event::{Digest, Effect, EffectClass, Executor, Layer, Matched, MountMode, Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Malformed};
use crate::edit::Edit;
use crate::mcp::ToolServer;
use crate::path_text::PathText;
use crate::requirement::Requirement;

const MAX_BYTES: usize = 512 * 1024;
const MAX_NODES: usize = 8_000;
const PLAN_DOMAIN: &str = "harness.plan.v1";
const ACTION_DOMAIN: &str = "harness.action.v1";
/// What two plans of the same action may differ in.
const NOT_OF_THE_ACTION: [&str; 3] = ["run", "call", "snapshot"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub v: Version,
    pub session: SessionId,
    pub run: RunId,
    pub call: CallId,
    /// The tool as the model named it.
    pub tool: String,
    /// The action that stands for the whole plan, such as `process.exec`.
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<PathText>,
    /// The strictest effect of the parts.
    pub effect: Effect,
    pub effect_class: EffectClass,
    pub executor: Executor,
    /// What an approval may cover; the first is the default.
    pub scopes: Vec<Scope>,
    /// What a child is told to do; its profile is the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Digest of the manifest that decided.
    pub manifest: Digest,
    /// The ceilings in force beside the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    pub parts: Vec<Part>,
    /// Whose allows an ask needs, each to be met; none listed means one, anybody's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approval: Vec<Requirement>,
    pub network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The program that the argument list names, as the image has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What the program reads; without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// The manifest's name of the check that the argument list is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Several commands in place of one, in order, up to the first that fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Names only; values are the executor's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Trees of the host that a command finds beside its private copy, or in place of parts of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// What is asked of a tool server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<ToolServer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
}

impl Plan {
    /// The canonical bytes, which are shown, hashed and approved.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PlanTooLarge> {
        let tree = self.to_tree()?;
        if nodes(&tree) > MAX_NODES {
            return Err(PlanTooLarge::Nodes);
        }
        let bytes = event::canon::to_bytes(&tree).map_err(|_| PlanTooLarge::Number)?;
        if bytes.len() > MAX_BYTES {
            return Err(PlanTooLarge::Bytes);
        }
        Ok(bytes)
    }

    /// Strict: the bytes must be those that `to_bytes` writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let plan: Self = canonical::decode(bytes, MAX_BYTES)?;
        if plan.effect != strictest(&plan.parts) {
            return Err(Malformed::Effect);
        }
        if !plan.approval.iter().all(Requirement::is_meant) {
            return Err(Malformed::Requirement);
        }
        Ok(plan)
    }

    /// What "this exact action for the run" means: the plan without its run, call and snapshot.
    pub fn action_digest(&self) -> Result<Digest, PlanTooLarge> {
        let mut tree = self.to_tree()?;
        if let Value::Object(members) = &mut tree {
            for name in NOT_OF_THE_ACTION {
                members.remove(name);
            }
        }
        let bytes = event::canon::to_bytes(&tree).map_err(|_| PlanTooLarge::Number)?;
        Ok(Digest::of_parts(ACTION_DOMAIN, &bytes))
    }

    /// Every member is a string, a number, a list or an object with string keys, so this fails on
    /// nothing but a number.
    fn to_tree(&self) -> Result<Value, PlanTooLarge> {
        serde_json::to_value(self).map_err(|_| PlanTooLarge::Number)
    }
}

/// The digest of a plan's bytes: what a receipt names.
pub fn plan_digest(bytes: &[u8]) -> Digest {
    Digest::of_parts(PLAN_DOMAIN, bytes)
}

/// The one effect of a plan with these parts; without parts there is nothing to ask.
pub fn strictest(parts: &[Part]) -> Effect {
    parts.iter().map(|part| part.effect).max().unwrap_or(Effect::Allow)
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => members.values().map(nodes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// `PLAN_TOO_LARGE`: what a person cannot be shown cannot be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanTooLarge {
    #[error("the plan is larger than {MAX_BYTES} bytes")]
    Bytes,
    #[error("the plan has more than {MAX_NODES} nodes")]
    Nodes,
    #[error("a number in the plan is larger than canonical JSON can carry")]
    Number,
}

/// The plan format; a plan of another version is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub enum Version {
    V1,
}

impl From<Version> for u64 {
    fn from(version: Version) -> Self {
        match version {
            Version::V1 => 1,
        }
    }
}

impl TryFrom<u64> for Version {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self::V1),
            _ => Err("unknown plan version"),
        }
    }
}

/// A file of rules above the manifest, by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub layer: Layer,
    pub digest: Digest,
}

/// A program by its path in the container and, where that is a link, what it comes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub path: PathText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<PathText>,
    /// It is a file of the private copy, not of the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workspace: bool,
}

/// A program's input, in full: to an interpreter it is as good as an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stdin {
    pub bytes: u64,
    pub digest: Digest,
    pub text: String,
}

impl Stdin {
    pub fn of(text: &str) -> Self {
        Self {
            bytes: text.len() as u64,
            digest: Digest::of(text.as_bytes()),
            text: text.to_owned(),
        }
    }
}

/// One command of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub argv: Vec<String>,
    pub program: Program,
}

/// One decision that the plan rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<PathText>,
    pub effect: Effect,
    /// Where the rule that decided stands.
    pub layer: Layer,
    pub rule: String,
    /// Why the rule is as it is, in its author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
    /// Every rule with something to say, the strictest first; absent where the deciding one is alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching: Vec<Matched>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Network {
    None,
    /// By name, through the broker, to what every layer allows, or asks about when the plan is approved.
    Broker {
        layers: Vec<NetworkLayer>,
        /// Hosts of this machine or site, which the administrator lists; all others are on the public internet.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        private: BTreeSet<String>,
    },
}

/// What one file says about hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLayer {
    pub layer: Layer,
    /// Denied whatever else is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<HostRule>,
    /// The longest that covers a host and port decides; of equal length, the strictest.
    pub rules: Vec<HostRule>,
    pub otherwise: OtherHosts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRule {
    /// `host:port`, `*.domain:port` for what is below the domain, `*:port`; the port may be `*`.
    pub hosts: String,
    pub effect: Effect,
    pub rule: String,
}

/// What holds for hosts that no rule of the file covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherHosts {
    pub effect: Effect,
    /// The only port that it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub rule: String,
}

/// Bytes, unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub cpus_milli: u64,
    pub file_bytes: u64,
    pub memory: u64,
    pub output: u64,
    pub pids: u64,
    pub time_ms: u64,
    pub tmp_bytes: u64,
    pub workspace_bytes: u64,
    pub workspace_inodes: u64,
}

/// The private copy a command sees: as first taken, and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub base: Digest,
    pub digest: Digest,
    /// What is mounted, as it is on the host now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<Digest>,
    pub withheld: u64,
}

/// Never the host's own path: what that is, the executor's configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The name of a dependency, or a path of the workspace, `dir/` for all that is in it.
    pub source: String,
    /// Where the command finds it.
    pub target: String,
    pub mode: MountMode,
}

/// A patch by digest, with what a person must see of it; the rest is fetched by that digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    pub digest: Digest,
    pub totals: Totals,
    pub protected: Vec<PathText>,
    pub deletions: Vec<PathText>,
    /// The first 200.
    pub entries: Vec<PatchEntry>,
    /// Every symbolic link that the patch writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PatchLink>,
    /// What is in the private copy and stays there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_carried: Option<NotCarried>,
    /// The whole patch, where this is a part of it that can be imported alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<Digest>,
    /// The import that is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<Undoes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undoes {
    pub run: RunId,
    pub patch: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchLink {
    pub path: PathText,
    /// The link's text.
    pub target: PathText,
}

/// Their number, and the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotCarried {
    pub total: u64,
    pub entries: Vec<NotCarriedEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotCarriedEntry {
    pub path: PathText,
    /// The class of the reason, such as `secret_name`.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub entries: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchEntry {
    pub op: PatchOp,
    pub path: PathText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchOp {
    Create,
    Update,
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileState {
    /// Octal, four digits.
    pub mode: String,
    pub sha256: Digest,
    pub size: u64,
}
