//! `manifest test`: the examples that files give of themselves, each told. With ceilings they are tried below these.
use std::path::{Path, PathBuf};

use manifest::{Command, Decision, Effect, Example, Faults, Layer, PolicyTest, exec_subject};
use serde::Serialize;

use super::files::{self, Book, Ceilings, Parsed};
use crate::{
    Error,
    error::{Exit, Explain},
    escape, file, output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Task manifests and ceilings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    ceilings: Ceilings,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    ok: bool,
    tests: Vec<Tried>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tried {
    file: String,
    line: u64,
    column: u64,
    ok: bool,
    /// What is expected, and what is so where that is not it.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<Layer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum Failing {
    #[error("{failed} of {all} tests do not hold")]
    Of { failed: usize, all: usize },
    /// Of a file whose reading tried its tests, only those are known that do not hold.
    #[error("tests that do not hold: {failed}; those that are not listed hold")]
    Some { failed: usize },
}

impl Explain for Failing {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "correct the rules or the tests; 'harness manifest explain' shows what decides".to_owned()
    }
}

pub(super) fn test(args: Args) -> Result<Exit, Error> {
    let Args { files, ceilings, json } = args;
    let (mut tests, mut counted) = (Vec::new(), true);
    for path in &files {
        let (found, all) = tried(path, &ceilings)?;
        tests.extend(found);
        counted &= all;
    }
    let (failed, all) = (tests.iter().filter(|test| !test.ok).count(), tests.len());
    if json {
        output::document("policy-tests", &Document { ok: failed == 0, tests })?;
    } else {
        for test in &tests {
            output::line_out(&test.told())?;
        }
        if failed == 0 {
            output::progress(&format!("{all} tests hold"));
        }
    }
    if failed == 0 { Ok(Exit::Done) } else { Err(not_held(failed, counted.then_some(all)).into()) }
}

fn not_held(failed: usize, all: Option<usize>) -> Failing {
    match all {
        Some(all) => Failing::Of { failed, all },
        None => Failing::Some { failed },
    }
}

/// What was tried, and whether it is all that the file has.
fn tried(path: &Path, ceilings: &Ceilings) -> Result<(Vec<Tried>, bool), Error> {
    let file = path.display().to_string();
    match files::parse(&file::read(path)?, path) {
        // Reading tried them.
        Ok(Parsed::Ceiling(ceiling)) => {
            Ok((ceiling.tests.iter().map(|test| Tried::holding(&file, test)).collect(), true))
        }
        Ok(Parsed::Manifest(manifest)) => {
            let tests = manifest.tests.clone();
            let book = Book::of(*manifest, path, ceilings)?;
            Ok((tests.iter().map(|test| Tried::under(&book, &file, test)).collect(), true))
        }
        Err(faults) if faults.as_slice().iter().all(|fault| is_of_a_test(&fault.what)) => {
            let failing = faults.as_slice().iter();
            Ok((failing.map(|fault| Tried::failing(&file, fault)).collect(), false))
        }
        Err(faults) => Err(unusable(path, faults).into()),
    }
}

fn unusable(path: &Path, faults: Faults) -> files::Error {
    files::Error::Faults { path: path.to_owned(), faults }
}

/// A file whose only faults are tests that do not hold is one whose tests were run.
fn is_of_a_test(what: &str) -> bool {
    what.strip_prefix("tests[").and_then(|rest| rest.split_once("] expects ")).is_some_and(
        |(index, rest)| {
            index.bytes().all(|byte| byte.is_ascii_digit()) && rest.contains("; it is ")
        },
    )
}

impl Tried {
    fn holding(file: &str, test: &PolicyTest) -> Self {
        Self {
            file: file.to_owned(),
            line: test.at.line,
            column: test.at.column,
            ok: true,
            text: expected(test),
            effect: Some(test.expect),
            layer: None,
            rule: test.rule.clone(),
        }
    }

    fn failing(file: &str, fault: &manifest::Fault) -> Self {
        Self {
            file: file.to_owned(),
            line: fault.line,
            column: fault.column,
            ok: false,
            text: fault.what.clone(),
            effect: None,
            layer: None,
            rule: None,
        }
    }

    fn under(book: &Book, file: &str, test: &PolicyTest) -> Self {
        let decision = decided(book, test);
        let Decision { effect, layer, rule, .. } = decision;
        let ok = effect == test.expect && test.rule.as_ref().is_none_or(|wanted| *wanted == rule);
        let mut text = expected(test);
        if !ok {
            text.push_str(&format!("; it is {} by {rule} of {}", effect.as_str(), layer.as_str()));
        }
        Self {
            ok,
            text,
            effect: Some(effect),
            layer: Some(layer),
            rule: Some(rule),
            ..Self::holding(file, test)
        }
    }

    fn told(&self) -> String {
        let Self { file, line, column, ok, text, .. } = self;
        let mark = if *ok { "ok  " } else { "FAIL" };
        format!("{mark} {}:{line}:{column}: {}", escape::line(file), escape::line(text))
    }
}

fn decided(book: &Book, test: &PolicyTest) -> Decision {
    let rules = &book.rules;
    match &test.on {
        Example::Nothing => rules.decide(test.action, None),
        Example::Subject(subject) => rules.decide(test.action, Some(subject)),
        Example::Argv(argv) => {
            let parts = rules.decide_exec(&Command::new(argv.iter().cloned()));
            Decision::strictest(parts).unwrap_or_else(|| rules.decide(test.action, None))
        }
    }
}

fn expected(test: &PolicyTest) -> String {
    let subject = match &test.on {
        Example::Nothing => String::new(),
        Example::Subject(subject) => format!(" on {subject}"),
        Example::Argv(argv) => format!(" on {}", exec_subject(argv)),
    };
    let rule = test.rule.as_ref().map(|rule| format!(" by {rule}")).unwrap_or_default();
    format!("{} for {}{subject}{rule}", test.expect.as_str(), test.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_whose_tests_were_run_has_nothing_but_failing_tests() {
        assert!(is_of_a_test("tests[12] expects allow for fs.read on x; it is deny by y"));
        for other in ["tests[0].expect is wrong", "goal is missing", "tests[0] names no program"] {
            assert!(!is_of_a_test(other), "{other}");
        }
        let text = "id: t\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\npermissions: {fs.read: deny}\n\
            tests: [{action: fs.read, subject: x, expect: allow}]\n";
        let faults = manifest::Manifest::parse(text.as_bytes(), "t").unwrap_err();
        assert!(faults.as_slice().iter().all(|fault| is_of_a_test(&fault.what)), "{faults}");
    }
}
