//! The settings that all five services share; parsed values only, so that nothing behind them checks again.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{TrustDomain, config};

/// Flatten this into a service's configuration.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory with tls.crt, tls.key, ca.crt and, where they apply, auditors-ca.crt and denylist
    #[arg(long, value_name = "DIR")]
    pub tls_dir: PathBuf,

    /// Name of this installation; every certificate carries it
    #[arg(long, value_name = "NAME")]
    pub trust_domain: TrustDomain,

    /// How often the TLS directory is read again (SIGHUP reads it at once)
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = config::duration)]
    pub tls_reload_interval: Duration,

    /// Plaintext address of /livez, /readyz and /metrics; keep it on loopback
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<SocketAddr>,

    /// Where to send traces by OTLP over gRPC, such as http://127.0.0.1:4317
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<http::Uri>,

    /// Form of the log on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Which log lines are written, as targets and levels
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = config::log_filter)]
    pub log_filter: String,

    /// How long open requests may go on after a signal to stop
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = config::duration)]
    pub drain_timeout: Duration,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For a person at a terminal.
    Text,
}
