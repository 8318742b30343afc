//! The files of a TLS directory as bytes; it judges their permissions, not what they say.

use std::{
    fmt, fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::Error;

/// The files of a TLS directory, in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The leaf, then intermediates.
    pub chain: Vec<u8>,
    /// The leaf's private key.
    pub key: Vec<u8>,
    /// The issuers of services.
    pub ca: Vec<u8>,
    /// The issuers of auditors, where auditors are served.
    pub auditors_ca: Option<Vec<u8>>,
    /// SPIFFE ids and serial numbers to refuse, one a line.
    pub denylist: Option<Vec<u8>>,
}

impl Pem {
    pub(super) fn read(dir: &Path) -> Result<Self, Error> {
        let need = |name: &str| {
            let found = read(&dir.join(name))?;
            found.ok_or_else(|| missing(&dir.join(name)))
        };
        let key = read_private(&dir.join("tls.key"))?;
        Ok(Self {
            chain: need("tls.crt")?,
            key,
            ca: need("ca.crt")?,
            auditors_ca: read(&dir.join("auditors-ca.crt"))?,
            denylist: denylist(dir)?,
        })
    }

    /// Whether everything but the deny list is the same.
    pub(super) fn same_keys(&self, other: &Self) -> bool {
        let Self { chain, key, ca, auditors_ca, denylist: _ } = self;
        (chain, key, ca, auditors_ca) == (&other.chain, &other.key, &other.ca, &other.auditors_ca)
    }
}

/// Never shows the key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").finish_non_exhaustive()
    }
}

pub(super) fn denylist(dir: &Path) -> Result<Option<Vec<u8>>, Error> {
    read(&dir.join("denylist"))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(unreadable(path, source)),
    }
}

/// Checks the mode of the very file that is read.
fn read_private(path: &Path) -> Result<Vec<u8>, Error> {
    let mut file = fs::File::open(path).map_err(|source| unreadable(path, source))?;
    let mode = file.metadata().map_err(|source| unreadable(path, source))?.mode();
    if mode & 0o077 != 0 {
        return Err(Error::Exposed { file: path.display().to_string() });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|source| unreadable(path, source))?;
    Ok(bytes)
}

fn missing(path: &Path) -> Error {
    unreadable(path, io::ErrorKind::NotFound.into())
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Read { file: path.display().to_string(), source }
}
