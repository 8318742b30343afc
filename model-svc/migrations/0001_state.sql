-- What Fence registered: who owns each session, and what its grant allows.
CREATE TABLE session (
    session_id TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    node TEXT NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    manifest BLOB NOT NULL CHECK (length(manifest) = 32),
    workspace TEXT NOT NULL,
    models TEXT NOT NULL,
    max_model_tokens INTEGER CHECK (max_model_tokens > 0),
    grant_exp INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per call id, written before its only provider request. tokens is what the call may cost while it is
-- requested, and what it cost afterwards.
CREATE TABLE completion (
    call_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (session_id),
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    request BLOB NOT NULL CHECK (length(request) = 32),
    state TEXT NOT NULL CHECK (state IN ('requested', 'answered', 'failed', 'in_doubt')),
    tokens INTEGER NOT NULL CHECK (tokens >= 0),
    outcome TEXT,
    CHECK ((outcome IS NOT NULL) = (state IN ('answered', 'failed')))
) STRICT, WITHOUT ROWID;

CREATE INDEX completion_by_run ON completion (session_id, run_id);

-- Ledger entries that audit-svc has not acknowledged, in the order in which they were made. refused holds the reason
-- of an entry that it will never take.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    event_id TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL,
    on_behalf_of TEXT NOT NULL,
    policy_rev TEXT NOT NULL,
    redactor TEXT NOT NULL,
    redactions TEXT NOT NULL,
    refused TEXT
) STRICT;
