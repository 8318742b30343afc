//! A small sound log of three streams, owned, so that tests can spoil it.

use std::collections::BTreeMap;

use ledger::{
    Envelope, Frontier, Hash, Head, Redaction, bundle_end, bundle_entry, bundle_head, inclusion,
    leaf_hash, payload_commit, subtree,
};

pub(crate) const LOG: &str = "log.test/1";
pub(crate) const SESSION: &str = "0198f000-0000-7000-8000-000000000001";

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) log_index: u64,
    pub(crate) tenant: String,
    pub(crate) writer: String,
    pub(crate) session: String,
    pub(crate) seq: u64,
    pub(crate) event: Vec<u8>,
    pub(crate) envelope: Vec<u8>,
    pub(crate) salt: Vec<u8>,
    pub(crate) leaf_hash: Vec<u8>,
}

impl Stored {
    pub(crate) fn entry(&self) -> ledger::Entry<'_> {
        let Self { log_index, tenant, writer, session, seq, event, envelope, salt, leaf_hash } =
            self;
        ledger::Entry {
            log_index: *log_index,
            tenant,
            writer,
            session,
            seq: *seq,
            event,
            envelope,
            salt,
            leaf_hash,
        }
    }
}

pub(crate) fn envelope() -> Envelope {
    Envelope {
        log: LOG.to_owned(),
        tenant: "t-1".to_owned(),
        event_id: "0198f000-0000-7000-8000-00000000000e".to_owned(),
        writer: "agent-svc".to_owned(),
        session: SESSION.to_owned(),
        seq: 0,
        prev: Hash::ZERO,
        kind: "tool.result".to_owned(),
        actor: None,
        on_behalf_of: None,
        tool: None,
        decision: None,
        policy_rev: None,
        occurred_us: 1_755_771_072_123_456,
        recorded_us: 1_755_771_072_123_999,
        payload_commit: Hash::ZERO,
        payload_len: 0,
        payload_key: None,
        redactor: "r1".to_owned(),
        redactions: vec![],
        redactions_omitted: 0,
    }
}

/// `count` entries, dealt to two writers of one session and one of another.
pub(crate) fn log(count: u64) -> (Vec<Stored>, Head) {
    let other = "0198f000-0000-7000-8000-000000000002";
    let streams = [("agent-svc", SESSION), ("sandbox-svc", SESSION), ("agent-svc", other)];
    let mut heads: BTreeMap<(&str, &str), (u64, Hash)> = BTreeMap::new();
    let mut frontier = Frontier::default();
    let mut stored = Vec::new();
    for log_index in 0..count {
        let (writer, session) = streams[usize::try_from(log_index).unwrap() % streams.len()];
        let (seq, prev) = heads.get(&(writer, session)).copied().unwrap_or((0, Hash::ZERO));
        let event = format!("{{\"n\":{log_index}}}").into_bytes();
        let salt = [u8::try_from(log_index % 256).unwrap(); 32];
        let envelope = Envelope {
            writer: writer.to_owned(),
            session: session.to_owned(),
            seq,
            prev,
            recorded_us: 1_755_771_072_123_999 + i64::try_from(log_index).unwrap(),
            payload_commit: payload_commit(&salt, &event),
            payload_len: event.len() as u64,
            redactions: vec![Redaction {
                path: "/data/x".to_owned(),
                rule: "key".to_owned(),
                n: 1,
            }],
            ..envelope()
        };
        let bytes = envelope.to_bytes().unwrap();
        let leaf = leaf_hash(&bytes);
        frontier.append(leaf);
        heads.insert((writer, session), (seq + 1, leaf));
        stored.push(Stored {
            log_index,
            tenant: envelope.tenant,
            writer: envelope.writer,
            session: envelope.session,
            seq,
            event,
            envelope: bytes,
            salt: salt.to_vec(),
            leaf_hash: leaf.as_bytes().to_vec(),
        });
    }
    (stored, Head { size: frontier.size(), root: frontier.root() })
}

/// The bundle of [`SESSION`], line by line.
pub(crate) fn bundle(stored: &[Stored], head: &Head) -> Vec<String> {
    let leaves: Vec<Hash> =
        stored.iter().map(|entry| Hash::from_slice(&entry.leaf_hash).unwrap()).collect();
    let mut lines = vec![bundle_head(LOG, "t-1", SESSION, head)];
    let session: Vec<&Stored> = stored.iter().filter(|entry| entry.session == SESSION).collect();
    for entry in &session {
        let plan = inclusion(entry.log_index, head.size).unwrap();
        let nodes = plan
            .nodes()
            .map(|node| {
                let width = 1_usize << node.level;
                let start = usize::try_from(node.index).unwrap() * width;
                (node, subtree(&leaves[start..start + width]))
            })
            .collect();
        let path = plan.assemble(&nodes).unwrap();
        let (envelope, event) =
            (String::from_utf8_lossy(&entry.envelope), String::from_utf8_lossy(&entry.event));
        lines.push(bundle_entry(entry.log_index, &envelope, &event, &entry.salt, &path));
    }
    lines.push(bundle_end(session.len() as u64));
    lines
}
