//! `manifest`: policy files on disk, checked, explained, tried and compared before anybody runs under them. It decides
//! with the code that the executor decides with, and changes no file that is there.
use std::path::PathBuf;

use clap::Subcommand;

use crate::{
    Error,
    error::{Exit, Explain},
    file, output,
};

mod compare;
mod explain;
mod files;
mod findings;
mod recorded;
mod trial;
mod validate;

const EXAMPLES: &str = "\
Examples:
  harness manifest new fix-parser --out fix-parser.yaml
  harness manifest validate task.yaml
  harness manifest validate --json tasks/*.yaml
  harness manifest explain task.yaml fs.write src/main.rs
  harness manifest explain task.yaml -- sh -c \"cargo test; rm -rf x\"
  harness manifest lint --deny-warnings task.yaml
  harness manifest test task.yaml
  harness manifest diff task.yaml tasks/task.yaml
  harness manifest schema

A FILE is a task manifest or a ceiling. Exit codes: 0 when all is well; 1 when a finding, a test or a widening stands
against it; 2 when a file or the command line can not be used.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Policy {
    /// Write the commented beginning of a manifest
    New {
        /// Its id: words of a-z and 0-9 joined by single hyphens
        id: String,
        /// New file; without it, stdout
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check policy files and list every fault with its place
    Validate {
        /// Task manifests and ceilings
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Say what is decided about one action, and by which rules of which files
    Explain(explain::Args),
    /// Find what is well-formed and probably not meant
    Lint(findings::Args),
    /// Run the tests that files have in them, and print each
    Test(trial::Args),
    /// Compare what two files decide
    Diff(compare::Args),
    /// Print the JSON Schema of manifests, for editors
    Schema {
        /// That of ceilings instead
        #[arg(long)]
        ceiling: bool,
    },
}

pub(crate) async fn policy(command: Policy) -> Result<Exit, Error> {
    match command {
        Policy::New { id, out } => new(&id, out),
        Policy::Validate { files, json } => validate::validate(&files, json),
        Policy::Explain(args) => explain::explain(args),
        Policy::Lint(args) => findings::lint(args),
        Policy::Test(args) => trial::test(args),
        Policy::Diff(args) => compare::diff(args).await,
        Policy::Schema { ceiling } => {
            let schema = if ceiling { manifest::ceiling_schema() } else { manifest::schema() };
            output::line_out(&format!("{schema:#}"))?;
            Ok(Exit::Done)
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no id")]
struct NotAnId(String);

impl Explain for NotAnId {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        "choose words of a-z and 0-9 joined by single hyphens, such as 'fix-parser'".to_owned()
    }
}

fn new(id: &str, out: Option<PathBuf>) -> Result<Exit, Error> {
    let text = manifest::starter(id);
    // Whatever is not an id makes a file that has faults, or another id than was given.
    match manifest::Manifest::parse(text.as_bytes(), "the new manifest") {
        Ok(made) if made.id == id => {}
        Ok(_) | Err(_) => return Err(NotAnId(id.to_owned()).into()),
    }
    match out {
        None => output::line_out(text.trim_end())?,
        Some(path) => {
            file::create(&path, text.as_bytes(), file::Access::PUBLIC)?;
            output::progress(&format!("wrote {}", path.display()));
        }
    }
    Ok(Exit::Done)
}
