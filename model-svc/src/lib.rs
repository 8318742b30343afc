//! Asks model providers: the only holder of third-party credentials and the only way out.

mod api;
mod calls;
mod clock;
mod config;
mod desk;
mod error;
mod fence;
mod finalize;
mod key;
mod ledger;
mod models;
mod owner;
mod provider;
mod record;
mod refusal;
mod store;
mod transcript;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;

use transport::server::{Listening, Server};
use transport::{CancellationToken, Context, Service, StateDir, TaskTracker};

pub use api::CALLERS;
pub use config::Config;
pub use error::Error;

use crate::calls::Calls;
use crate::clock::Clock;
use crate::desk::Desk;
use crate::ledger::Ledger;
use crate::models::Models;
use crate::store::Store;

/// Opens the state, reads the models and takes the address; nothing is served yet.
pub async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    start(config, context, Clock::system()).await
}

async fn start(config: Config, context: Context, clock: Clock) -> Result<Bound, Error> {
    use_ring();
    let models = Models::read(&config.models_file).map_err(Error::models)?;
    let store = Arc::new(Store::open(StateDir::own(&config.state_dir)?).await?);
    let channel = transport::channel::connect(&context, &config.audit_endpoint, Service::AuditSvc);
    let ledger = Arc::new(Ledger::new(Arc::clone(&store), channel, context.ready.clone()));
    let desk = Arc::new(Desk {
        material: Arc::clone(&context.material),
        models,
        store,
        ledger: Arc::clone(&ledger),
        calls: Arc::new(Calls::default()),
        clock,
        tracker: context.tracker.clone(),
    });
    desk.doubt_interrupted().await?;
    let listening = Server::new(&context, api::table()?)
        .add_service(api::server(desk))
        .services_listener(config.listen)
        .bind()
        .await?;
    Ok(Bound { listening, ledger, tracker: context.tracker.clone() })
}

/// A service that has its address.
#[derive(Debug)]
pub struct Bound {
    listening: Listening,
    ledger: Arc<Ledger>,
    tracker: TaskTracker,
}

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.listening.addrs()
    }

    /// The ledger is told to the last what became of calls, so it outlives the listener.
    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let stop = CancellationToken::new();
        let last = stop.clone().drop_guard();
        self.tracker.spawn(self.ledger.run(stop));
        self.listening.serve(shutdown).await?;
        drop(last);
        Ok(())
    }
}

/// The HTTP client takes the process's default for TLS; there is one, whoever sets it first.
fn use_ring() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("a default for TLS is set already");
    }
}

#[cfg(test)]
mod tests;
