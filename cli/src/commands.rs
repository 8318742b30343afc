//! The small commands: certificates and tokens on disk. They talk to nobody.
use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Subcommand;
use serde::Serialize;
use transport::{Service, TrustDomain};

use crate::{
    Error,
    error::Exit,
    file::{self, Access},
    output,
    pki::{Hosts, Store, Subject},
    token::{self, Holder, Role},
};

const PKI_EXAMPLES: &str = "\
Examples:
  harness pki init --dir ./pki --trust-domain harness.example
  harness pki issue --dir ./pki --out ./tls/gateway svc gateway --dns gateway.example
  harness pki issue --dir ./pki --out ./signing receipts 1
  harness pki issue --dir ./pki --out ./ada auditor ada

Nothing is ever overwritten. Move root/ca.key off this host after init: issuing does not need it.";

#[derive(Debug, Subcommand)]
#[command(after_help = PKI_EXAMPLES)]
pub(crate) enum Pki {
    /// Make an authority: an offline root, and issuers of services, clients and auditors
    Init {
        /// New directory
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Name of this installation; every certificate carries it
        #[arg(long, value_name = "NAME")]
        trust_domain: TrustDomain,
    },
    /// Issue a certificate with its key into a directory
    Issue {
        /// Directory of the authority
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Directory for the files; made when it is not there
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// How long it lives
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        days: u32,
        #[command(subcommand)]
        subject: For,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum For {
    /// One process of a service: tls.crt, tls.key, ca.crt
    Svc {
        /// gateway, agent-svc, sandbox-svc, model-svc or audit-svc
        service: Service,
        /// Which process of it
        #[arg(long, value_name = "NAME", default_value = "1")]
        instance: String,
        /// Another host name beside localhost
        #[arg(long, value_name = "HOST")]
        dns: Vec<String>,
        /// Another address beside the loopback ones
        #[arg(long, value_name = "ADDR")]
        ip: Vec<IpAddr>,
    },
    /// A client program of a tenant
    Client { tenant: String, name: String },
    /// Someone who may read and verify the ledger
    Auditor { name: String },
    /// A gateway's signer of grants and receipts: receipt.crt, receipt.key
    Receipts { instance: String },
}

const TOKEN_EXAMPLES: &str = "\
Examples:
  harness token create --tokens-file ./mesh/gateway/tokens.json --tenant local --subject ada --role operator --expires 90d

The token is printed once. The file keeps its digest only; the gateway reads the file again by itself.";

#[derive(Debug, Subcommand)]
#[command(after_help = TOKEN_EXAMPLES)]
pub(crate) enum TokenCommand {
    /// Mint a token and print it
    Create {
        /// The gateway's tokens file; made when it is not there
        #[arg(long, value_name = "FILE")]
        tokens_file: PathBuf,
        /// In which tenant it is valid
        #[arg(long, value_name = "NAME")]
        tenant: String,
        /// Whose token it is
        #[arg(long, value_name = "NAME")]
        subject: String,
        /// What it may do; may be given several times
        #[arg(long, value_name = "ROLE", required = true)]
        role: Vec<Role>,
        /// How long it lives, at most a year: 12h, 90d
        #[arg(long, value_name = "DURATION", value_parser = transport::config::duration)]
        expires: Duration,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn pki(command: Pki) -> Result<Exit, Error> {
    match command {
        Pki::Init { dir, trust_domain } => {
            Store::init(&dir, trust_domain)?;
            output::progress(&format!(
                "made {}; move root/ca.key to a place off this host",
                dir.display()
            ));
        }
        Pki::Issue { dir, out, days, subject } => {
            let (subject, hosts) = subject.into_subject();
            let files = Store::open(&dir)?.issue(&subject, &hosts, days)?;
            file::private_path(&out)?;
            if let Some(there) =
                files.iter().map(|file| out.join(file.name)).find(|path| path.exists())
            {
                return Err(file::Error::Exists { path: there }.into());
            }
            for file in &files {
                file::create(&out.join(file.name), &file.bytes, Access::PRIVATE)?;
            }
            let names: Vec<_> = files.iter().map(|file| file.name).collect();
            output::progress(&format!("wrote {} into {}", names.join(", "), out.display()));
        }
    }
    Ok(Exit::Done)
}

impl For {
    fn into_subject(self) -> (Subject, Hosts) {
        match self {
            Self::Svc { service, instance, dns, ip } => {
                (Subject::Service { service, instance }, Hosts { dns, ip })
            }
            Self::Client { tenant, name } => (Subject::Client { tenant, name }, Hosts::default()),
            Self::Auditor { name } => (Subject::Auditor { name }, Hosts::default()),
            Self::Receipts { instance } => (Subject::Receipts { instance }, Hosts::default()),
        }
    }
}

#[derive(Serialize)]
struct Minted<'a> {
    id: &'a str,
    token: &'a str,
}

pub(crate) fn token(command: TokenCommand) -> Result<Exit, Error> {
    let TokenCommand::Create { tokens_file, tenant, subject, role, expires, json } = command;
    let holder = Holder { tenant, subject, roles: role, life: expires };
    let minted = token::create(&tokens_file, &holder, Access::PRIVATE)?;
    match json {
        true => output::document("token", &Minted { id: minted.id(), token: minted.reveal() })?,
        false => output::line_out(minted.reveal())?,
    }
    Ok(Exit::Done)
}
