//! How services meet: mTLS, peer identity, the method table, deadlines, status, tracing and drain; never what they say.
//!
//! A service's `main.rs` is one line: [`main`]`(Service::AuditSvc, audit_svc::bind)`.

pub mod admin;
pub mod args;
pub mod authz;
pub mod chain;
pub mod channel;
pub mod config;
pub mod context;
pub mod deadline;
pub mod denylist;
mod gate;
mod handshake;
pub mod identity;
#[cfg(feature = "issue")]
pub mod issue;
mod leaf;
mod listener;
pub mod material;
pub mod peer;
pub mod ready;
mod room;
mod run;
pub mod server;
pub mod state_dir;
pub mod status;
mod tasks;
mod telemetry;
mod tls;
mod trace;
mod watched;

pub use args::Args;
pub use chain::Chain;
pub use channel::{Endpoint, PeerChannel};
pub use config::{Exit, Validate};
pub use context::Context;
pub use identity::{Identity, Service, TrustDomain};
pub use material::Material;
pub use peer::Peer;
pub use ready::Readiness;
pub use run::{Bound, main};
pub use state_dir::StateDir;
pub use status::{Code, Fault, Public, to_status};
pub use tokio_util::sync::CancellationToken;
pub use tokio_util::task::TaskTracker;
pub use watched::{Broken, Watched};
