//! The broker of a call's attempt: there before its container is made, gone after its container has ended.

use std::path::Path;

use event::MountMode;
use transport::Chain;

use crate::broker::{self, Broker, Teller};
use crate::engine::Bind;
use crate::environment::Environment;
use crate::exec::Run;

impl Run<'_> {
    /// A cause instead of a broker that the plan needs.
    pub(super) async fn broker(&self, environment: &Environment) -> Result<Option<Broker>, String> {
        let Some(config) = broker::config(&self.plan.network) else { return Ok(None) };
        let missing = || "this host has no egress broker any more".to_owned();
        let brokers = self.sandbox.brokers.as_ref().ok_or_else(missing)?;
        let teller = Teller {
            store: self.sandbox.store.clone(),
            session: self.session.id,
            tenant: self.row.tenant.clone(),
            policy_rev: self.session.policy_rev(),
            run: self.row.plan.run,
            call: self.call(),
            attempt: self.row.attempt,
        };
        let directory = environment.place.egress(self.call(), self.row.attempt);
        let started = Broker::start(brokers, directory, config, teller, &self.sandbox.tracker);
        started.await.map(Some).map_err(|error| Chain(&error).to_string())
    }
}

/// What of it the command's container sees.
pub(super) fn broker_bind(directory: &Path) -> Bind {
    Bind {
        source: directory.to_owned(),
        target: sandbox_init::EGRESS_DIRECTORY.to_owned(),
        mode: MountMode::Ro,
    }
}
