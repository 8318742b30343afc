//! Where a command writes: results and documents to stdout, progress to stderr. It never writes a secret by itself.
use std::io::{self, Write as _};

use serde::Serialize;

use crate::{
    error::{Exit, Explain},
    escape,
};

/// A machine-readable result: one line of JSON that carries its version and kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, T> {
    schema_version: u32,
    kind: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("can not write to stdout")]
    Write(#[source] io::Error),
    #[error("can not write the result as JSON")]
    Encode(#[source] serde_json::Error),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        Exit::Failed
    }
    fn advice(&self) -> String {
        "check what stdout is connected to".to_owned()
    }
}

/// Prints one document of `kind`. What a terminal would obey or hide is escaped; the document reads the same.
pub(crate) fn document<T: Serialize>(kind: &str, body: &T) -> Result<(), Error> {
    let line = serde_json::to_string(&Document { schema_version: 1, kind, body })
        .map_err(Error::Encode)?;
    line_out(&escape::json_text(&line))
}

/// Prints a line as it is: the caller has escaped what came from elsewhere.
pub(crate) fn line_out(line: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Error::Write)
}

/// Tells the person who waits how far it is. Escaped here; the line may hold several lines of text.
pub(crate) fn progress(text: &str) {
    say(&escape::block(text));
}

/// The same for text that is escaped already.
pub(crate) fn say(text: &str) {
    // A closed stderr has no reader who could be told.
    drop(writeln!(io::stderr().lock(), "{text}"));
}
