//! Reads manifests and ceilings as the services will, and keeps which file each layer came from. It judges none.
use std::path::{Path, PathBuf};

use manifest::{Ceiling, Faults, Layer, Manifest, Rulebook};

use crate::{
    error::{Exit, Explain},
    file,
};

/// The files above a manifest.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Ceilings {
    /// The organisation's ceiling above it
    #[arg(long, value_name = "FILE")]
    pub(crate) ceiling: Option<PathBuf>,

    /// The tenant's ceiling above it
    #[arg(long, value_name = "FILE")]
    pub(crate) tenant_ceiling: Option<PathBuf>,
}

/// What a file turned out to be.
#[derive(Debug)]
pub(crate) enum Parsed {
    Manifest(Box<Manifest>),
    Ceiling(Ceiling),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{} can not be used", path.display())]
    Faults { path: PathBuf, faults: Faults },
    #[error("{} is a ceiling", .0.display())]
    NotAManifest(PathBuf),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::Faults { .. } | Self::NotAManifest(_) => Exit::Usage,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::File(error) => error.advice(),
            Self::Faults { .. } => "correct the places that are listed".to_owned(),
            Self::NotAManifest(_) => {
                "give a task manifest, and the ceiling with --ceiling or --tenant-ceiling"
                    .to_owned()
            }
        }
    }

    fn details(&self) -> Vec<String> {
        match self {
            Self::Faults { faults, .. } => {
                faults.as_slice().iter().map(ToString::to_string).collect()
            }
            Self::File(_) | Self::NotAManifest(_) => Vec::new(),
        }
    }
}

/// A manifest and its ceilings, with the names of their files.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) rules: Rulebook,
    manifest: PathBuf,
    ceilings: Ceilings,
}

impl Book {
    pub(crate) fn read(path: &Path, ceilings: &Ceilings) -> Result<Self, Error> {
        let manifest = match read(path)? {
            Parsed::Manifest(manifest) => manifest,
            Parsed::Ceiling(_) => return Err(Error::NotAManifest(path.to_owned())),
        };
        Self::of(*manifest, path, ceilings)
    }

    pub(crate) fn of(manifest: Manifest, path: &Path, ceilings: &Ceilings) -> Result<Self, Error> {
        let above = |path: &Option<PathBuf>| path.as_deref().map(ceiling).transpose();
        let (organisation, tenant) = (above(&ceilings.ceiling)?, above(&ceilings.tenant_ceiling)?);
        let rules = Rulebook::new(manifest, organisation, tenant);
        Ok(Self { rules, manifest: path.to_owned(), ceilings: ceilings.clone() })
    }

    /// The file that a layer's rules are written in; what is built in is in none.
    pub(crate) fn file(&self, layer: Layer) -> Option<String> {
        let path = match layer {
            Layer::Organisation => self.ceilings.ceiling.as_ref(),
            Layer::Tenant => self.ceilings.tenant_ceiling.as_ref(),
            Layer::Manifest => Some(&self.manifest),
            Layer::System => None,
        };
        path.map(|path| path.display().to_string())
    }
}

pub(crate) fn read(path: &Path) -> Result<Parsed, Error> {
    let bytes = file::read(path)?;
    parse(&bytes, path).map_err(|faults| Error::Faults { path: path.to_owned(), faults })
}

/// A file that says `kind` is meant as a ceiling, and is judged as one.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Parsed, Faults> {
    let name = path.display().to_string();
    let ceiling = match Ceiling::parse(bytes, &name) {
        Ok(ceiling) => return Ok(Parsed::Ceiling(ceiling)),
        Err(faults) => faults,
    };
    let says_kind = |line: &[u8]| line.starts_with(b"kind:") || line.starts_with(b"kind :");
    if bytes.split(|byte| *byte == b'\n').any(says_kind) {
        return Err(ceiling);
    }
    Manifest::parse(bytes, &name).map(|manifest| Parsed::Manifest(Box::new(manifest)))
}

fn ceiling(path: &Path) -> Result<Ceiling, Error> {
    let bytes = file::read(path)?;
    Ceiling::parse(&bytes, &path.display().to_string())
        .map_err(|faults| Error::Faults { path: path.to_owned(), faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_says_kind_is_judged_as_a_ceiling() {
        let path = Path::new("x.yaml");
        let told = |text: &str| parse(text.as_bytes(), path).unwrap_err().to_string();
        assert!(told("kind: ceiling\nid: top\nfrob: 1\n").contains("x.yaml:3:1: "), "a ceiling");
        assert!(told("id: task\n").contains("goal"), "a manifest");
        let ceiling = parse(b"kind: ceiling\nid: top\n", path).unwrap();
        assert!(matches!(ceiling, Parsed::Ceiling(ceiling) if ceiling.id == "top"));
    }
}
