//! `runs cleanup`: ends what held runs keep of a machine while their services do not run. What the runs have recorded
//! stays.
use std::path::PathBuf;

use clap::Subcommand;

use crate::{
    Error,
    error::Exit,
    escape,
    mesh::{self, beside_this_program},
    output,
};

const EXAMPLES: &str = "\
Examples:
  harness runs cleanup --state ./mesh

A held run keeps its private copy, which may be a mount, also while its services do not run. This ends all of them:
their containers, mounts and copies. It is refused while 'harness up' runs over the directory.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Runs {
    /// End the containers, mounts and private copies that held runs keep
    Cleanup {
        /// State directory of a mesh that does not run
        #[arg(long, value_name = "DIR")]
        state: PathBuf,
    },
}

pub(crate) fn runs(command: Runs) -> Result<Exit, Error> {
    let Runs::Cleanup { state } = command;
    let ended = mesh::cleanup(&state, &beside_this_program()?)?;
    output::line_out(&escape::line(&ended))?;
    Ok(Exit::Done)
}
