//! What people run: connect, run, resume, patch, runs, audit, pki, up, demo and doctor. It asks and shows; it approves nothing by
//! itself and holds no policy.

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser as _, error::ErrorKind};

mod args;
mod audit;
mod commands;
mod connect;
mod demo;
mod doctor;
mod error;
pub mod escape;
pub mod file;
mod grants;
mod http;
mod key;
pub mod mesh;
mod output;
mod patch;
pub mod pki;
mod policy;
mod run;
mod runs;
pub mod session;
mod target;
mod terminal;
pub mod token;
mod up;
mod verdict;
mod words;

pub use args::Cli;
pub use error::{Error, Exit, Explain};
pub use target::Target;

use args::{Command, Unfit};

const NOTHING_ASKED: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// Runs one command line to its exit code. A failure is one line on stderr.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = match Cli::try_parse_from(args) {
        Ok(cli) => blocking(cli),
        // Nothing was asked for: that is answered with what could be.
        Err(error) if error.kind() == NOTHING_ASKED => {
            output::say(error.to_string().trim_end());
            Ok(Exit::Usage)
        }
        Err(error) if error.use_stderr() => Err(Unfit::from_clap(&error).into()),
        Err(help) => {
            output::line_out(help.to_string().trim_end()).map(|()| Exit::Done).map_err(Error::from)
        }
    };
    match exit {
        Ok(exit) => exit.into(),
        Err(error) => {
            for detail in error.details() {
                output::say(&detail);
            }
            output::say(&format!("harness: {}", error.line()));
            error.exit().into()
        }
    }
}

fn blocking(cli: Cli) -> Result<Exit, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(NoRuntime)?;
    let exit = runtime.block_on(perform(cli));
    // A line that is still being typed must not hold the end up.
    runtime.shutdown_background();
    exit
}

async fn perform(Cli { command }: Cli) -> Result<Exit, Error> {
    match command {
        Command::Up(args) => up::up(args).await,
        Command::Run(args) => run::run(args).await,
        Command::Resume(args) => run::resume(args).await,
        Command::Connect(args) => connect::connect(args).await,
        Command::Patch(command) => patch::patch(command).await,
        Command::Grants(command) => grants::grants(command).await,
        Command::Runs(command) => runs::runs(command).await,
        Command::Audit(command) => audit::audit(command).await,
        Command::Manifest(command) => policy::policy(command).await,
        Command::Pki(command) => commands::pki(command),
        Command::Token(command) => commands::token(command),
        Command::Key(command) => key::key(command),
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Demo(args) => demo::demo(args).await,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("can not start")]
struct NoRuntime(#[source] std::io::Error);

impl Explain for NoRuntime {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "check the limits of processes and open files".to_owned()
    }
}
