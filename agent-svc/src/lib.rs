//! Runs agents: sessions, runs and approvals; holds no key, no engine and no way out.

mod answer;
mod api;
mod bound;
mod clock;
mod config;
mod create;
mod error;
mod failpoint;
mod feed;
mod fence;
mod grant;
mod ids;
mod live;
mod obo;
mod outbox;
mod outcome;
mod patch;
mod peers;
mod permission;
mod reach;
mod refusal;
mod run;
mod runtime;
mod session;
mod store;
mod subscribe;
mod terms;
#[cfg(test)]
mod tests;
mod transcript;
mod wish;
mod withheld;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto::agent::v1::agent_service_server::AgentServiceServer;
use receipt::Verifier;
use transport::authz::Table;
use transport::server::{Listening, Server};
use transport::{CancellationToken, Context};

pub use api::CALLERS;
pub use config::Config;
pub use error::Error;
pub use failpoint::{Failpoint, NotAFailpoint};

use clock::Clock;
use runtime::{Runtime, Spans};

/// A session that is not opened by then will not be.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
const SERVICE: &str = "harness.agent.v1.AgentService";

/// Owns the state directory, has its address, and has taken up every session that is not over.
pub struct Bound {
    listening: Listening,
    runtime: Arc<Runtime>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("addrs", &self.listening.addrs()).finish_non_exhaustive()
    }
}

pub async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    let spans = Spans::new(config.disconnect_grace);
    let records = failpoint::Records::new(failpoint(&config));
    bind_with(config, context, Clock::system(), spans, records).await
}

pub(crate) async fn bind_with(
    config: Config,
    context: Context,
    clock: Clock,
    spans: Spans,
    records: failpoint::Records,
) -> Result<Bound, Error> {
    let (ca, domain) = (context.material.services_ca(), context.material.trust_domain());
    let verifier = Verifier::new(&ca, domain.as_str()).map_err(Error::Trust)?;
    let store = store::Store::open(transport::StateDir::own(&config.state_dir)?).await?;
    let endpoints = (&config.sandbox_endpoint, &config.model_endpoint, &config.audit_endpoint);
    let runtime = Arc::new(Runtime {
        store,
        peers: peers::Peers::connect(&context, endpoints),
        node: store::Node::mint(),
        gate: obo::Gate::new(verifier, Arc::clone(&context.material), clock.clone()),
        clock,
        sessions: session::Sessions::default(),
        opening: tokio::sync::Mutex::default(),
        revocations: tokio::sync::Notify::new(),
        records,
        spans,
        ready: context.ready.clone(),
        tracker: context.tracker.clone(),
        shutdown: context.shutdown.clone(),
    });
    let table = Table::new(CALLERS, proto::DESCRIPTORS, &[SERVICE])?;
    let listening = Server::new(&context, table)
        .add_service(AgentServiceServer::new(api::Api(Arc::clone(&runtime))))
        .ends_at_shutdown("/harness.agent.v1.AgentService/Subscribe")
        .services_listener(config.listen)
        .bind()
        .await?;
    let abandoned = runtime.clock.millis().minus(ABANDONED);
    for session in runtime.store.take_over(runtime.node, abandoned).await? {
        if session.state != store::State::Opening {
            session::start(&runtime, session, None);
        }
    }
    runtime.tracker.spawn({
        let runtime = Arc::clone(&runtime);
        async move {
            let shutdown = runtime.shutdown.clone();
            shutdown.run_until_cancelled(grant::carry(runtime)).await;
        }
    });
    Ok(Bound { listening, runtime })
}

#[cfg(debug_assertions)]
fn failpoint(config: &Config) -> Option<Failpoint> {
    config.failpoint
}

#[cfg(not(debug_assertions))]
fn failpoint(_: &Config) -> Option<Failpoint> {
    None
}

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.listening.addrs()
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        self.listening.serve(shutdown).await?;
        // Sessions stop where they are: what is recorded is taken up at the next start.
        self.runtime.shutdown.cancel();
        Ok(())
    }
}
