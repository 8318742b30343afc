//! `manifest validate`: every fault of every file, with its place.
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::{self, Parsed};
use crate::{
    Error,
    error::{Exit, Explain},
    escape, file, output,
};

#[derive(Serialize)]
struct Validation {
    ok: bool,
    manifests: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    /// `manifest` or `ceiling`; absent where it can not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<event::Digest>,
    faults: Vec<Place>,
}

#[derive(Serialize)]
struct Place {
    line: u64,
    column: u64,
    what: String,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} of the manifests can not be used")]
struct Invalid(usize);

impl Explain for Invalid {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        "correct the places that are listed".to_owned()
    }
}

pub(super) fn validate(files: &[PathBuf], json: bool) -> Result<Exit, Error> {
    let manifests = files.iter().map(|path| check(path)).collect::<Result<Vec<_>, _>>()?;
    let invalid = manifests.iter().filter(|checked| !checked.faults.is_empty()).count();
    if json {
        output::document("manifest-validation", &Validation { ok: invalid == 0, manifests })?;
    } else {
        for checked in &manifests {
            for Place { line, column, what } in &checked.faults {
                output::progress(&format!("{}:{line}:{column}: {what}", checked.file));
            }
            if let (Some(id), Some(digest)) = (&checked.id, &checked.digest) {
                output::line_out(&format!("{}: {id} {digest}", escape::line(&checked.file)))?;
            }
        }
    }
    if invalid > 0 { Err(Invalid(invalid).into()) } else { Ok(Exit::Done) }
}

fn check(path: &Path) -> Result<Checked, file::Error> {
    let file = path.display().to_string();
    let (form, id, digest) = match files::parse(&file::read(path)?, path) {
        Ok(Parsed::Manifest(manifest)) => ("manifest", manifest.id, manifest.digest),
        Ok(Parsed::Ceiling(ceiling)) => ("ceiling", ceiling.id, ceiling.digest),
        Err(faults) => {
            let place = |fault: &manifest::Fault| Place {
                line: fault.line,
                column: fault.column,
                what: fault.what.clone(),
            };
            let faults = faults.as_slice().iter().map(place).collect();
            return Ok(Checked { file, form: None, id: None, digest: None, faults });
        }
    };
    let faults = Vec::new();
    Ok(Checked { file, form: Some(form), id: Some(id), digest: Some(digest), faults })
}
