//! The three services that agent-svc calls, each call with a deadline and each failure as a `Fault`. Nothing is retried
//! here.

mod audit;
mod model;
mod sandbox;

use std::time::Duration;

use manifest::Profile;
use proto::common::v1 as common;
use receipt::{Executor, Signed};
use transport::{Context, Endpoint, Fault, Service};

pub(crate) use audit::{Audit, Stream};
pub(crate) use model::{Model, Turn};
pub(crate) use sandbox::Sandbox;

use crate::reach;
use crate::store::Owner;

/// For answers that need no work.
const SHORT: Duration = Duration::from_secs(10);
/// For answers that need some: a snapshot, a plan over a large tree.
const LONG: Duration = Duration::from_secs(120);
/// For one attachment to something that runs; afterwards it is attached again.
const STREAM: Duration = Duration::from_secs(1800);
/// Executors answer with what a tool printed.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Peers {
    pub(crate) sandbox: Sandbox,
    pub(crate) model: Model,
    pub(crate) audit: Audit,
}

impl Peers {
    pub(crate) fn connect(
        context: &Context,
        (sandbox, model, audit): (&Endpoint, &Endpoint, &Endpoint),
    ) -> Self {
        let channel = |endpoint, service| {
            let channel = transport::channel::connect(context, endpoint, service);
            reach::look_after(context, channel.clone());
            channel
        };
        Self {
            sandbox: Sandbox::new(channel(sandbox, Service::SandboxSvc)),
            model: Model::new(channel(model, Service::ModelSvc)),
            audit: Audit::new(channel(audit, Service::AuditSvc)),
        }
    }

    /// Shows both executors who owns the session, and what it may do.
    pub(crate) async fn fence(
        &self,
        owner: Owner,
        grant: &Signed,
        manifest: &[u8],
    ) -> Result<Offers, (Executor, Fault)> {
        let sandbox = self
            .sandbox
            .fence(owner, grant, manifest)
            .await
            .map_err(|fault| (Executor::SandboxSvc, fault))?;
        let model = self
            .model
            .fence(owner, grant, manifest)
            .await
            .map_err(|fault| (Executor::ModelSvc, fault))?;
        Ok(Offers { sandbox, model })
    }
}

/// The tools that the executors offer a session.
#[derive(Debug, Clone)]
pub(crate) struct Offers {
    sandbox: Vec<common::Tool>,
    model: Vec<common::Tool>,
}

impl Offers {
    /// Who executes this tool. A name that both offer is the sandbox's.
    pub(crate) fn executor(&self, tool: &str) -> Option<Executor> {
        let offers = |tools: &[common::Tool]| tools.iter().any(|offered| offered.name == tool);
        if offers(&self.sandbox) {
            Some(Executor::SandboxSvc)
        } else if offers(&self.model) {
            Some(Executor::ModelSvc)
        } else {
            None
        }
    }

    /// What the model of such a child is told; without a profile, of a run that is none.
    pub(crate) fn tools_of(&self, profile: Option<Profile>) -> Vec<common::Tool> {
        match profile {
            None => self.tools(),
            Some(profile) => {
                self.sandbox.iter().filter(|tool| profile.has(&tool.name)).cloned().collect()
            }
        }
    }

    /// What the model is told, each name once.
    fn tools(&self) -> Vec<common::Tool> {
        let remote =
            self.model.iter().filter(|tool| self.executor(&tool.name) == Some(Executor::ModelSvc));
        self.sandbox.iter().chain(remote).cloned().collect()
    }
}

/// One call, as executors know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) run: event::id::RunId,
    pub(crate) call: event::id::CallId,
    pub(crate) attempt: u32,
    pub(crate) start_before: crate::clock::Millis,
}

fn owner(owner: Owner) -> common::Owner {
    let Owner { session, node, epoch } = owner;
    common::Owner { session_id: session.to_string(), node: node.0.to_string(), epoch }
}

fn call(target: Target) -> common::Call {
    let Target { run, call, attempt, start_before } = target;
    common::Call {
        run_id: run.to_string(),
        call_id: call.to_string(),
        attempt,
        start_before_ms: start_before.0,
    }
}

/// Signed things travel as they came.
pub(crate) fn signed(signed: &Signed) -> common::Signed {
    let Signed { payload, signature, chain } = signed.clone();
    common::Signed { payload, signature, chain }
}

pub(crate) fn from_signed(signed: common::Signed) -> Signed {
    let common::Signed { payload, signature, chain } = signed;
    Signed { payload, signature, chain }
}
