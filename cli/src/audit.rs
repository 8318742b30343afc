//! `audit`: reads and verifies the ledger as an auditor. What is printed was fetched; what is called sound was
//! computed here, from the entries and a head, and never taken from the ledger's own word.
use clap::Subcommand;
use event::id::SessionId;
use serde::Serialize;
use serde_json::Value;

use crate::{Error, error::Exit, escape, output};

mod ledger;
mod source;
mod verify;

pub(crate) use ledger::{Entry, Filter, Ledger};
pub(crate) use source::Source;
pub(crate) use verify::{Verdict, verify};

use verify::{KnownHead, Verification};

const EXAMPLES: &str = "\
Examples:
  harness audit query --state ./mesh --session 0198f000-0000-7000-8000-000000000001
  harness audit query --state ./mesh --writer sandbox-svc --type call.started --json
  harness audit verify --state ./mesh
  harness audit verify --audit 10.0.0.7:7443 --tls-dir ./ada --head 1042:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=

verify exits 0 when sound, 1 when tampered, 4 when entries are missing, 5 when nothing could be verified.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Audit {
    /// Print entries
    Query {
        #[command(flatten)]
        source: Source,
        /// Only of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Only of this session
        #[arg(long, value_name = "ID")]
        session: Option<SessionId>,
        /// Only by this service
        #[arg(long, value_name = "SERVICE")]
        writer: Option<event::Writer>,
        /// Only of this type, such as permission.resolved
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only after this place in the log
        #[arg(long, value_name = "INDEX")]
        after: Option<u64>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Fetch everything and verify it
    Verify {
        #[command(flatten)]
        source: Source,
        /// A head that you noted earlier, as SIZE:ROOT; the ledger must still contain it
        #[arg(long, value_name = "SIZE:ROOT")]
        head: Option<KnownHead>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    entries: Vec<Shown>,
    /// There may be more after this place.
    #[serde(skip_serializing_if = "Option::is_none")]
    continue_after: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    log_index: u64,
    tenant: String,
    writer: String,
    session_id: String,
    seq: u64,
    event: Value,
}

pub(crate) async fn audit(command: Audit) -> Result<Exit, Error> {
    match command {
        Audit::Query { source, tenant, session, writer, kind, after, limit, json } => {
            let filter = Filter { tenant, session, writer, kind };
            query(&source, &filter, after, limit, json).await
        }
        Audit::Verify { source, head, json } => {
            let ledger = source.open()?;
            let verification = verify(&ledger, &source.origin()?, head.as_ref()).await?;
            report(&verification, json)
        }
    }
}

async fn query(
    source: &Source,
    filter: &Filter,
    after: Option<u64>,
    limit: usize,
    json: bool,
) -> Result<Exit, Error> {
    let ledger = source.open()?;
    let mut entries: Vec<Shown> = Vec::new();
    let mut after = after;
    let mut more = true;
    while more && entries.len() < limit {
        let page = ledger.page(filter, after, limit - entries.len()).await?;
        more = !page.is_empty();
        for entry in page {
            after = Some(entry.log_index);
            entries.push(Shown::of(entry)?);
        }
    }
    if json {
        let continue_after = after.filter(|_| more);
        output::document("audit-entries", &Page { entries, continue_after })?;
        return Ok(Exit::Done);
    }
    for Shown { log_index, tenant: _, writer, session_id, seq, event } in entries {
        let text = escape::json_line(&event);
        output::line_out(&format!(
            "{log_index} {} {} {seq} {text}",
            escape::line(&writer),
            escape::line(&session_id)
        ))?;
    }
    Ok(Exit::Done)
}

impl Shown {
    fn of(entry: Entry) -> Result<Self, ledger::Error> {
        let event = serde_json::from_slice(&entry.event).map_err(ledger::Error::Event)?;
        let Entry { log_index, tenant, writer, session_id, seq, .. } = entry;
        Ok(Self { log_index, tenant, writer, session_id, seq, event })
    }
}

fn report(verification: &Verification, json: bool) -> Result<Exit, Error> {
    if json {
        output::document("audit-verification", verification)?;
    } else if let Verdict::Sound = verification.verdict {
        let Verification { entries, streams, head, .. } = verification;
        output::line_out(&format!("sound: {entries} entries in {streams} streams"))?;
        output::line_out(&format!("head: {head}"))?;
    }
    match verification.failure() {
        None => Ok(Exit::Done),
        Some(failure) => Err(failure.into()),
    }
}
