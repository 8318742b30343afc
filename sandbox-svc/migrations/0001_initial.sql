-- Ids are UUIDs in hyphenated form; moments are Unix milliseconds, expiries Unix seconds.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- One row per session: its grant, its manifest, and who owns it now.
CREATE TABLE session (
    session TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    workspace TEXT NOT NULL,
    grant_payload BLOB NOT NULL,
    manifest BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    node TEXT NOT NULL
) STRICT;

-- A run's private copy. base moves with imports; first_digest stays.
CREATE TABLE environment (
    run TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (session),
    slot INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('opening', 'open', 'closing', 'closed', 'lost')),
    staging TEXT NOT NULL,
    boot TEXT NOT NULL,
    first_digest BLOB,
    base BLOB,
    left_out TEXT
) STRICT;
CREATE UNIQUE INDEX environment_slot ON environment (slot) WHERE state IN ('opening', 'open', 'closing');

CREATE TABLE plan (
    call TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments BLOB NOT NULL,
    bytes BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;

-- One row per call that was admitted: outcome, lease, and the consumption of its receipt.
CREATE TABLE execution (
    call TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    tenant TEXT NOT NULL,
    run TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    tool TEXT NOT NULL,
    arguments BLOB NOT NULL,
    plan BLOB NOT NULL,
    plan_digest BLOB NOT NULL,
    start_before_ms INTEGER NOT NULL,
    accepted_ms INTEGER NOT NULL,
    started_seq INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'creating', 'created', 'started', 'ended', 'finished')),
    lease TEXT NOT NULL,
    container TEXT,
    cgroups TEXT NOT NULL DEFAULT '',
    reason TEXT,
    started_ms INTEGER,
    started_data BLOB,
    ended BLOB,
    finished BLOB
) STRICT;
CREATE INDEX execution_unfinished ON execution (run) WHERE state <> 'finished';

-- Answers that hold for one call only.
CREATE TABLE consumed (
    permission TEXT PRIMARY KEY,
    call TEXT NOT NULL
) STRICT;

CREATE TABLE output (
    call TEXT NOT NULL,
    place INTEGER NOT NULL,
    stream TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (call, place)
) STRICT;

CREATE TABLE import (
    call TEXT PRIMARY KEY,
    phase TEXT NOT NULL,
    entries BLOB NOT NULL
) STRICT;

-- This service's streams in the ledger, and what audit-svc has not acknowledged yet.
CREATE TABLE stream (
    session TEXT PRIMARY KEY,
    next_seq INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    policy_rev TEXT NOT NULL,
    event BLOB NOT NULL,
    redactions TEXT NOT NULL,
    UNIQUE (session, seq)
) STRICT;
