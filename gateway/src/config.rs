//! The gateway's settings: flags, environment and file, parsed once. It opens what it names, to say early what is
//! wrong with it; it keeps nothing of it.
use std::net::SocketAddr;
use std::path::PathBuf;

use acp::TaskId;
use transport::{Chain, Endpoint, Validate};

use crate::authn::Tokens;
use crate::manifests::Manifests;
use crate::origin::Origin;
use crate::sign;

/// People's only way in: authenticates, shows asks and signs answers.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "harness-gateway", version)]
pub struct Config {
    #[command(flatten)]
    pub transport: transport::Args,

    /// Address for people: HTTPS and WebSocket
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Directory with receipt.crt and receipt.key (mode 0600), which sign grants and receipts
    #[arg(long, value_name = "DIR")]
    pub signing_dir: PathBuf,

    /// Where agent-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub agent_endpoint: Endpoint,

    /// Where audit-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub audit_endpoint: Endpoint,

    /// Directory of reviewed manifests, each named after its id with the ending .yaml
    #[arg(long, value_name = "DIR")]
    pub manifest_dir: PathBuf,

    /// Manifest of sessions that name none
    #[arg(long, value_name = "ID", value_parser = task_id)]
    pub default_manifest: Option<TaskId>,

    /// File of API tokens by their digests; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tokens_file: PathBuf,

    /// Origin of web pages that may connect: scheme, host and any unusual port; repeat for more
    #[arg(long, value_name = "ORIGIN")]
    pub allowed_origin: Vec<Origin>,
}

fn task_id(text: &str) -> Result<TaskId, acp::NotKebab> {
    TaskId::new(text)
}

impl Validate for Config {
    fn transport(&self) -> &transport::Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Err(error) = sign::read(&self.signing_dir) {
            faults.push(format!("--signing-dir: {}", Chain(&error)));
        }
        if let Err(error) = Manifests::open(&self.manifest_dir, self.default_manifest.clone()) {
            faults.push(format!("--manifest-dir: {}", Chain(&error)));
        }
        if let Err(error) = Tokens::open(&self.tokens_file) {
            faults.push(format!("--tokens-file: {}", Chain(&error)));
        }
        faults
    }
}
