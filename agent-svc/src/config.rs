//! The settings of agent-svc, parsed once; nothing behind them reads the environment or a file name again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use transport::{Args, Endpoint, Validate};

/// Runs agents: sessions, runs and approvals
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "harness-agent-svc", version)]
pub struct Config {
    #[command(flatten)]
    pub transport: Args,

    /// Address for the other services
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Directory of the state database; owned by this process alone
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Where sandbox-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub sandbox_endpoint: Endpoint,

    /// Where model-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub model_endpoint: Endpoint,

    /// Where audit-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub audit_endpoint: Endpoint,

    /// How long the last client may be gone before that counts as a disconnect
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = transport::config::duration)]
    pub disconnect_grace: Duration,

    /// Abort the process right after its N-th kernel record is committed: after-record:N
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "NAME:N", hide = true)]
    pub failpoint: Option<crate::failpoint::Failpoint>,
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
        let endpoints = [
            ("--sandbox-endpoint", &self.sandbox_endpoint),
            ("--model-endpoint", &self.model_endpoint),
            ("--audit-endpoint", &self.audit_endpoint),
        ];
        let itself = Endpoint::from(self.listen);
        for (flag, endpoint) in endpoints {
            if *endpoint == itself {
                faults.push(format!(
                    "{flag} {endpoint}: that is --listen; name the other service's address"
                ));
            }
        }
        faults
    }
}
