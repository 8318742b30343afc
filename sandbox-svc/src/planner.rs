//! From a call to its plan: what would happen, in full, with the manifest's decision for each part. It reads
//! the copy, the workspace and the engine, and changes nothing.

pub(crate) mod command;
pub(crate) mod delegate;
pub(crate) mod edit;
mod mcp;
mod mounted;
mod network;
mod parts;
pub(crate) mod patch;
pub(crate) mod read;
pub(crate) mod search;
pub(crate) mod status;

use std::sync::Arc;

use event::Digest;
use event::id::{CallId, RunId};
use manifest::{Action, Decision, Manifest, Rulebook};
use receipt::{
    Effect, EffectClass, Executor, Network, PathText, Plan, Scope, Snapshot, Version, plan_digest,
};

use crate::broker::Brokers;
use crate::engine::Docker;
use crate::environment::{Environment, Present};
use crate::error::Error;
use crate::limits::Ceilings;
use crate::mounts::dependency::Dependencies;
use crate::program::Images;
use crate::refusal::{Reason, Refusal};
use crate::server::{Asked, Servers};
use crate::session::Session;
use crate::store::Store;
use crate::tool::{Arguments, Tool};
use crate::tree::RelPath;
use crate::tree::scan::ScanError;

pub(crate) use command::environment_variables;

/// A plan, its bytes, and what is needed to carry it out.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) prepared: Prepared,
    /// What decided.
    pub(crate) rulebook: Arc<Rulebook>,
}

/// What a family needs to carry its call out.
#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    Read(read::Prepared),
    Search(search::Prepared),
    Status(status::Prepared),
    Edit(edit::Prepared),
    Command(command::Prepared),
    Mcp(Asked),
    Patch(patch::Prepared),
    Delegate(delegate::Prepared),
}

/// A call that does not happen, or a fault of the house.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Failed(#[from] Error),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        match Error::from(error) {
            Error::WorkspaceTooLarge(detail) => {
                let detail = format!("the private copy is larger than its limits: {detail}");
                Refusal::new(Reason::WorkspaceTooLarge, detail).into()
            }
            error => error.into(),
        }
    }
}

/// What a plan is made from.
pub(crate) struct Planner<'a> {
    pub(crate) session: &'a Session,
    /// As it is now.
    pub(crate) rulebook: &'a Arc<Rulebook>,
    pub(crate) environment: &'a Arc<Environment>,
    pub(crate) store: &'a Store,
    pub(crate) engine: Option<&'a Docker>,
    pub(crate) images: &'a Images,
    pub(crate) dependencies: &'a Dependencies,
    pub(crate) ceilings: &'a Ceilings,
    pub(crate) run: RunId,
    pub(crate) brokers: Option<&'a Brokers>,
    pub(crate) servers: &'a Servers,
    pub(crate) call: CallId,
}

impl Planner<'_> {
    pub(crate) async fn plan(&self, tool: Tool, arguments: Arguments) -> Result<Planned, Stop> {
        let (plan, prepared) = match arguments {
            Arguments::Read(arguments) => self.read(tool, arguments),
            Arguments::Search(arguments) => self.search(tool, arguments).await?,
            Arguments::Status(arguments) => self.status(tool, arguments).await?,
            Arguments::Edit(arguments) => self.edit(tool, arguments).await?,
            Arguments::Command(arguments) => self.command(tool, arguments).await?,
            Arguments::Mcp(arguments) => self.mcp(tool, arguments).await?,
            Arguments::Patch(arguments) => self.patch(tool, arguments).await?,
            Arguments::Delegate(arguments) => self.delegate(tool, arguments),
        };
        finish(plan, prepared, self.rulebook)
    }

    fn manifest(&self) -> &Manifest {
        self.rulebook.manifest()
    }

    fn decide(&self, action: Action, subject: &str) -> Decision {
        self.rulebook.decide(action, Some(subject))
    }

    /// The members that every plan has, for a tool that changes nothing.
    fn pure(&self, tool: Tool, action: Action, subject: PathText) -> Plan {
        Plan {
            v: Version::V1,
            session: self.session.id,
            run: self.run,
            call: self.call,
            tool: tool.as_str().to_owned(),
            action: action.as_str().to_owned(),
            subject: Some(subject),
            effect: Effect::Allow,
            effect_class: EffectClass::Pure,
            executor: Executor::SandboxSvc,
            scopes: vec![Scope::Once, Scope::Run],
            task: None,
            manifest: self.manifest().digest,
            parts: Vec::new(),
            policies: parts::policies(self.rulebook),
            approval: Vec::new(),
            network: Network::None,
            program: None,
            argv: None,
            cwd: None,
            env: None,
            image: None,
            limits: None,
            mounts: Vec::new(),
            snapshot: None,
            workspace: None,
            patch: None,
            stdin: None,
            check: None,
            steps: Vec::new(),
            mcp: None,
            edit: None,
        }
    }

    fn snapshot(&self, present: &Present) -> Snapshot {
        Snapshot {
            base: present.base.digest(),
            digest: present.found.inventory.digest(),
            mounted: None,
            withheld: self.environment.before.len() as u64,
        }
    }

    async fn present(&self) -> Result<Present, Stop> {
        let (environment, rulebook) = (self.environment.clone(), self.rulebook.clone());
        let read = tokio::task::spawn_blocking(move || environment.present(&rulebook));
        Ok(read.await.map_err(Error::Task)??)
    }
}

fn finish(plan: Plan, prepared: Prepared, rulebook: &Arc<Rulebook>) -> Result<Planned, Stop> {
    let bytes = plan.to_bytes().map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    let shown =
        event::canon::parse(&bytes).map_err(|error| Refusal::new(Reason::PlanTooLarge, error))?;
    if event::redact::holds_secret(&shown) {
        return Err(Reason::PlanHoldsSecret.into());
    }
    let digest = plan_digest(&bytes);
    Ok(Planned { plan, bytes, digest, prepared, rulebook: rulebook.clone() })
}

pub(crate) fn subject_of(path: &RelPath) -> PathText {
    if path.is_root() { ".".into() } else { PathText::from_bytes(path.as_bytes()) }
}
