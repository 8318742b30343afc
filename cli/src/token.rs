//! People's API tokens: minted here, shown once, and kept by their digest only.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use acp::token::{self, RANDOM_BYTES, Token};
use clap::ValueEnum;
use time::OffsetDateTime;

use crate::{
    error::{Exit, Explain},
    file::{self, Access, Owner},
};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// What a token's holder may do, as the gateway knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Viewer,
    Operator,
    Admin,
    Auditor,
}

impl Role {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Auditor => "auditor",
        }
    }
}

/// Who will hold a token, and for how long.
#[derive(Debug, Clone)]
pub struct Holder {
    pub tenant: String,
    pub subject: String,
    pub roles: Vec<Role>,
    pub life: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{} is not a tokens file", path.display())]
    NotTokens { path: PathBuf, source: toml::de::Error },
    #[error("a token that lives longer than a year, or not at all")]
    Life,
    #[error("a token without a role")]
    NoRole,
    #[error("{0} is empty, longer than 128 bytes, or has control characters")]
    Name(&'static str),
    #[error("the system gives no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("can not write the tokens as TOML")]
    Encode(#[source] toml::ser::Error),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::NotTokens { .. } | Self::Life | Self::NoRole | Self::Name(_) => Exit::Usage,
            Self::Random(_) | Self::Encode(_) => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::File(error) => return error.advice(),
            Self::NotTokens { .. } => {
                "give --tokens-file the file that the gateway reads, or a new one"
            }
            Self::Life => "choose --expires between 1s and 365d",
            Self::NoRole => "give --role viewer, operator, admin or auditor",
            Self::Name(_) => "choose a short name",
            Self::Random(_) | Self::Encode(_) => "try again",
        }
        .to_owned()
    }
}

/// Adds a new token's digest to the file, which is made when it is not there, and returns the token.
/// `fresh` is what a file that is made gets; one that is there keeps its mode and owner.
pub fn create(path: &Path, holder: &Holder, fresh: Access) -> Result<Token, Error> {
    check(holder)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    // Two writers would lose one's token; the lock ends with the handle.
    let turn = File::open(parent).map_err(file::failed("open", parent))?;
    turn.lock().map_err(file::failed("lock", parent))?;

    let (mut known, access) = match fs::symlink_metadata(path) {
        Ok(found) => {
            let owner = Some(Owner { uid: found.uid(), gid: found.gid() });
            (read(path)?, Access { mode: found.mode() & 0o600, owner })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (token::File::default(), fresh)
        }
        Err(error) => return Err(file::failed("read", path)(error).into()),
    };
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(Error::Random)?;
    let minted = Token::mint(&random);
    let Holder { tenant, subject, roles, life } = holder.clone();
    known.token.push(token::Entry {
        id: minted.id().to_owned(),
        sha256: minted.sha256_hex(),
        tenant,
        subject,
        roles: roles.iter().map(|role| role.as_str().to_owned()).collect(),
        expires: whole_second(OffsetDateTime::now_utc() + life),
    });
    let text = toml::to_string_pretty(&known).map_err(Error::Encode)?;
    file::write(path, text.as_bytes(), access)?;
    Ok(minted)
}

/// Whether the file holds this token and it lives for `margin` longer.
pub fn holds(path: &Path, token: &Token, margin: Duration) -> Result<bool, Error> {
    let until = OffsetDateTime::now_utc() + margin;
    let digest = token.sha256_hex();
    Ok(read(path)?.token.iter().any(|entry| entry.sha256 == digest && entry.expires > until))
}

/// Whose token it is, if the file holds it.
pub(crate) fn subject(path: &Path, token: &Token) -> Result<Option<String>, Error> {
    let digest = token.sha256_hex();
    let entries = read(path)?.token.into_iter();
    Ok(entries.filter(|entry| entry.sha256 == digest).map(|entry| entry.subject).next())
}

/// Whose tokens have which role, by role; tokens that have expired are nobody's.
pub(crate) fn people(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let mut people: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let now = OffsetDateTime::now_utc();
    let living = read(path)?.token.into_iter().filter(|entry| entry.expires > now);
    for token::Entry { subject, roles, .. } in living {
        for role in roles {
            people.entry(role).or_default().insert(subject.clone());
        }
    }
    Ok(people)
}

fn read(path: &Path) -> Result<token::File, Error> {
    let text = file::read_text(path)?;
    toml::from_str(&text).map_err(|source| Error::NotTokens { path: path.to_owned(), source })
}

fn check(holder: &Holder) -> Result<(), Error> {
    let Holder { tenant, subject, roles, life } = holder;
    for (what, name) in [("the tenant", tenant), ("the subject", subject)] {
        if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
            return Err(Error::Name(what));
        }
    }
    if roles.is_empty() {
        return Err(Error::NoRole);
    }
    if life.as_secs() == 0 || *life > YEAR {
        return Err(Error::Life);
    }
    Ok(())
}

fn whole_second(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_nanosecond(0).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn holder() -> Holder {
        Holder {
            tenant: "local".to_owned(),
            subject: "ada".to_owned(),
            roles: vec![Role::Operator, Role::Viewer],
            life: Duration::from_secs(86_400),
        }
    }

    #[test]
    fn only_the_digest_is_kept_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let first = create(&path, &holder(), Access::PRIVATE).unwrap();
        let second = create(&path, &holder(), Access::PRIVATE).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for token in [&first, &second] {
            assert!(!text.contains(token.reveal()));
            assert!(text.contains(&token.sha256_hex()));
            assert!(holds(&path, token, Duration::ZERO).unwrap());
            assert!(!holds(&path, token, Duration::from_secs(2 * 86_400)).unwrap());
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let known = read(&path).unwrap();
        assert_eq!(known.token.len(), 2);
        assert_eq!(known.token[0].roles, ["operator", "viewer"]);
    }

    #[test]
    fn what_no_gateway_would_accept_is_refused_before_the_file_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        let forever = Holder { life: Duration::from_secs(366 * 86_400), ..holder() };
        let dead = Holder { life: Duration::ZERO, ..holder() };
        let nobody = Holder { subject: String::new(), ..holder() };
        let powerless = Holder { roles: Vec::new(), ..holder() };
        for wrong in [forever, dead, nobody, powerless] {
            assert_eq!(create(&path, &wrong, Access::PRIVATE).unwrap_err().exit(), Exit::Usage);
        }
        assert!(!path.exists());
        fs::write(&path, "hello").unwrap();
        assert!(matches!(create(&path, &holder(), Access::PRIVATE), Err(Error::NotTokens { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
    }
}
