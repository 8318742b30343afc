//! The settings of model-svc, parsed once; nothing behind them reads the environment or a file name again.

use std::net::SocketAddr;
use std::path::PathBuf;

use transport::{Args, Chain, Endpoint, Validate};

use crate::models::Models;

/// Asks model providers: the only holder of their keys and the only way out
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "harness-model-svc", version)]
pub struct Config {
    #[command(flatten)]
    pub transport: Args,

    /// Address for the other services
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Directory of the state database; owned by this process alone
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Where audit-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub audit_endpoint: Endpoint,

    /// TOML file of the models on offer: a table `model` for each, with id, provider and the provider's own settings
    #[arg(long, value_name = "FILE")]
    pub models_file: PathBuf,
}

impl Validate for Config {
    fn transport(&self) -> &Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.state_dir.exists() && !self.state_dir.is_dir() {
            faults.push(format!(
                "--state-dir {}: not a directory; name one that this user may write",
                self.state_dir.display()
            ));
        }
        if self.audit_endpoint == Endpoint::from(self.listen) {
            faults.push(format!(
                "--audit-endpoint {}: that is --listen; name audit-svc's address",
                self.audit_endpoint
            ));
        }
        crate::use_ring();
        if let Err(wrong) = Models::read(&self.models_file) {
            faults.extend(wrong.iter().map(|fault| Chain(fault).to_string()));
        }
        faults
    }
}
