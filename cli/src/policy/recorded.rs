//! Decisions that were once asked for: out of the ledger, or out of a file of its entries. What is no such decision is
//! passed over; a line that is nothing at all is an error.
use std::path::{Path, PathBuf};

use event::Data;
use manifest::{Action, Recorded};
use serde_json::Value;

use crate::{
    audit::{Filter, Source},
    error::{Exit, Explain},
    file,
};

const KIND: &str = "policy.decision";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}:{line}: not an entry, not an event and not a document of entries", path.display())]
    NotAnEntry { path: PathBuf, line: usize },
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn advice(&self) -> String {
        "give what 'harness audit query --type policy.decision --json' prints".to_owned()
    }
}

/// Read as an auditor reads, through the same questions as `audit query`.
pub(super) async fn in_ledger(state: &Path) -> Result<Vec<Recorded>, crate::Error> {
    let ledger = Source::of_state(state.to_owned())?.open()?;
    let filter = Filter { kind: Some(KIND.to_owned()), ..Filter::default() };
    let entries = ledger.all(&filter).await?;
    let opened = entries.iter().filter_map(|entry| event::open(&entry.event).ok());
    Ok(opened.filter_map(|event| recorded(event.data)).collect())
}

/// A line for each: an event, an entry with one in it, or a document with a list of entries.
pub(super) fn in_file(path: &Path) -> Result<Vec<Recorded>, crate::Error> {
    let text = file::read_text(path)?;
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fault = || Error::NotAnEntry { path: path.to_owned(), line: index + 1 };
        let value: Value = serde_json::from_str(line).map_err(|_| fault())?;
        let entries = match value.get("entries") {
            Some(Value::Array(entries)) => entries.clone(),
            Some(_) | None => vec![value],
        };
        for entry in entries {
            let event = entry.get("event").unwrap_or(&entry).to_string();
            let event = event::open(event.as_bytes()).map_err(|_| fault())?;
            all.extend(recorded(event.data));
        }
    }
    Ok(all)
}

/// A subject may have been redacted: then it stands for itself, as it would be asked for again.
fn recorded(data: Data) -> Option<Recorded> {
    let Data::PolicyDecision(decision) = data else { return None };
    Some(Recorded { action: Action::named(&decision.action)?, subject: decision.subject })
}

#[cfg(test)]
mod tests {
    use event::{
        Digest, Effect, Event, PolicyDecision,
        id::{CallId, EventId},
    };
    use time::OffsetDateTime;

    use super::*;

    fn decision(subject: &str) -> Value {
        let data = PolicyDecision {
            call_id: CallId::nil(),
            plan_digest: Digest::of(b"plan"),
            action: "fs.read".to_owned(),
            subject: Some(subject.to_owned()),
            effect: Effect::Allow,
            reason: None,
            rule_id: None,
            layer: None,
            justification: None,
            matching: Vec::new(),
            manifest_digest: None,
            receipt_id: None,
        };
        let event = Event {
            id: EventId::nil(),
            at: OffsetDateTime::UNIX_EPOCH,
            actor: None,
            data: data.into(),
        };
        serde_json::from_slice(&event::seal(&event).unwrap().bytes).unwrap()
    }

    #[test]
    fn events_entries_and_documents_of_entries_are_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recorded.jsonl");
        let entry = serde_json::json!({"logIndex": 1, "event": decision("b")});
        let document =
            serde_json::json!({"kind": "audit-entries", "entries": [{"event": decision("c")}]});
        std::fs::write(&path, format!("{}\n\n{entry}\n{document}\n", decision("a"))).unwrap();
        let subjects: Vec<_> =
            in_file(&path).unwrap().into_iter().map(|recorded| recorded.subject.unwrap()).collect();
        assert_eq!(subjects, ["a", "b", "c"]);
    }

    #[test]
    fn a_line_that_is_nothing_of_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recorded.jsonl");
        for text in ["hello\n", "\n{}\n", "{\"event\":{\"type\":\"nothing\"}}\n"] {
            std::fs::write(&path, text).unwrap();
            let error = in_file(&path).unwrap_err();
            assert_eq!(error.exit(), Exit::Usage);
            let line = text.trim_end().lines().count();
            assert!(error.line().contains(&format!("recorded.jsonl:{line}: ")), "{error}");
        }
    }
}
