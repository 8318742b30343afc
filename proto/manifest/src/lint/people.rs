//! Asks that nobody can answer: roles that are unknown, cannot answer, or have too few people. It knows people
//! only as the roster that it is given.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Layer;
use crate::place::At;
use crate::policy::Policy;
use crate::requirement::Requirement;
use crate::rulebook::Rulebook;

use super::{Code, Finding, Notes};

/// Roles that may answer an ask at all.
const ANSWERING: [&str; 2] = ["operator", "admin"];
/// Roles that people have and that never answer.
const SILENT: [&str; 2] = ["viewer", "auditor"];

/// Who has which role, when that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    /// People by role.
    pub roles: BTreeMap<String, BTreeSet<String>>,
}

impl Roster {
    /// How many people have one of the roles; of any role that answers when none is named.
    fn people(&self, roles: &BTreeSet<String>) -> usize {
        let wanted = |role: &str| {
            if roles.is_empty() { ANSWERING.contains(&role) } else { roles.contains(role) }
        };
        let having = self.roles.iter().filter(|(role, _)| wanted(role));
        having.flat_map(|(_, people)| people).collect::<BTreeSet<_>>().len()
    }
}

pub(super) fn of_policy(policy: &Policy, roster: Option<&Roster>, notes: &mut Notes<'_>) {
    if let Some(requirement) = &policy.approvers {
        of_requirement(requirement, At::default(), "approvers", roster, notes);
    }
    for (action, pattern) in policy.patterns() {
        if let Some(requirement) = &pattern.terms.approvers {
            of_requirement(requirement, pattern.at, &pattern.name(action), roster, notes);
        }
    }
}

fn of_requirement(
    requirement: &Requirement,
    at: At,
    rule: &str,
    roster: Option<&Roster>,
    notes: &mut Notes<'_>,
) {
    let Requirement { roles, not_requester, count, signature: _ } = requirement;
    let is_known = |role: &str| match roster {
        Some(roster) => roster.roles.contains_key(role),
        None => ANSWERING.contains(&role) || SILENT.contains(&role),
    };
    for role in roles.iter().filter(|role| !is_known(role)) {
        notes.warn(Code::UnknownRole, at, rule, format!("nobody is known to have role {role}"));
    }
    if !roles.is_empty() && roles.iter().all(|role| SILENT.contains(&role.as_str())) {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        let text = format!("{} may not answer asks", roles.join(" and "));
        notes.error(Code::Unanswerable, at, rule, text);
        return;
    }
    let Some(roster) = roster else { return };
    let needed = usize::from(*count) + usize::from(*not_requester);
    let people = roster.people(roles);
    if people < needed {
        let text = format!("it takes {needed} people, the requester included, and {people} fit");
        notes.error(Code::Unanswerable, at, rule, text);
    }
}

/// Asks of two files that no role may answer together.
pub(super) fn across(rulebook: &Rulebook, found: &mut Vec<Finding>) {
    let sides = rulebook.sides();
    for (index, outer) in sides.iter().enumerate() {
        for inner in &sides[index + 1..] {
            let (Some(one), Some(other)) = (&outer.policy.approvers, &inner.policy.approvers)
            else {
                continue;
            };
            if one.and(other).is_none() {
                let text = format!(
                    "no role may answer for the {} and the {} both; what both ask is denied",
                    outer.layer.as_str(),
                    inner.layer.as_str()
                );
                let mut notes = Notes { layer: inner.layer, found: &mut *found };
                notes.error(Code::Unanswerable, At::default(), "approvers", text);
            }
        }
    }
    debug_assert!(sides.iter().all(|side| side.layer != Layer::System));
}
