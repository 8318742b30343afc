//! People's only way in: it authenticates them, forwards what a run asks, and signs what they answer. It holds no data:
//! sessions live in agent-svc, events in audit-svc.
mod api;
mod approval;
mod authn;
mod config;
mod error;
mod feed;
mod grant;
mod manifests;
mod origin;
mod patch;
mod peers;
mod record;
mod refusal;
mod sign;
mod socket;
mod standing;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;
use transport::server::PublicListener;
use transport::{
    CancellationToken, Context, PeerChannel, Readiness, Service, TaskTracker, channel,
};

pub use config::Config;
pub use error::Error;
pub use origin::{NotOrigin, Origin};

use api::Front;
use authn::Tokens;
use manifests::Manifests;
use peers::{Agent, Audit, Patience};
use sign::Sign;

/// How often peers and the signing key are looked after, and how often until all is well.
const LOOK_AFTER: Duration = Duration::from_secs(10);
const LOOK_AT_FIRST: Duration = Duration::from_millis(250);
const PROBE: Duration = Duration::from_secs(2);

/// What every request needs, whatever dialect it came in.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) agent: Agent,
    pub(crate) audit: Audit,
    pub(crate) sign: Arc<Sign>,
    pub(crate) manifests: Manifests,
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl Desk {
    /// Runs a task to its end, on the process's account.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let overdue = self.overdue();
        let bounded = async move {
            tokio::select! {
                () = task => {}
                () = overdue => {}
            }
        };
        self.tracker.spawn(bounded.in_current_span());
    }

    /// Returns when a process that stops can wait no longer.
    pub(crate) fn overdue(&self) -> impl Future<Output = ()> + Send + 'static {
        let (shutdown, parting) = (self.shutdown.clone(), self.limits.parting);
        async move {
            shutdown.cancelled().await;
            tokio::time::sleep(parting).await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) socket: socket::Limits,
    /// Between pings; a client that gives no sign of life for three of them is gone.
    pub(crate) keepalive: Duration,
    /// For a session to be prompted.
    pub(crate) unprompted: Duration,
    /// For a peer that is away to come back, while a person waits.
    pub(crate) patience: Duration,
    /// For the first message of a subscription.
    pub(crate) first_message: Duration,
    /// For everything that is under way when the process is asked to stop.
    pub(crate) parting: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            socket: socket::Limits::default(),
            keepalive: Duration::from_secs(30),
            unprompted: Duration::from_mins(5),
            patience: Duration::from_secs(10),
            first_message: Duration::from_secs(30),
            parting: Duration::from_secs(5),
        }
    }
}

/// The gateway with its address taken.
#[derive(Debug)]
pub struct Bound {
    listener: PublicListener,
    front: Arc<Front>,
}

/// Reads what the configuration names, proves that what is signed will be believed, and takes the address.
pub async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    let limits = Limits::default();
    // The other half is for telling everyone else.
    let parting = limits.parting.min(context.drain_timeout / 2);
    bind_within(config, context, Limits { parting, ..limits }).await
}

async fn bind_within(config: Config, context: Context, limits: Limits) -> Result<Bound, Error> {
    let Config {
        transport: _,
        listen,
        signing_dir,
        agent_endpoint,
        audit_endpoint,
        manifest_dir,
        default_manifest,
        tokens_file,
        allowed_origin,
    } = config;
    let sign = Arc::new(Sign::open(&signing_dir, context.material.clone())?);
    let manifests = Manifests::open(&manifest_dir, default_manifest)?;
    let tokens = Tokens::open(&tokens_file)?;
    let agent = channel::connect(&context, &agent_endpoint, Service::AgentSvc);
    let audit = channel::connect(&context, &audit_endpoint, Service::AuditSvc);
    look_after(&context, "agent-svc", agent.clone());
    look_after(&context, "audit-svc", audit.clone());
    look_after_signing(&context, sign.clone());
    let patience = Patience { limit: limits.patience, shutdown: context.shutdown.clone() };
    let desk = Arc::new(Desk {
        agent: Agent::new(agent, sign.clone(), patience.clone()),
        audit: Audit::new(audit, patience),
        sign,
        manifests,
        tokens,
        limits,
        tracker: context.tracker.clone(),
        shutdown: context.shutdown.clone(),
    });
    let listener = PublicListener::bind(&context, listen).await?;
    Ok(Bound { listener, front: Arc::new(Front::new(desk, allowed_origin, context.ready)) })
}

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("listen", self.listener.addr())]
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { listener, front } = self;
        let stop = shutdown.clone();
        listener
            .serve(shutdown, move |stream, _peer, seat| {
                api::connection(front.clone(), stream, seat, stop.clone())
            })
            .await;
        Ok(())
    }
}

/// Keeps the condition of a peer true or false, as it can be reached.
fn look_after(context: &Context, name: &'static str, peer: PeerChannel) {
    let (ready, shutdown) = (context.ready.clone(), context.shutdown.clone());
    ready.set(name, false);
    context.tracker.spawn(async move {
        loop {
            let reached = peer.probe(PROBE).await.is_ok();
            ready.set(name, reached);
            if pause(&shutdown, reached).await.is_none() {
                return;
            }
        }
    });
}

/// A certificate that runs out is seen here before a person's answer fails on it.
fn look_after_signing(context: &Context, sign: Arc<Sign>) {
    const NAME: &str = "signing";
    let (ready, shutdown): (Readiness, _) = (context.ready.clone(), context.shutdown.clone());
    ready.set(NAME, true);
    context.tracker.spawn(async move {
        while pause(&shutdown, true).await.is_some() {
            ready.set(NAME, sign.prove().is_ok());
        }
    });
}

async fn pause(shutdown: &CancellationToken, well: bool) -> Option<()> {
    let pause = if well { LOOK_AFTER } else { LOOK_AT_FIRST };
    tokio::select! {
        () = shutdown.cancelled() => None,
        () = tokio::time::sleep(pause) => Some(()),
    }
}
