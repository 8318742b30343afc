//! A person's yes as it is sent: with the scope that they chose and, where the plan demands it, their own signature.
//! Whoever makes one has shown the plan in full.
use event::{Scope, id::SessionId};
use time::OffsetDateTime;

use crate::{
    Error,
    error::{Exit, Explain},
    key::Signatory,
    session::{self, Ask, Verdict},
};

/// A yes would count for nothing.
#[derive(Debug, thiserror::Error)]
#[error("this needs a person's own signature, and no key is given")]
pub(crate) struct NoKey {
    who: Vec<String>,
}

impl NoKey {
    pub(crate) fn of(ask: &Ask) -> Self {
        Self { who: ask.needs() }
    }
}

impl Explain for NoKey {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        format!(
            "it waits for the yes of {}; whoever is one of them gives their key with --key FILE, as 'harness key new \
             --subject NAME --out DIR' makes it and an administrator lists it in the approvers file",
            self.who.join(", and the yes of ")
        )
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the plan does not offer the scope {}", .0.as_str())]
struct NotOffered(Scope);

impl Explain for NotOffered {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        "leave --scope out, or give --scope once".to_owned()
    }
}

/// The gateway's check that key and token are of one person; who the token's is, it alone knows.
#[derive(Debug, thiserror::Error)]
#[error(
    "your answer was not taken, because the key signs as '{subject}' and the token is somebody else's"
)]
struct OthersKey {
    subject: String,
    source: session::Error,
}

impl Explain for OthersKey {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        format!("give the token of '{}', or the key of the token's subject", self.subject)
    }
}

/// Why an answer was refused, where the key has to do with it in other words than the gateway's.
pub(crate) fn refused(error: session::Error, key: Option<&Signatory>) -> Error {
    match key {
        Some(key) if error.says("APPROVAL_MISMATCH") => {
            OthersKey { subject: key.subject().to_owned(), source: error }.into()
        }
        Some(_) | None => error.into(),
    }
}

/// Whether a yes in this scope and with this key could be made.
pub(crate) fn possible(
    ask: &Ask,
    scope: Option<Scope>,
    key: Option<&Signatory>,
) -> Result<(), Error> {
    if let Some(scope) = scope.filter(|scope| !ask.scopes().contains(scope)) {
        return Err(NotOffered(scope).into());
    }
    match ask.needs_signature() && key.is_none() {
        true => Err(NoKey::of(ask).into()),
        false => Ok(()),
    }
}

/// A yes; without a scope it is to what the plan offers first.
pub(crate) fn allow(
    session: SessionId,
    ask: &Ask,
    scope: Option<Scope>,
    key: Option<&Signatory>,
) -> Result<Verdict, Error> {
    possible(ask, scope, key)?;
    let scope = scope.or_else(|| ask.scopes().first().copied());
    let signed = match (key.filter(|_| ask.needs_signature()), scope) {
        (Some(key), Some(scope)) => {
            Some(key.sign(ask, session, scope, OffsetDateTime::now_utc())?)
        }
        (Some(_), None) | (None, _) => None,
    };
    Ok(Verdict::Allow { scope, approval: signed })
}

/// "counted: 1 of 2; still needed …": what the plan asks for, and that it takes other people.
pub(crate) fn still_needed(ask: &Ask, counted: acp::Counted) -> String {
    let acp::Counted { have, need } = counted;
    let more = need.saturating_sub(have);
    let people = if more == 1 { "1 other person" } else { "other people" };
    format!(
        "counted: {have} of {need}; it waits for {people}, until the plan has the yes of {}",
        ask.needs().join(", and the yes of ")
    )
}

#[cfg(test)]
mod tests {
    use receipt::Requirement;

    use super::*;
    use crate::session::samples;

    #[test]
    fn a_yes_that_could_not_count_is_not_made() {
        let mut plan = samples::plan(&["rm"]);
        let session = plan.session;
        let wide = allow(session, &samples::ask(&plan), Some(Scope::Run), None).unwrap_err();
        assert!(wide.line().contains("does not offer the scope run"), "{wide}");
        plan.approval = vec![Requirement { signature: true, ..Requirement::default() }];
        let unsigned = allow(session, &samples::ask(&plan), None, None).unwrap_err();
        assert_eq!(unsigned.exit(), Exit::Usage);
        assert!(unsigned.line().contains("harness key new"), "{unsigned}");
    }

    #[test]
    fn a_yes_without_a_scope_is_to_what_the_plan_offers_first() {
        let plan = samples::plan(&["rm"]);
        assert_eq!(
            allow(plan.session, &samples::ask(&plan), None, None).unwrap(),
            Verdict::Allow { scope: Some(Scope::Once), approval: None }
        );
    }

    #[test]
    fn after_a_counted_yes_it_is_said_who_is_still_needed() {
        let mut plan = samples::plan(&["rm"]);
        let roles = ["admin".to_owned()].into();
        plan.approval =
            vec![Requirement { roles, not_requester: true, count: 2, signature: false }];
        assert_eq!(
            still_needed(&samples::ask(&plan), acp::Counted { have: 1, need: 2 }),
            "counted: 1 of 2; it waits for 1 other person, until the plan has the yes of 2 different people with the \
             role admin, not the requester"
        );
    }
}
