//! Whose own signatures count, as the administrator lists them: a key, whose it is, and as what they may sign. The
//! gateway has no say in it.

use std::collections::{BTreeMap, BTreeSet};

use event::Digest;
use receipt::{Approver, PublicKey, Role};
use serde::Deserialize;

/// By subject and key id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Approvers(BTreeMap<(String, Digest), Approver>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotApprovers {
    #[error("not UTF-8; save the file as UTF-8")]
    Text,
    #[error("{0}")]
    Yaml(String),
    #[error("approvers[{0}]: the subject is empty; name the person as the gateway does")]
    Subject(usize),
    #[error("approvers[{0}]: {1}; write an Ed25519 public key, its 32 bytes in base64 or a PEM")]
    Key(usize, receipt::NotAKey),
    #[error("approvers[{0}]: the key is listed before; each key is one person's, once")]
    Twice(usize),
    #[error("approvers[{0}]: no roles; list at least one")]
    NoRole(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    approvers: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    subject: String,
    key: String,
    roles: BTreeSet<Role>,
}

impl Approvers {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, NotApprovers> {
        let text = std::str::from_utf8(bytes).map_err(|_| NotApprovers::Text)?;
        let File { approvers } =
            serde_saphyr::from_str(text).map_err(|error| NotApprovers::Yaml(error.to_string()))?;
        let (mut keys, mut listed) = (BTreeSet::new(), BTreeMap::new());
        for (at, Listed { subject, key, roles }) in approvers.into_iter().enumerate() {
            if subject.trim().is_empty() {
                return Err(NotApprovers::Subject(at));
            }
            let key = PublicKey::parse(&key).map_err(|error| NotApprovers::Key(at, error))?;
            // One key under two names would count for two people.
            if !keys.insert(key) {
                return Err(NotApprovers::Twice(at));
            }
            if roles.is_empty() {
                return Err(NotApprovers::NoRole(at));
            }
            let roles = roles.iter().map(|role| role.as_str().to_owned()).collect();
            listed.insert((subject, key.id()), Approver { key, roles });
        }
        Ok(Self(listed))
    }

    pub(crate) fn find(&self, subject: &str, key: Digest) -> Option<Approver> {
        self.0.get(&(subject.to_owned(), key)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::{Approvers, NotApprovers};

    const ADA: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const BOB: &str = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn row(subject: &str, key: &str, roles: &str) -> String {
        format!("  - {{subject: {subject}, key: '{key}', roles: {roles}}}\n")
    }

    fn parse(rows: &[String]) -> Result<Approvers, NotApprovers> {
        Approvers::parse(format!("approvers:\n{}", rows.concat()).as_bytes())
    }

    #[test]
    fn a_list_that_says_something_else_is_refused_as_a_whole() {
        let ada = || row("ada", ADA, "[operator]");
        for text in ["", "[]", "approvers: x", "approver: []", "approvers: []\nmore: 1", "a: b: c"]
        {
            let refused = Approvers::parse(text.as_bytes());
            assert!(matches!(refused, Err(NotApprovers::Yaml(_))), "{text}: {refused:?}");
        }
        assert_eq!(Approvers::parse(b"\xff"), Err(NotApprovers::Text));
        let wrong_role = parse(&[row("ada", ADA, "[operater]")]);
        assert!(matches!(wrong_role, Err(NotApprovers::Yaml(_))), "{wrong_role:?}");
        assert_eq!(parse(&[row("''", ADA, "[operator]")]), Err(NotApprovers::Subject(0)));
        assert_eq!(parse(&[row("ada", ADA, "[]")]), Err(NotApprovers::NoRole(0)));
        assert!(matches!(parse(&[row("ada", "AAAA", "[admin]")]), Err(NotApprovers::Key(0, _))));
        let two_names = parse(&[ada(), row("eve", ADA, "[operator]")]);
        assert_eq!(two_names, Err(NotApprovers::Twice(1)));
        assert_eq!(parse(&[ada(), ada()]), Err(NotApprovers::Twice(1)));
    }

    #[test]
    fn a_key_counts_for_its_own_person_only() {
        let list = parse(&[row("ada", ADA, "[operator]"), row("ada", BOB, "[admin]")]).unwrap();
        let key = |text| receipt::PublicKey::parse(text).unwrap();
        let found = list.find("ada", key(BOB).id()).unwrap();
        assert_eq!((found.key, found.roles), (key(BOB), ["admin".to_owned()].into()));
        assert_eq!(list.find("eve", key(ADA).id()), None);
        assert_eq!(Approvers::parse(b"approvers: []").unwrap().find("ada", key(ADA).id()), None);
    }
}
