//! Verifies a whole log against its head and, if there is one, against a head that was noted earlier.
use std::{fmt, str::FromStr};

use ledger::{Fault, Finding, Hash, Head, Verifier};
use serde::{Serialize, Serializer};

use super::{
    Entry, Filter, Ledger,
    ledger::{Error as LedgerError, PAGE},
};
use crate::error::{Exit, Explain};

/// What verification came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Sound,
    Tampered,
    Incomplete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verification {
    pub(crate) verdict: Verdict,
    pub(crate) entries: u64,
    pub(crate) streams: u64,
    pub(crate) head: ShownHead,
    /// The first entry that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
}

/// `SIZE:ROOT`, the root as base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShownHead(Head);

/// A head from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownHead(Head);

#[derive(Debug, thiserror::Error)]
#[error("not SIZE:ROOT, as 'harness audit verify' prints a head")]
pub(crate) struct NotAHead;

impl FromStr for KnownHead {
    type Err = NotAHead;

    fn from_str(text: &str) -> Result<Self, NotAHead> {
        let (size, root) = text.split_once(':').ok_or(NotAHead)?;
        let size = size.parse().map_err(|_| NotAHead)?;
        let root = Hash::from_base64(root).map_err(|_| NotAHead)?;
        Ok(Self(Head { size, root }))
    }
}

impl fmt::Display for ShownHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.size, self.0.root.to_base64())
    }
}

impl Serialize for ShownHead {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// Nothing could be verified.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the ledger can not be fetched")]
    Fetch(#[from] LedgerError),
    #[error("the ledger's head has no root")]
    Head,
}

impl Explain for Unusable {
    fn exit(&self) -> Exit {
        Exit::Unusable
    }

    fn advice(&self) -> String {
        match self {
            Self::Fetch(error) => error.advice(),
            Self::Head => "see the log of audit-svc".to_owned(),
        }
    }
}

/// The ledger is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("the ledger is {}{}: {fault}", word(*.verdict), place(*.index))]
pub(crate) struct Unsound {
    verdict: Verdict,
    index: Option<u64>,
    fault: String,
}

impl Explain for Unsound {
    fn exit(&self) -> Exit {
        match self.verdict {
            Verdict::Incomplete => Exit::Incomplete,
            Verdict::Sound | Verdict::Tampered => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        "keep a copy of it as it is, and compare it with an export or a head that was kept elsewhere".to_owned()
    }
}

impl Verification {
    pub(crate) fn failure(&self) -> Option<Unsound> {
        let Self { verdict, index, fault, .. } = self.clone();
        let fault = fault.unwrap_or_default();
        (verdict != Verdict::Sound).then_some(Unsound { verdict, index, fault })
    }
}

/// Fetches everything up to the ledger's own head and verifies it.
pub(crate) async fn verify(
    ledger: &Ledger,
    origin: &str,
    known: Option<&KnownHead>,
) -> Result<Verification, Unusable> {
    let claimed = ledger.checkpoint().await?;
    let root = Hash::from_slice(&claimed.root).map_err(|_| Unusable::Head)?;
    let head = Head { size: claimed.size, root };
    let mut check = Check::new(origin, head, known.map(|known| known.0));
    while let Some(after) = check.wants() {
        let page = ledger.page(&Filter::default(), after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        for entry in &page {
            check.take(entry);
        }
    }
    Ok(check.finish())
}

/// A verification on its way.
struct Check {
    verifier: Verifier,
    head: Head,
    known: Option<Head>,
    finding: Option<Finding>,
    streams: u64,
}

impl Check {
    fn new(origin: &str, head: Head, known: Option<Head>) -> Self {
        Self { verifier: Verifier::new(origin), head, known, finding: None, streams: 0 }
    }

    /// After which place the next page begins, while there is one to fetch.
    fn wants(&self) -> Option<Option<u64>> {
        let size = self.verifier.frontier().size();
        (self.finding.is_none() && size < self.head.size).then(|| size.checked_sub(1))
    }

    /// What came after the head was asked for belongs to a later one.
    fn take(&mut self, entry: &Entry) {
        if self.finding.is_some() || self.verifier.frontier().size() >= self.head.size {
            return;
        }
        let Entry { log_index, tenant, writer, session_id, seq, event, envelope, salt, leaf_hash } =
            entry;
        let entry = ledger::Entry {
            log_index: *log_index,
            tenant,
            writer,
            session: session_id,
            seq: *seq,
            event,
            envelope,
            salt,
            leaf_hash,
        };
        if let Err(finding) = self.verifier.push(&entry) {
            // An entry with a later number than is due leaves a hole, which is its own kind of finding.
            let hole =
                matches!(finding.fault, Fault::LogIndex { expected } if *log_index > expected);
            self.finding = Some(match hole {
                true => Finding { fault: Fault::Size { expected: self.head.size }, ..finding },
                false => finding,
            });
        }
        self.meet_known();
    }

    fn meet_known(&mut self) {
        let frontier = self.verifier.frontier();
        if let (None, Some(known)) = (self.finding, self.known)
            && frontier.size() == known.size
            && frontier.root() != known.root
        {
            self.finding = Some(Finding { index: None, fault: Fault::Root });
        }
    }

    fn finish(mut self) -> Verification {
        self.meet_known();
        if let (None, Some(known)) = (self.finding, self.known)
            && self.head.size < known.size
        {
            let fault = Fault::Size { expected: known.size };
            self.finding = Some(Finding { index: Some(self.head.size), fault });
        }
        if self.finding.is_none() {
            match self.verifier.finish(&self.head) {
                Ok(summary) => self.streams = summary.streams,
                Err(finding) => self.finding = Some(finding),
            }
        }
        Verification {
            verdict: match self.finding.map(|finding| finding.fault) {
                None => Verdict::Sound,
                Some(Fault::Size { .. } | Fault::Truncated) => Verdict::Incomplete,
                Some(_) => Verdict::Tampered,
            },
            entries: self.verifier.frontier().size(),
            streams: self.streams,
            head: ShownHead(self.head),
            index: self.finding.and_then(|finding| finding.index),
            fault: self.finding.map(|finding| finding.fault.to_string()),
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "sound",
        Verdict::Tampered => "tampered with",
        Verdict::Incomplete => "incomplete",
    }
}

fn place(index: Option<u64>) -> String {
    index.map(|index| format!(" at entry {index}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
