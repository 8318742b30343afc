//! Measures what a person waits for beside a yardstick of the same run. It reports; it never fails for being slow.

mod ask;
mod engine;
mod exec;
mod flood;
mod proofs;
mod runc;
mod sample;
mod trees;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use sample::Figure;

/// Medians of interleaved rounds, written as a JSON list and a line each.
#[derive(Debug, Parser)]
struct Options {
    /// Where the list is written.
    #[arg(long)]
    out: PathBuf,
    /// Only benches whose name begins so.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Rounds per bench.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    rounds: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { out, prefix, rounds } = Options::parse();
    let mut figures: Vec<Figure> = proofs::measure(&prefix, rounds)?;
    figures.extend(exec::measure(&prefix, rounds).await?);
    if ask::NAME.starts_with(&prefix) {
        figures.push(ask::measure(rounds).await?);
    }
    figures.extend(flood::measure(&prefix, rounds).await?);
    figures.extend(trees::measure(&prefix, rounds).await?);
    std::fs::write(&out, serde_json::to_vec_pretty(&figures)?)?;
    let mut lines = std::io::stdout().lock();
    for figure in &figures {
        writeln!(lines, "{figure}")?;
    }
    Ok(())
}

/// Whether any of these is asked for.
fn is_wanted(names: &[&str], prefix: &str) -> bool {
    names.iter().any(|name| name.starts_with(prefix))
}
