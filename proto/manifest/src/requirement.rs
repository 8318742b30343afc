//! Who may answer an ask, and how many of them. It knows no person.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What the answers to an ask must be, so that they count as an allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// One of these; empty is any.
    #[serde(default)]
    pub roles: BTreeSet<String>,
    /// Not the person whose session asks.
    #[serde(default)]
    pub not_requester: bool,
    /// Different people; at least one.
    #[serde(default = "one")]
    pub count: u8,
    /// Each answer carries the person's own signature.
    #[serde(default)]
    pub signature: bool,
}

fn one() -> u8 {
    1
}

impl Default for Requirement {
    fn default() -> Self {
        Self { roles: BTreeSet::new(), not_requester: false, count: 1, signature: false }
    }
}

impl Requirement {
    /// Anybody who may answer at all.
    pub fn is_trivial(&self) -> bool {
        *self == Self::default()
    }

    /// What satisfies both; nothing when no role satisfies both.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let roles = match (self.roles.is_empty(), other.roles.is_empty()) {
            (true, _) => other.roles.clone(),
            (_, true) => self.roles.clone(),
            (false, false) => {
                let common: BTreeSet<_> = self.roles.intersection(&other.roles).cloned().collect();
                if common.is_empty() {
                    return None;
                }
                common
            }
        };
        Some(Self {
            roles,
            not_requester: self.not_requester || other.not_requester,
            count: self.count.max(other.count),
            signature: self.signature || other.signature,
        })
    }

    /// Whether whatever satisfies `self` also satisfies `other`.
    pub fn covers(&self, other: &Self) -> bool {
        let roles =
            other.roles.is_empty() || !self.roles.is_empty() && self.roles.is_subset(&other.roles);
        roles
            && self.not_requester >= other.not_requester
            && self.count >= other.count
            && self.signature >= other.signature
    }
}

#[cfg(test)]
mod tests {
    use super::Requirement;

    fn roles(roles: &[&str]) -> Requirement {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Requirement { roles, ..Requirement::default() }
    }

    #[test]
    fn roles_that_have_nobody_in_common_cannot_be_met() {
        assert_eq!(roles(&["admin"]).and(&roles(&["operator"])), None);
    }

    #[test]
    fn both_together_ask_for_the_most_of_each() {
        let one = Requirement { count: 2, ..roles(&["admin", "operator"]) };
        let other = Requirement { not_requester: true, signature: true, ..roles(&["operator"]) };
        let both =
            Requirement { not_requester: true, count: 2, signature: true, ..roles(&["operator"]) };
        assert_eq!(one.and(&other), Some(both.clone()));
        assert_eq!(roles(&[]).and(&roles(&["admin"])), Some(roles(&["admin"])));
        assert!(both.covers(&one) && both.covers(&other) && !one.covers(&both));
    }
}
