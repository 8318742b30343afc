//! The command tree, and what a person is told whose command line does not fit it.
use clap::{Parser, Subcommand};

use crate::{
    audit, commands, connect, demo, doctor,
    error::{Exit, Explain},
    grants, key, patch, policy, run, runs, up,
};

/// A permissioned runtime for coding agents
#[derive(Debug, Parser)]
#[command(name = "harness", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the five services here and keep them running
    Up(up::Args),
    /// Run a prompt; pause where a rule asks
    Run(run::RunArgs),
    /// Answer a paused run and follow it
    Resume(run::ResumeArgs),
    /// Run a prompt and answer each ask at this terminal
    Connect(connect::Args),
    /// Read what an open ask would import
    #[command(subcommand)]
    Patch(patch::Patch),
    /// List or revoke allows that stand for the rest of a run
    #[command(subcommand)]
    Grants(grants::Grants),
    /// Cancel a run, or end what held runs keep
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Read or verify the ledger
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Write, check, explain, test and compare policy files
    #[command(subcommand)]
    Manifest(policy::Policy),
    /// Make an authority and issue certificates
    #[command(subcommand)]
    Pki(commands::Pki),
    /// Mint API tokens
    #[command(subcommand)]
    Token(commands::TokenCommand),
    /// Make a person's own signing key
    #[command(subcommand)]
    Key(key::Key),
    /// Check whether this machine can run the services
    Doctor(doctor::Args),
    /// Show the boundaries hold, with a hostile repository and real containers
    Demo(demo::Args),
}

/// A command line that clap refused, as one line.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Unfit {
    what: String,
    tip: Option<String>,
}

impl Unfit {
    /// The first paragraph of clap's message says what; a tip, if any, what to do.
    pub(crate) fn from_clap(error: &clap::Error) -> Self {
        let text = error.to_string();
        let mut paragraphs = text.split("\n\n");
        let first = paragraphs.next().unwrap_or_default();
        let what = joined(first.trim_start_matches("error: "));
        let tips =
            paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
        let tip = tips.map(joined).next();
        Self { what, tip }
    }
}

impl Explain for Unfit {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn advice(&self) -> String {
        self.tip
            .clone()
            .unwrap_or_else(|| "see 'harness --help' and 'harness COMMAND --help'".to_owned())
    }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one_line() {
        let unfit = |words: &[&str]| {
            let error = Cli::try_parse_from(["harness"].iter().chain(words)).unwrap_err();
            crate::Error::from(Unfit::from_clap(&error)).line()
        };
        assert_eq!(
            unfit(&["up", "--sate", "x"]),
            "unexpected argument '--sate' found; a similar argument exists: '--state'"
        );
        assert_eq!(
            unfit(&["token", "create", "--tenant", "t"]),
            "the following required arguments were not provided: --tokens-file <FILE> --subject <NAME> --role <ROLE> \
             --expires <DURATION>; see 'harness --help' and 'harness COMMAND --help'"
        );
        assert!(unfit(&["resume", "--state", "x", "r"]).contains("<--approve|--deny>"));
        assert!(!unfit(&["frobnicate"]).contains('\n'));
    }

    #[test]
    fn every_command_shows_examples_that_it_would_accept() {
        let mut checked = 0;
        let mut commands: Vec<clap::Command> = Cli::command().get_subcommands().cloned().collect();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter_map(|line| line.strip_prefix("  harness ")) {
                let words = words(line);
                let parsed = Cli::try_parse_from(["harness".to_owned()].into_iter().chain(words));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                checked += 1;
            }
        }
        assert!(checked >= 20, "only {checked} examples");
    }

    /// Words of an example: blanks separate, double quotes hold together.
    fn words(line: &str) -> Vec<String> {
        line.split('"').enumerate().fold(Vec::new(), |mut words, (index, part)| {
            match index % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
            words
        })
    }
}
