//! gRPC listeners with mutual TLS: every request passes deny list, method table, deadline and trace before a handler sees it.

mod connection;
mod public;

use std::{
    collections::{BTreeSet, HashSet},
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, server::NamedService, service::Routes};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::{info, warn};

use self::connection::Connections;
pub use self::public::PublicListener;
pub use crate::room::Seat;
use crate::{
    Context,
    authz::{HEALTH_WATCH, Table},
    gate::Gate,
    listener::Listener,
    tasks::Tasks,
    tls::Admits,
};

/// Old certificates and old connections do not outlive this.
const CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Collects services and listeners.
#[derive(Debug)]
pub struct Server {
    context: Context,
    table: Table,
    routes: Routes,
    names: Vec<&'static str>,
    endless: HashSet<&'static str>,
    age: Duration,
    wanted: Vec<(Admits, &'static str, SocketAddr)>,
}

impl Server {
    /// A server whose methods are exactly those of `table`.
    pub fn new(context: &Context, table: Table) -> Self {
        Self {
            context: context.clone(),
            table,
            routes: Routes::default(),
            names: Vec::new(),
            endless: HashSet::from([HEALTH_WATCH]),
            age: CONNECTION_AGE,
            wanted: Vec::new(),
        }
    }

    /// Adds a generated server. Its own `max_decoding_message_size`, 4 MiB unless set, bounds what it reads.
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.names.push(S::NAME);
        self.routes = self.routes.add_service(service);
        self
    }

    /// Streams of `method` would never end by themselves: they end as soon as the process is asked to stop. All others may
    /// go on for half of the drain limit.
    #[must_use]
    pub fn ends_at_shutdown(mut self, method: &'static str) -> Self {
        self.endless.insert(method);
        self
    }

    /// How long a connection is used before its client is asked to make a new one; 10 minutes unless set.
    #[must_use]
    pub fn connection_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Adds a listener (`--listen`) that trusts the services' issuers and admits services only.
    #[must_use]
    pub fn services_listener(mut self, addr: SocketAddr) -> Self {
        self.wanted.push((Admits::Services, "listen", addr));
        self
    }

    /// Adds a listener (`--auditors-listen`) that trusts the auditors' issuers and admits auditors only.
    #[must_use]
    pub fn auditors_listener(mut self, addr: SocketAddr) -> Self {
        self.wanted.push((Admits::Auditors, "auditors-listen", addr));
        self
    }

    /// Takes the addresses; nothing is served yet.
    pub async fn bind(self) -> Result<Listening, Error> {
        let Self { context, table, routes, names, endless, age, wanted } = self;
        let (listed, added) = (table.services(), names.iter().copied().collect::<BTreeSet<_>>());
        if listed != added {
            let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
            return Err(Error::Services { listed: owned(listed), added: owned(added) });
        }
        let mut listeners = Vec::with_capacity(wanted.len());
        for (admits, flag, addr) in wanted {
            if context.material.server(admits).is_none() {
                return Err(Error::NoIssuers { flag });
            }
            listeners.push((admits, Listener::bind(flag, addr).await?));
        }
        let (health, service) = tonic_health::server::health_reporter();
        let gate = Gate {
            routes: routes.add_service(service).prepare(),
            table,
            material: context.material.clone(),
            endless,
            stopping: CancellationToken::new(),
            draining: CancellationToken::new(),
        };
        Ok(Listening { context, gate: Arc::new(gate), health, names, age, listeners })
    }
}

/// A server that has its addresses.
#[derive(Debug)]
pub struct Listening {
    context: Context,
    gate: Arc<Gate>,
    health: HealthReporter,
    names: Vec<&'static str>,
    age: Duration,
    listeners: Vec<(Admits, Listener)>,
}

impl Listening {
    /// Each listener's flag name and real address.
    pub fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.listeners.iter().map(|(_, listener)| (listener.flag(), listener.addr())).collect()
    }

    /// Serves until `shutdown`, then drains within the context's limit and cuts what is left.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { context, gate, health, names, age, listeners } = self;
        let connections = Connections::new(gate.clone(), age);
        // Also when this future is dropped: no connection outlives its server.
        let Tasks { tracker, cut } = connections.tasks.clone();
        let _cut = cut.clone().drop_guard();
        tracker.spawn(report_health(context.clone(), health, names, gate.stopping.clone()));
        let accepting = listeners.into_iter().map(|(admits, listener)| {
            let material = context.material.clone();
            connections.accept(listener, move || material.server(admits), shutdown.clone())
        });
        join_all(accepting).await;
        gate.stopping.cancel();
        drain(&tracker, &gate.draining, &cut, context.drain_timeout).await;
        Ok(())
    }
}

/// Lets requests go on for half of `limit`, ends them in good order for the other half, then cuts.
async fn drain(
    tracker: &TaskTracker,
    draining: &CancellationToken,
    cut: &CancellationToken,
    limit: Duration,
) {
    tracker.close();
    if tokio::time::timeout(limit / 2, tracker.wait()).await.is_ok() {
        return;
    }
    info!(open = tracker.len(), "ending open requests");
    draining.cancel();
    if tokio::time::timeout(limit / 2, tracker.wait()).await.is_err() {
        warn!(open = tracker.len(), "drain limit reached, connections cut");
        cut.cancel();
    }
}

/// Keeps the health service saying what readiness says, and "not serving" from the signal to stop on.
async fn report_health(
    context: Context,
    health: HealthReporter,
    names: Vec<&'static str>,
    stopping: CancellationToken,
) {
    let mut changes = context.ready.subscribe();
    loop {
        let ready =
            changes.borrow_and_update().values().all(|holds| *holds) && !stopping.is_cancelled();
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in names.iter().copied().chain([""]) {
            health.set_service_status(name, status).await;
        }
        if stopping.is_cancelled() {
            return;
        }
        tokio::select! {
            () = stopping.cancelled() => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error(
        "cannot listen on {addr} (--{flag}); choose an address that is free and belongs to this host"
    )]
    Listen {
        /// The flag that named it.
        flag: &'static str,
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Metrics cannot be recorded.
    #[error("the admin listener has no metrics to show")]
    Telemetry(#[source] crate::telemetry::Error),
    /// A service that nobody may call, or a table for a service that is not there.
    #[error("the table lists the services {listed:?}, but those added are {added:?}")]
    Services {
        /// In the table.
        listed: Vec<String>,
        /// Added to the server.
        added: Vec<String>,
    },
    /// A listener that would trust nobody.
    #[error("--{flag} needs auditors-ca.crt in the tls directory")]
    NoIssuers {
        /// The flag that asked for it.
        flag: &'static str,
    },
}
