//! `manifest lint`: what is well-formed and probably not meant, each with its place. It changes no verdict of anybody.
use std::{collections::BTreeSet, path::PathBuf};

use manifest::{Code, Finding, Layer, Level, Roster};
use serde::Serialize;

use super::files::{self, Book, Ceilings, Parsed};
use crate::{
    Error,
    error::{Exit, Explain},
    escape, output, token,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task manifests and ceilings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    ceilings: Ceilings,
    /// The gateway's tokens file: then a role that nobody has is found, and too few people
    #[arg(long, value_name = "FILE")]
    tokens_file: Option<PathBuf>,
    /// Fail at warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    ok: bool,
    findings: Vec<Found>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Found {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    line: u64,
    column: u64,
    layer: Layer,
    level: Level,
    code: Code,
    rule: String,
    text: String,
}

#[derive(Debug, thiserror::Error)]
#[error("{errors} errors and {warnings} warnings stand against the files")]
struct Against {
    errors: usize,
    warnings: usize,
}

impl Explain for Against {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "see docs/manifest.md for what each code means".to_owned()
    }
}

pub(super) fn lint(args: Args) -> Result<Exit, Error> {
    let Args { files, ceilings, tokens_file, deny_warnings, json } = args;
    let roster = tokens_file.as_deref().map(token::people).transpose()?;
    let roster = roster.map(|roles| Roster { roles });
    let mut all = BTreeSet::new();
    for path in &files {
        match files::read(path)? {
            Parsed::Manifest(manifest) => {
                let book = Book::of(*manifest, path, &ceilings)?;
                let found = book.rules.lint(roster.as_ref()).into_iter();
                all.extend(found.map(|finding| Found::of(book.file(finding.layer), finding)));
            }
            Parsed::Ceiling(ceiling) => {
                // Whose ceiling it is makes no difference to what is found in it alone.
                let found = manifest::lint_ceiling(&ceiling, Layer::Organisation, roster.as_ref());
                let file = Some(path.display().to_string());
                all.extend(found.into_iter().map(|finding| Found::of(file.clone(), finding)));
            }
        }
    }
    let errors = all.iter().filter(|found| found.level == Level::Error).count();
    let warnings = all.len() - errors;
    let ok = errors == 0 && (warnings == 0 || !deny_warnings);
    let findings: Vec<Found> = all.into_iter().collect();
    if json {
        output::document("policy-lint", &Document { ok, findings })?;
    } else {
        for found in &findings {
            output::line_out(&found.line())?;
        }
    }
    if ok { Ok(Exit::Done) } else { Err(Against { errors, warnings }.into()) }
}

impl Found {
    fn of(file: Option<String>, finding: Finding) -> Self {
        let Finding { layer, level, code, rule, text, at } = finding;
        Self { file, line: at.line, column: at.column, layer, level, code, rule, text }
    }

    fn line(&self) -> String {
        let Self { file, line, column, layer: _, level, code, rule, text } = self;
        let level = match level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        let (rule, text) = (escape::line(rule), escape::line(text));
        let file = escape::line(file.as_deref().unwrap_or_default());
        format!("{file}:{line}:{column}: {level} {}: {rule}: {text}", code.as_str())
    }
}
