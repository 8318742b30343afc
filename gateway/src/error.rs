//! Why the gateway does not start or stops early. What a person is told about one request is in `refusal`.
use crate::{authn, manifests, sign};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot sign with --signing-dir")]
    Signing(#[source] Signing),
    #[error("cannot use --manifest-dir")]
    Manifests(#[source] ManifestDir),
    #[error("cannot use --tokens-file")]
    Tokens(#[source] TokensFile),
    #[error(transparent)]
    Server(#[from] transport::server::Error),
}

/// See its text; opaque, because nobody acts on the difference.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Signing(sign::Error);

/// See its text; opaque, because nobody acts on the difference.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ManifestDir(manifests::Error);

/// See its text; opaque, because nobody acts on the difference.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TokensFile(authn::Error);

impl From<sign::Error> for Error {
    fn from(cause: sign::Error) -> Self {
        Self::Signing(Signing(cause))
    }
}

impl From<manifests::Error> for Error {
    fn from(cause: manifests::Error) -> Self {
        Self::Manifests(ManifestDir(cause))
    }
}

impl From<authn::Error> for Error {
    fn from(cause: authn::Error) -> Self {
        Self::Tokens(TokensFile(cause))
    }
}
