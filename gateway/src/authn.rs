//! Who is at the other end: a bearer token, known by its digest only, to a person with roles. It decides who someone
//! is, never what they may do to which session.
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use acp::token::{File, Token};
use event::Digest;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use receipt::Role;
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;
use tracing::warn;
use transport::Chain;

/// An authenticated person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) tenant: String,
    pub(crate) subject: String,
    pub(crate) roles: Vec<Role>,
    token: Known,
}

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    id: String,
    digest: Digest,
    expires: OffsetDateTime,
}

impl Person {
    /// Opens sessions, prompts, answers and cancels.
    pub(crate) fn may_act(&self) -> bool {
        self.roles.iter().any(|role| matches!(role, Role::Operator | Role::Admin))
    }

    /// Reads sessions.
    pub(crate) fn may_watch(&self) -> bool {
        self.may_act() || self.roles.contains(&Role::Viewer)
    }

    /// Whoever proves that signing works; may nothing.
    pub(crate) fn nobody() -> Self {
        let token = Known {
            id: String::new(),
            digest: Digest::of(b""),
            expires: OffsetDateTime::UNIX_EPOCH,
        };
        Self { tenant: "none".to_owned(), subject: "none".to_owned(), roles: Vec::new(), token }
    }
}

/// Nobody is told why: a wrong token, an expired one and none are answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not authenticated")]
pub(crate) struct Unauthenticated;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {} (make a first token with harness token create)", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a tokens file", path.display())]
    Toml {
        path: PathBuf,
        #[source]
        source: toml::de::Error,
    },
    #[error("{}: token {id}: {fault}", path.display())]
    Entry { path: PathBuf, id: String, fault: &'static str },
}

/// The tokens file, read again when it has changed.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: PathBuf,
    loaded: Mutex<Loaded>,
}

#[derive(Clone, Debug)]
struct Loaded {
    stamp: Option<Stamp>,
    people: Arc<[Person]>,
}

/// What changes when a file does.
type Stamp = (SystemTime, u64, u64);

impl Tokens {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let stamp = stamp(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let people = load(path)?.into();
        Ok(Self {
            path: path.to_owned(),
            loaded: Mutex::new(Loaded { stamp: Some(stamp), people }),
        })
    }

    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<Person, Unauthenticated> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else { return Err(Unauthenticated) };
        let (scheme, token) =
            given.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Unauthenticated)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Unauthenticated);
        }
        let token = Token::parse(token).map_err(|_| Unauthenticated)?;
        let people = self.people();
        let known = people.iter().find(|person| person.token.id == token.id());
        // An unknown id costs the same comparison, against a digest that nothing has.
        let expected = known.map_or([0; 32], |person| *person.token.digest.as_bytes());
        let same = bool::from(expected.ct_eq(token.sha256().as_bytes()));
        match known {
            Some(person) if same && person.token.expires > OffsetDateTime::now_utc() => {
                Ok(person.clone())
            }
            Some(_) | None => Err(Unauthenticated),
        }
    }

    /// Whether the token that let this person in would still do so, with the same rights.
    pub(crate) fn is_current(&self, person: &Person) -> bool {
        person.token.expires > OffsetDateTime::now_utc() && self.people().contains(person)
    }

    fn people(&self) -> Arc<[Person]> {
        // The state is replaced as a whole, so a panic elsewhere leaves nothing half done in it.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let found = stamp(&self.path).ok();
        if found != loaded.stamp {
            *loaded = self.reload(found, &loaded);
        }
        loaded.people.clone()
    }

    /// A file that is gone lets nobody in; one that cannot be understood, perhaps half written, changes nothing.
    fn reload(&self, found: Option<Stamp>, last: &Loaded) -> Loaded {
        let people = match (found, load(&self.path)) {
            (None, _) => {
                warn!("the tokens file is gone; nobody is let in");
                Arc::from([])
            }
            (Some(_), Ok(people)) => people.into(),
            (Some(_), Err(error)) => {
                warn!(error = %Chain(&error), "the tokens file cannot be used; the last good stays in force");
                last.people.clone()
            }
        };
        Loaded { stamp: found, people }
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path)?;
    Ok((found.modified()?, found.len(), found.ino()))
}

fn load(path: &Path) -> Result<Vec<Person>, Error> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let file: File =
        toml::from_str(&text).map_err(|source| Error::Toml { path: path.to_owned(), source })?;
    let mut people: Vec<Person> = Vec::with_capacity(file.token.len());
    for entry in file.token {
        let id = entry.id.clone();
        let entry = person(entry).and_then(|person| {
            match people.iter().any(|known| known.token.id == id) {
                true => Err("the id is there twice"),
                false => Ok(person),
            }
        });
        people.push(entry.map_err(|fault| Error::Entry { path: path.to_owned(), id, fault })?);
    }
    Ok(people)
}

fn person(entry: acp::token::Entry) -> Result<Person, &'static str> {
    let acp::token::Entry { id, sha256, tenant, subject, roles, expires } = entry;
    let mut digest = [0; 32];
    hex::decode_to_slice(&sha256, &mut digest)
        .map_err(|_| "sha256 must have 64 hexadecimal digits")?;
    let named = |name: &str| (1..=128).contains(&name.len()) && !name.chars().any(char::is_control);
    if !named(&tenant) || !named(&subject) {
        return Err("tenant and subject must have 1 to 128 bytes without control characters");
    }
    let roles = roles.iter().map(|role| self::role(role)).collect::<Option<Vec<_>>>();
    let roles = roles
        .filter(|roles| !roles.is_empty())
        .ok_or("roles must be viewer, operator, admin or auditor")?;
    Ok(Person { tenant, subject, roles, token: Known { id, digest: digest.into(), expires } })
}

fn role(name: &str) -> Option<Role> {
    match name {
        "viewer" => Some(Role::Viewer),
        "operator" => Some(Role::Operator),
        "admin" => Some(Role::Admin),
        "auditor" => Some(Role::Auditor),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
