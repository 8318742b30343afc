//! An ask: what waits for an answer, and what its plan says about answers. It answers none.
use event::{
    Data, Digest, Event, PermissionRequested, Scope,
    id::{CallId, PermissionId, RunId},
};
use receipt::{Plan, Requirement};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use super::sheet;
use crate::words;

/// What waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    pub permission_id: PermissionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub plan_digest: Digest,
    /// Set where a child of the run asks, and not the run itself.
    #[serde(flatten)]
    pub child: Option<Child>,
    #[serde(serialize_with = "time::serde::rfc3339::serialize")]
    pub expires_at: OffsetDateTime,
    /// Which rule asks; after an answer that did not count, also why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub plan: Value,
}

/// Who asks for a run that began it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    #[serde(rename = "childRunId")]
    pub run: RunId,
    pub profile: String,
}

impl Ask {
    /// `None` where the event is no ask.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let Data::PermissionRequested(requested) = &event.data else { return None };
        let PermissionRequested {
            permission_id,
            action,
            subject,
            plan,
            plan_digest,
            expires_at,
            reason,
            child_run_id,
            profile,
            ..
        } = requested.clone();
        let run_id = plan.get("run").and_then(Value::as_str).and_then(|run| RunId::parse(run).ok());
        let child = child_run_id.map(|run| Child { run, profile: profile.unwrap_or_default() });
        Some(Self {
            permission_id,
            run_id,
            action,
            subject,
            plan_digest,
            child,
            expires_at,
            reason,
            plan,
        })
    }

    /// The call that waits for it, as its plan says.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        CallId::parse(self.plan.get("call")?.as_str()?).ok()
    }

    /// The patch that it would import, if it would import one.
    #[must_use]
    pub fn patch(&self) -> Option<Digest> {
        self.plan.get("patch")?.get("digest")?.as_str()?.parse().ok()
    }

    /// The plan as its executor wrote it; `None` where it is none.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        Plan::parse(&event::canon::to_bytes(&self.plan).ok()?).ok()
    }

    /// What an allow may cover; the first goes without saying.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        self.plan().map(|plan| plan.scopes).unwrap_or_default()
    }

    /// Whether an allow counts only with the person's own signature.
    #[must_use]
    pub fn needs_signature(&self) -> bool {
        let needed = self.plan().map(|plan| plan.approval).unwrap_or_default();
        needed.iter().any(|requirement| requirement.signature)
    }

    /// Whether no yes of whoever opened the session counts.
    #[must_use]
    pub fn excludes_requester(&self) -> bool {
        let needed = self.plan().map(|plan| plan.approval).unwrap_or_default();
        !needed.is_empty() && needed.iter().all(|requirement| requirement.not_requester)
    }

    /// Who must say yes, one sentence for each requirement.
    #[must_use]
    pub fn needs(&self) -> Vec<String> {
        let needed = self.plan().map(|plan| plan.approval).unwrap_or_default();
        let needed = if needed.is_empty() { vec![Requirement::default()] } else { needed };
        let sentence = |Requirement { roles, not_requester, count, signature }: &Requirement| {
            words::requirement(roles.iter().map(String::as_str), *not_requester, *count, *signature)
        };
        needed.iter().map(sentence).collect()
    }

    /// The whole of it, for a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        sheet::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::samples;

    #[test]
    fn an_ask_knows_what_its_plan_says_about_answers() {
        let mut plan = samples::plan(&["true"]);
        let ask = samples::ask(&plan);
        assert_eq!(ask.run_id, RunId::parse(samples::RUN).ok());
        assert_eq!((ask.scopes(), ask.needs_signature()), (vec![Scope::Once], false));
        assert_eq!(ask.needs(), ["1 person"]);
        plan.approval = vec![Requirement { signature: true, ..Requirement::default() }];
        let ask = samples::ask(&plan);
        assert!(ask.needs_signature());
        assert_eq!(ask.plan(), Some(plan));
    }

    #[test]
    fn a_person_reads_which_child_asks_and_what_a_new_one_is_told() {
        let plan =
            Plan { task: Some("look\u{202e}\naround".to_owned()), ..samples::plan(&["true"]) };
        let child = Child { run: RunId::nil(), profile: "explorer\u{1b}".to_owned() };
        let told = Ask { child: Some(child), ..samples::ask(&plan) }.render();
        let first = format!("A child of the run, explorer\\u{{1b}} {}, asks for ", RunId::nil());
        assert!(told.starts_with(&first), "{told}");
        let task = "what the child is told to do:\n  14 bytes, 2 lines: look\\u{202e}\\naround";
        assert!(told.contains(task), "{told}");
    }

    #[test]
    fn a_person_reads_why_they_are_asked_again() {
        let plan = samples::plan(&["true"]);
        let reason = Some("two-people; an earlier allow did not count:\u{1b}[2K bob".to_owned());
        let told = Ask { reason, ..samples::ask(&plan) }.render();
        let last = told.lines().last().unwrap();
        assert_eq!(last.trim(), "two-people; an earlier allow did not count:\\u{1b}[2K bob");
    }
}
