//! Appends and proves; never edits. One writer, one tree; every entry is checked once more before it is stored.

mod api;
mod batch;
mod callers;
mod config;
mod entry;
mod error;
mod export;
mod nodes;
mod reach;
mod refusal;
mod store;
mod writer;

use std::net::SocketAddr;

use proto::audit::v1::audit_service_server::AuditServiceServer;
use transport::authz::Table;
use transport::server::{Listening, Server};
use transport::{CancellationToken, Context};

pub use callers::CALLERS;
pub use config::{Config, NotAnOrigin, Origin};
pub use error::{Error, Unsound};

/// The readiness condition that holds while entries can be stored.
pub(crate) const READY: &str = "ledger";

/// Verifies the ledger, starts its writer and takes the addresses; nothing is served yet.
pub async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    let Config { transport: _, listen, auditors_listen, state_dir, origin } = config;
    let table = Table::new(CALLERS, proto::DESCRIPTORS, &[callers::SERVICE])?;
    let store = store::Store::open(&state_dir, &origin).await?;
    let readers = store.readers();
    let (appender, writer) = writer::start(store, context.ready.clone(), &context.tracker);
    let reader = store::Reader::new(readers, appender.head());
    let service =
        AuditServiceServer::new(api::Api::new(appender, reader, origin, context.material.clone()));
    let listening = Server::new(&context, table)
        .add_service(service)
        .services_listener(listen)
        .auditors_listener(auditors_listen)
        .bind()
        .await?;
    Ok(Bound { listening, writer })
}

/// The ledger with its addresses and its running writer.
#[derive(Debug)]
pub struct Bound {
    listening: Listening,
    writer: writer::Running,
}

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.listening.addrs()
    }

    /// What is queued when the listeners are closed is still stored.
    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let served = self.listening.serve(shutdown).await;
        self.writer.stop().await;
        Ok(served?)
    }
}
