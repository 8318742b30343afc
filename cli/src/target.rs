//! Which gateway a command talks to and as whom: a state directory, or an address with its CA and token file.
use std::path::{Path, PathBuf};

use acp::{
    client::{Bearer, Client, ConnectError, Endpoint, EndpointRefused, Events, Limits, Options},
    token::{NotToken, Token},
};

use event::id::SessionId;

use crate::{
    error::{Exit, Explain},
    file,
    mesh::{self, Known},
    token,
};

#[derive(Debug, clap::Args)]
pub struct Target {
    /// State directory of a mesh that 'harness up' made
    #[arg(long, value_name = "DIR", required_unless_present = "gateway", conflicts_with_all = ["gateway", "ca", "token_file"])]
    state: Option<PathBuf>,

    /// Address of a gateway: wss://HOST:PORT (ws:// on this machine only)
    #[arg(long, value_name = "URL", requires = "token_file")]
    gateway: Option<String>,

    /// CA bundle (PEM) that vouches for the gateway
    #[arg(long, value_name = "FILE", requires = "gateway")]
    ca: Option<PathBuf>,

    /// File that holds your API token and nothing else
    #[arg(long, value_name = "FILE", requires = "gateway")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Mesh(#[from] mesh::Error),
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("no gateway is named")]
    Nothing,
    #[error("can not use the address '{shown}'")]
    Endpoint { shown: String, source: EndpointRefused },
    #[error("{} holds no API token", path.display())]
    Token { path: PathBuf, source: NotToken },
    #[error("{} holds no API token", path.display())]
    Bearer { path: PathBuf },
    #[error("wss:// without a CA bundle")]
    NoCa,
    #[error("can not connect to {endpoint}")]
    Connect { endpoint: String, source: ConnectError },
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Mesh(error) => error.exit(),
            Self::File(error) => error.exit(),
            Self::Connect { .. } => Exit::Failed,
            Self::Nothing
            | Self::Endpoint { .. }
            | Self::Token { .. }
            | Self::Bearer { .. }
            | Self::NoCa => Exit::Usage,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Mesh(error) => return error.advice(),
            Self::File(error) => return error.advice(),
            Self::Nothing => "give --state DIR, or --gateway, --ca and --token-file",
            Self::Endpoint { .. } => "give --gateway wss://HOST:PORT and the token in a file",
            Self::Token { .. } | Self::Bearer { .. } => {
                "put one token into it, as 'harness token create' printed it"
            }
            Self::NoCa => "give --ca the bundle of this installation",
            Self::Connect { source, .. } => match source {
                ConnectError::Reach(_) | ConnectError::Timeout => {
                    "start it with 'harness up', or check the address"
                }
                ConnectError::Secure(_)
                | ConnectError::Ca(_)
                | ConnectError::NoCa
                | ConnectError::Tls(_) => "check --ca and that the address is the gateway's",
                ConnectError::NotLoopback => "use wss://",
                ConnectError::Unauthenticated => "mint another with 'harness token create'",
                ConnectError::Rejected(_) | ConnectError::Handshake(_) => {
                    "check that the address is the gateway's"
                }
            },
        }
        .to_owned()
    }
}

impl Target {
    pub(crate) fn of_state(state: PathBuf) -> Self {
        Self { state: Some(state), gateway: None, ca: None, token_file: None }
    }

    pub(crate) fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Opens the connection; nothing is said on it yet.
    pub(crate) async fn connect(&self) -> Result<(Client, Events), Error> {
        let options = self.options()?;
        let endpoint = options.endpoint.to_string();
        Client::connect(options).await.map_err(|source| Error::Connect { endpoint, source })
    }

    /// The same target, as flags of a next command.
    pub(crate) fn flags(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let flags = [
            ("--state", self.state.as_deref().map(path)),
            ("--gateway", self.gateway.clone()),
            ("--ca", self.ca.as_deref().map(path)),
            ("--token-file", self.token_file.as_deref().map(path)),
        ];
        flags
            .into_iter()
            .filter_map(|(flag, value)| Some([flag.to_owned(), value?]))
            .flatten()
            .collect()
    }

    /// How what happened in a session can be looked up.
    pub(crate) fn lookup(&self, session: SessionId) -> String {
        let Some(state) = &self.state else {
            return format!("an auditor finds it in the ledger under session {session}");
        };
        let words = ["harness", "audit", "query", "--state", &state.display().to_string()];
        let words = words.map(str::to_owned).into_iter();
        let words: Vec<_> = words.chain(["--session".to_owned(), session.to_string()]).collect();
        format!("see it with '{}'", manifest::exec_subject(&words))
    }

    /// Whose token it is, where a state directory that this person may read says so.
    pub(crate) fn subject(&self) -> Option<String> {
        let layout = mesh::Layout::new(self.state.as_deref()?);
        let token = Token::parse(file::read_text(&layout.token()).ok()?.trim()).ok()?;
        token::subject(&layout.tokens(), &token).ok()?
    }

    /// The only workspace of a mesh, if it has just one.
    pub(crate) fn only_workspace(&self) -> Result<Option<String>, Error> {
        let Some(state) = &self.state else { return Ok(None) };
        let known = Known::read(state)?;
        Ok(match known.workspaces.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        })
    }

    fn options(&self) -> Result<Options, Error> {
        let (url, ca, token_file) = match (&self.state, &self.gateway, &self.token_file) {
            (Some(state), ..) => {
                let known = Known::read(state)?;
                (known.gateway, Some(known.ca), known.token_file)
            }
            (None, Some(gateway), Some(token_file)) => {
                (gateway.clone(), self.ca.clone(), token_file.clone())
            }
            (None, ..) => return Err(Error::Nothing),
        };
        let endpoint: Endpoint =
            url.parse().map_err(|source| Error::Endpoint { shown: shown(&url), source })?;
        let ca_pem = match ca {
            Some(ca) => file::read(&ca)?,
            None if url.starts_with("wss:") => return Err(Error::NoCa),
            None => Vec::new(),
        };
        Ok(Options { endpoint, ca_pem, bearer: bearer(&token_file)?, limits: Limits::default() })
    }
}

/// A token of ours is checked for typing errors before it travels; other bearers are the gateway's to judge.
fn bearer(path: &Path) -> Result<Bearer, Error> {
    let text = file::read_text(path)?;
    let text = text.trim();
    if text.starts_with("hns_") {
        let token =
            Token::parse(text).map_err(|source| Error::Token { path: path.to_owned(), source })?;
        return Ok(Bearer::from(&token));
    }
    Bearer::new(text).map_err(|_| Error::Bearer { path: path.to_owned() })
}

/// An address that was refused may hold a credential, so only what stands before one is repeated.
fn shown(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match url.contains('@') || url.contains('?') || url.contains("hns_") {
        true => format!("{scheme}://…"),
        false => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(gateway: &str, dir: &Path) -> Target {
        let token_file = dir.join("token");
        std::fs::write(&token_file, "opaque").unwrap();
        Target {
            state: None,
            gateway: Some(gateway.to_owned()),
            ca: None,
            token_file: Some(token_file),
        }
    }

    #[test]
    fn addresses_that_would_leak_are_refused_without_being_repeated() {
        let dir = tempfile::tempdir().unwrap();
        for (url, shown) in [
            ("ws://gateway.example:80", "ws://gateway.example:80"),
            ("wss://me:secret@gateway.example", "wss://…"),
            ("wss://gateway.example/?token=secret", "wss://…"),
            ("https://gateway.example", "https://gateway.example"),
        ] {
            let error = crate::Error::from(target(url, dir.path()).options().unwrap_err());
            assert_eq!(error.exit(), Exit::Usage);
            assert!(error.line().contains(shown) && !error.line().contains("secret"), "{error}");
        }
    }

    #[test]
    fn secure_addresses_need_a_ca_and_loopback_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(target("wss://gateway.example", dir.path()).options(), Err(Error::NoCa)));
        target("ws://127.0.0.1:1", dir.path()).options().unwrap();
    }

    #[test]
    fn a_session_is_looked_up_with_a_command_that_is_complete() {
        let session = SessionId::nil();
        let told = Target::of_state("./mesh".into()).lookup(session);
        assert_eq!(
            told,
            format!("see it with 'harness audit query --state ./mesh --session {session}'")
        );
        let words = told.trim_start_matches("see it with '").trim_end_matches('\'').split(' ');
        <crate::Cli as clap::Parser>::try_parse_from(words).unwrap();
    }

    #[test]
    fn a_mistyped_token_is_noticed_before_it_travels() {
        let dir = tempfile::tempdir().unwrap();
        let target = target("ws://127.0.0.1:1", dir.path());
        let mut token = Token::mint(&[9; 38]).reveal().to_owned();
        token.replace_range(10..11, if &token[10..11] == "x" { "y" } else { "x" });
        std::fs::write(dir.path().join("token"), token).unwrap();
        assert!(matches!(target.options(), Err(Error::Token { .. })));
    }
}
