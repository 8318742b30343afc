//! placeholder
use crate::{Error, error::Exit};
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn demo(_: &Args) -> Result<Exit, Error> {
    Ok(Exit::Done)
}
