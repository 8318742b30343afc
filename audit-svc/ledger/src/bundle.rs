//! One session's entries as JSON lines, with proofs against one head: written here, verified here, on any machine.
//!
//! The first line is the head, then one line per entry, then the end with their number. Every line is canonical.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::canonical::{self, Malformed, Members, Object, Value};
use crate::envelope::Envelope;
use crate::hash::{Hash, leaf_hash};
use crate::proof::verify_inclusion;
use crate::verify::{Entry, Fault, Finding, Head, Streams, Summary, check};

const VERSION: u64 = 1;

/// The first line. An empty tenant stands for all.
pub fn bundle_head(log: &str, tenant: &str, session: &str, head: &Head) -> String {
    let mut line = Object::new();
    line.text("kind", "head");
    line.text("log", log);
    line.hash("root", &head.root);
    line.text("session", session);
    line.number("size", head.size);
    line.text("tenant", tenant);
    line.number("v", VERSION);
    line.finish()
}

/// One entry with its proof. `event` and `envelope` are UTF-8, as all canonical bytes are.
pub fn bundle_entry(
    log_index: u64,
    envelope: &str,
    event: &str,
    salt: &[u8],
    path: &[Hash],
) -> String {
    let mut line = Object::new();
    line.text("envelope", envelope);
    line.text("event", event);
    line.text("kind", "entry");
    line.number("log_index", log_index);
    line.raw("path", &canonical::list(path.iter().map(|hash| canonical::text(&hash.to_base64()))));
    line.text("salt", &STANDARD.encode(salt));
    line.finish()
}

/// The last line.
pub fn bundle_end(entries: u64) -> String {
    let mut line = Object::new();
    line.number("entries", entries);
    line.text("kind", "end");
    line.finish()
}

/// Verifies a bundle: each entry alone, its proof, and each stream from its beginning without a gap. That the streams
/// have not gone on after their last entry here, no bundle can say; the head must be compared with one that is trusted.
pub fn verify_bundle(lines: &[u8]) -> Result<Summary, Finding> {
    let mut lines = lines.split(|byte| *byte == b'\n').zip(1_u64..);
    let first = lines.next().ok_or(Finding { index: None, fault: Fault::Truncated })?;
    let bundle = parsed(first, BundleHead::parse)?;
    let mut streams = Streams::default();
    let mut entries = 0;
    let mut next = 0;
    while let Some(line) = lines.next() {
        let entry = match parsed(line, Line::parse)? {
            Line::Entry(entry) => entry,
            Line::End { entries: said } if said == entries => {
                return end(lines, bundle.head, entries, &streams);
            }
            Line::End { entries: said } => {
                return Err(Finding { index: None, fault: Fault::Size { expected: said } });
            }
        };
        let finding = |fault| Finding { index: Some(entry.log_index), fault };
        if entry.log_index < next {
            return Err(finding(Fault::LogIndex { expected: next }));
        }
        next = entry.log_index + 1;
        entry.verify(&bundle, &mut streams).map_err(finding)?;
        entries += 1;
    }
    Err(Finding { index: None, fault: Fault::Truncated })
}

fn end<'a>(
    rest: impl Iterator<Item = (&'a [u8], u64)>,
    head: Head,
    entries: u64,
    streams: &Streams,
) -> Result<Summary, Finding> {
    for (line, number) in rest {
        if !line.is_empty() {
            let cause = Malformed("a line after the end");
            return Err(Finding { index: None, fault: Fault::Line { number, cause } });
        }
    }
    Ok(Summary { entries, streams: streams.count(), head })
}

fn parsed<T>(
    (line, number): (&[u8], u64),
    parse: fn(&[u8]) -> Result<T, Malformed>,
) -> Result<T, Finding> {
    parse(line).map_err(|cause| Finding { index: None, fault: Fault::Line { number, cause } })
}

struct BundleHead {
    log: String,
    tenant: String,
    session: String,
    head: Head,
}

impl BundleHead {
    fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let mut members = Members::parse(line)?;
        if members.text("kind")? != "head" || members.count("v")? != VERSION {
            return Err(Malformed("kind"));
        }
        let head = Head { size: members.count("size")?, root: members.hash("root")? };
        let (log, tenant, session) =
            (members.text("log")?, members.text("tenant")?, members.text("session")?);
        members.finish()?;
        one_spelling(line, &bundle_head(&log, &tenant, &session, &head))?;
        Ok(Self { log, tenant, session, head })
    }
}

enum Line {
    Entry(BundleEntry),
    End { entries: u64 },
}

struct BundleEntry {
    log_index: u64,
    envelope: String,
    event: String,
    salt: Vec<u8>,
    path: Vec<Hash>,
}

impl Line {
    fn parse(line: &[u8]) -> Result<Self, Malformed> {
        let mut members = Members::parse(line)?;
        let kind = members.text("kind")?;
        if kind == "end" {
            let entries = members.count("entries")?;
            members.finish()?;
            one_spelling(line, &bundle_end(entries))?;
            return Ok(Self::End { entries });
        }
        if kind != "entry" {
            return Err(Malformed("kind"));
        }
        let entry = BundleEntry {
            log_index: members.count("log_index")?,
            envelope: members.text("envelope")?,
            event: members.text("event")?,
            salt: STANDARD.decode(members.text("salt")?).map_err(|_| Malformed("salt"))?,
            path: path(members.list("path")?.ok_or(Malformed("path"))?)?,
        };
        members.finish()?;
        let BundleEntry { log_index, envelope, event, salt, path } = &entry;
        one_spelling(line, &bundle_entry(*log_index, envelope, event, salt, path))?;
        Ok(Self::Entry(entry))
    }
}

fn path(values: Vec<Value>) -> Result<Vec<Hash>, Malformed> {
    let hash = |value| match value {
        Value::Text(text) => Hash::from_base64(&text).map_err(|_| Malformed("path")),
        _ => Err(Malformed("path")),
    };
    values.into_iter().map(hash).collect()
}

fn one_spelling(line: &[u8], again: &str) -> Result<(), Malformed> {
    if again.as_bytes() == line { Ok(()) } else { Err(Malformed("a second spelling")) }
}

impl BundleEntry {
    fn verify(&self, bundle: &BundleHead, streams: &mut Streams) -> Result<(), Fault> {
        let claimed = Envelope::parse(self.envelope.as_bytes()).map_err(Fault::Envelope)?;
        let leaf = leaf_hash(self.envelope.as_bytes());
        let entry = Entry {
            log_index: self.log_index,
            tenant: if bundle.tenant.is_empty() { &claimed.tenant } else { &bundle.tenant },
            writer: &claimed.writer,
            session: &bundle.session,
            seq: claimed.seq,
            event: self.event.as_bytes(),
            envelope: self.envelope.as_bytes(),
            salt: &self.salt,
            leaf_hash: leaf.as_bytes(),
        };
        let (envelope, leaf) = check(&entry, &bundle.log)?;
        if !verify_inclusion(&leaf, self.log_index, bundle.head.size, &self.path, &bundle.head.root)
        {
            return Err(Fault::Proof);
        }
        streams.follow(&envelope, leaf)
    }
}

/// Any bytes: no panic.
#[cfg(any(test, fuzzing))]
pub fn fuzz_bundle(bytes: &[u8]) -> bool {
    verify_bundle(bytes).is_ok()
}
