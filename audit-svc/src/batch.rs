//! Gives entries their place: sequence, chain, leaf and tree. It decides conflicts and touches no store; a request is placed
//! whole or not at all.

use std::collections::HashMap;

use event::Writer;
use event::id::{EventId, SessionId};
use ledger::{Frontier, Hash, Tile, Tiles, TooLong, leaf_hash};

use crate::entry::{Entry, Place};
use crate::refusal::Refused;

/// A stream of the ledger.
pub(crate) type Stream = (Writer, SessionId);

/// The end of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) next: u64,
    pub(crate) leaf: Hash,
}

/// An entry that is stored, or about to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) stream: Stream,
    pub(crate) ack: Ack,
    pub(crate) payload: Vec<u8>,
}

/// What a writer is told once its entry is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) log_index: u64,
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
    pub(crate) leaf: Hash,
}

/// One row to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) log_index: u64,
    pub(crate) envelope: ledger::Envelope,
    pub(crate) envelope_bytes: Vec<u8>,
    pub(crate) leaf: Hash,
    pub(crate) payload: Vec<u8>,
    pub(crate) salt: [u8; 32],
}

/// The tree up to here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) frontier: Frontier,
    pub(crate) tiles: Tiles,
    pub(crate) recorded_us: i64,
}

/// What the batch must know of the store before it can decide.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) known: HashMap<EventId, Known>,
    /// Absent: the stream has no entry.
    pub(crate) tails: HashMap<Stream, Tail>,
    /// The tenant of sessions that have entries.
    pub(crate) tenants: HashMap<SessionId, String>,
}

/// Rows that go into one transaction.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    log: &'a str,
    now_us: i64,
    pub(crate) tree: Tree,
    pub(crate) facts: Facts,
    pub(crate) rows: Vec<Row>,
    pub(crate) tiles: Vec<Tile>,
}

/// What becomes of one entry of a request.
enum Step {
    /// It is stored already.
    Known(Ack),
    New {
        seq: u64,
    },
    /// It is the same as an earlier one of this request.
    Twin(usize),
}

impl<'a> Batch<'a> {
    pub(crate) fn new(log: &'a str, now_us: i64, tree: Tree, facts: Facts) -> Self {
        Self { log, now_us, tree, facts, rows: Vec::new(), tiles: Vec::new() }
    }

    /// Places all entries of one request, or none. Entries are known to fit into envelopes; if one does not, the whole batch
    /// is worth nothing.
    pub(crate) fn add(
        &mut self,
        entries: Vec<Entry>,
        salts: Vec<[u8; 32]>,
    ) -> Result<Result<Vec<Ack>, Refused>, TooLong> {
        let steps = match self.steps(&entries) {
            Ok(steps) => steps,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut acks: Vec<Ack> = Vec::with_capacity(entries.len());
        for ((entry, salt), step) in entries.into_iter().zip(salts).zip(steps) {
            let ack = match step {
                Step::Known(ack) => ack,
                Step::Twin(earlier) => acks[earlier],
                Step::New { seq } => self.place(entry, salt, seq)?,
            };
            acks.push(ack);
        }
        Ok(Ok(acks))
    }

    /// Decides without changing anything, so that a refusal leaves nothing behind.
    fn steps(&self, entries: &[Entry]) -> Result<Vec<Step>, Refused> {
        let mut next: HashMap<Stream, u64> = HashMap::new();
        let mut ids: HashMap<EventId, usize> = HashMap::new();
        let mut tenants: HashMap<SessionId, &str> = HashMap::new();
        let mut steps = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let stream = (entry.writer, entry.session);
            if let Some(known) = self.facts.known.get(&entry.event_id) {
                let same_place = entry.seq.is_none_or(|seq| seq == known.ack.seq);
                if known.stream != stream || known.payload != entry.payload || !same_place {
                    return Err(Refused::Event { at });
                }
                steps.push(Step::Known(known.ack));
                continue;
            }
            if let Some(earlier) = ids.get(&entry.event_id) {
                let twin = &entries[*earlier];
                let same = twin.session == entry.session
                    && twin.seq == entry.seq
                    && twin.payload == entry.payload;
                if !same {
                    return Err(Refused::Event { at });
                }
                steps.push(Step::Twin(*earlier));
                continue;
            }
            let known_tenant = self.facts.tenants.get(&entry.session).map(String::as_str);
            let tenant = *tenants
                .entry(entry.session)
                .or_insert_with(|| known_tenant.unwrap_or(&entry.tenant));
            // What is not proven to belong to a session may come from anywhere.
            if tenant != entry.tenant && !entry.session.is_nil() {
                return Err(Refused::EntryTenant { at });
            }
            let tail = self.facts.tails.get(&stream).map_or(0, |tail| tail.next);
            let expected = next.entry(stream).or_insert(tail);
            if entry.seq.is_some_and(|seq| seq != *expected) {
                return Err(Refused::Sequence { at, expected: *expected });
            }
            steps.push(Step::New { seq: *expected });
            *expected += 1;
            ids.insert(entry.event_id, at);
        }
        Ok(steps)
    }

    fn place(&mut self, entry: Entry, salt: [u8; 32], seq: u64) -> Result<Ack, TooLong> {
        let stream = (entry.writer, entry.session);
        let prev = self.facts.tails.get(&stream).map_or(Hash::ZERO, |tail| tail.leaf);
        let recorded_us = self.now_us.max(self.tree.recorded_us);
        let envelope = entry.envelope(&salt, &Place { log: self.log, seq, prev, recorded_us });
        let envelope_bytes = envelope.to_bytes()?;
        let leaf = leaf_hash(&envelope_bytes);
        let log_index = self.tree.frontier.size();
        self.tree.recorded_us = recorded_us;
        self.tree.frontier.append(leaf);
        self.tiles.extend(self.tree.tiles.push(leaf));
        self.facts.tails.insert(stream, Tail { next: seq + 1, leaf });
        self.facts.tenants.entry(entry.session).or_insert_with(|| entry.tenant.clone());
        let ack = Ack { log_index, session: entry.session, seq, leaf };
        self.facts
            .known
            .insert(entry.event_id, Known { stream, ack, payload: entry.payload.clone() });
        self.rows.push(Row {
            log_index,
            envelope,
            envelope_bytes,
            leaf,
            payload: entry.payload,
            salt,
        });
        Ok(ack)
    }
}

#[cfg(test)]
mod tests;
