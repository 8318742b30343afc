-- The ledger. Rows are added and never changed; the head moves forward only.

-- The columns beside the envelope are a projection for queries; the start compares them with it.
CREATE TABLE events (
    log_index INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    writer TEXT NOT NULL,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    actor_kind TEXT,
    actor_id TEXT,
    tool TEXT,
    decision TEXT,
    occurred_us INTEGER NOT NULL,
    recorded_us INTEGER NOT NULL,
    leaf_hash BLOB NOT NULL CHECK (length(leaf_hash) = 32),
    envelope BLOB NOT NULL,
    UNIQUE (writer, session, seq)
) STRICT;
CREATE INDEX events_by_session ON events (session, log_index);
CREATE INDEX events_by_tenant ON events (tenant, log_index);

-- Apart from the events: what a payload says may have to be erased one day, its envelope never.
CREATE TABLE payloads (
    log_index INTEGER PRIMARY KEY REFERENCES events (log_index),
    payload BLOB NOT NULL,
    salt BLOB NOT NULL CHECK (length(salt) = 32)
) STRICT;

CREATE TABLE hash_tiles (
    level INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    hashes BLOB NOT NULL CHECK (length(hashes) = 8192),
    PRIMARY KEY (level, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE log_head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    frontier BLOB NOT NULL,
    last_recorded_us INTEGER NOT NULL
) STRICT;

CREATE TRIGGER events_stay BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;

CREATE TRIGGER payloads_stay BEFORE UPDATE ON payloads
BEGIN SELECT RAISE(ABORT, 'payloads are never changed'); END;
CREATE TRIGGER payloads_remain BEFORE DELETE ON payloads
BEGIN SELECT RAISE(ABORT, 'payloads are never deleted'); END;

CREATE TRIGGER hash_tiles_stay BEFORE UPDATE ON hash_tiles
BEGIN SELECT RAISE(ABORT, 'tiles are never changed'); END;
CREATE TRIGGER hash_tiles_remain BEFORE DELETE ON hash_tiles
BEGIN SELECT RAISE(ABORT, 'tiles are never deleted'); END;

CREATE TRIGGER log_head_grows BEFORE UPDATE ON log_head
WHEN NEW.size <= OLD.size OR NEW.last_recorded_us < OLD.last_recorded_us OR NEW.origin <> OLD.origin
BEGIN SELECT RAISE(ABORT, 'the head only grows'); END;
CREATE TRIGGER log_head_remains BEFORE DELETE ON log_head
BEGIN SELECT RAISE(ABORT, 'the head is never deleted'); END;
