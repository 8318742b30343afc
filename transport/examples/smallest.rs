//! The smallest complete service: it has a configuration, an identity and a health service, and nothing of its own to do.

use std::{net::SocketAddr, process::ExitCode};

use transport::{
    Args, CancellationToken, Context, Service, Validate,
    authz::{Mismatch, Table},
    server::{Listening, Server},
};

/// Does nothing, safely.
#[derive(Debug, clap::Parser)]
struct Config {
    #[command(flatten)]
    transport: Args,

    /// Where services connect
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

impl Validate for Config {
    fn transport(&self) -> &Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the method table is wrong")]
    Table(#[from] Mismatch),
    #[error(transparent)]
    Server(#[from] transport::server::Error),
}

struct Bound(Listening);

impl transport::Bound for Bound {
    type Error = Error;

    fn addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        self.0.addrs()
    }

    async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        Ok(self.0.serve(shutdown).await?)
    }
}

async fn bind(config: Config, context: Context) -> Result<Bound, Error> {
    let table = Table::new(&[], &[], &[])?;
    let server = Server::new(&context, table).services_listener(config.listen);
    Ok(Bound(server.bind().await?))
}

fn main() -> ExitCode {
    transport::main(Service::AuditSvc, bind)
}
