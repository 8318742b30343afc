-- Private working state of one agent-svc: sessions, runs, permissions, the effect journal, and the outbox of
-- event bytes that wait for audit-svc. Identifiers are text, moments are Unix milliseconds, digests are 32 bytes.

-- owner_node and owner_epoch are the fence: every write of a run names both.
CREATE TABLE session (
    session_id    TEXT    NOT NULL PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    subject       TEXT    NOT NULL,
    grant_signed  BLOB    NOT NULL,
    manifest      BLOB    NOT NULL,
    manifest_id   TEXT    NOT NULL,
    policy_rev    TEXT    NOT NULL,
    workspace     TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    on_disconnect TEXT    NOT NULL CHECK (on_disconnect IN ('deny', 'hold')),
    state         TEXT    NOT NULL CHECK (state IN ('opening', 'created', 'running', 'awaiting_person', 'needs_operator', 'closing', 'done')),
    attended      INTEGER NOT NULL DEFAULT 0 CHECK (attended IN (0, 1)),
    owner_node    TEXT    NOT NULL,
    owner_epoch   INTEGER NOT NULL,
    next_seq      INTEGER NOT NULL DEFAULT 0,
    created_at    INTEGER NOT NULL,
    outcome       TEXT
) STRICT;

CREATE INDEX session_by_tenant ON session (tenant, session_id);
CREATE INDEX session_unfinished ON session (state) WHERE state <> 'done';

CREATE TABLE run (
    run_id            TEXT    NOT NULL PRIMARY KEY,
    session_id        TEXT    NOT NULL REFERENCES session (session_id),
    ordinal           INTEGER NOT NULL,
    started_at        INTEGER NOT NULL,
    prompt_tokens     INTEGER NOT NULL DEFAULT 0,
    completion_tokens INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session_id, ordinal)
) STRICT;

-- The kernel's record: folding it gives the run's state.
CREATE TABLE record (
    run_id         TEXT    NOT NULL REFERENCES run (run_id),
    ordinal        INTEGER NOT NULL,
    kernel_version INTEGER NOT NULL,
    body           BLOB    NOT NULL,
    PRIMARY KEY (run_id, ordinal)
) STRICT, WITHOUT ROWID;

-- What the model is shown, in order. Unredacted, therefore never exported.
CREATE TABLE message (
    run_id  TEXT    NOT NULL REFERENCES run (run_id),
    ordinal INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (run_id, ordinal)
) STRICT, WITHOUT ROWID;

-- The tool calls a model made, with what a restart needs to ask their executor and with what the stream already holds of
-- them: announced is the last attempt whose start it tells.
CREATE TABLE call (
    call_id       TEXT    NOT NULL PRIMARY KEY,
    run_id        TEXT    NOT NULL REFERENCES run (run_id),
    provider_id   TEXT    NOT NULL,
    tool          TEXT    NOT NULL,
    arguments     BLOB    NOT NULL,
    executor      TEXT    CHECK (executor IN ('sandbox-svc', 'model-svc')),
    announced     INTEGER NOT NULL DEFAULT 0,
    output_offset INTEGER NOT NULL DEFAULT 0,
    output_shown  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX call_by_run ON call (run_id);

-- One row for each ask. requested holds the acknowledged event's bytes for as long as the ask is open; folded says
-- that the run's record and the stream know the answer.
CREATE TABLE permission (
    permission_id TEXT    NOT NULL PRIMARY KEY,
    session_id    TEXT    NOT NULL REFERENCES session (session_id),
    run_id        TEXT    NOT NULL,
    call_id       TEXT    NOT NULL,
    plan          BLOB    NOT NULL,
    plan_digest   BLOB    NOT NULL,
    action_digest BLOB    NOT NULL,
    requested     BLOB,
    requested_seq INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    standing      TEXT    NOT NULL CHECK (standing IN ('open', 'leased', 'allowed', 'denied')),
    source        TEXT,
    decided_by    TEXT,
    scope         TEXT,
    note          TEXT,
    claimed_at    INTEGER,
    leased_until  INTEGER,
    receipt       BLOB,
    resolved_seq  INTEGER,
    CHECK ((standing = 'denied') = (source IS NOT NULL)),
    CHECK ((standing = 'leased') = (leased_until IS NOT NULL)),
    CHECK (standing NOT IN ('leased', 'allowed') OR claimed_at IS NOT NULL),
    CHECK ((standing = 'allowed') = (receipt IS NOT NULL)),
    CHECK (resolved_seq IS NULL OR standing IN ('allowed', 'denied'))
) STRICT;

CREATE INDEX permission_by_session ON permission (session_id);
CREATE UNIQUE INDEX permission_unfolded ON permission (run_id) WHERE resolved_seq IS NULL;

-- The only event rows here: each is deleted when audit-svc has acknowledged exactly this (session, seq, hash).
CREATE TABLE outbox (
    session_id TEXT    NOT NULL REFERENCES session (session_id),
    seq        INTEGER NOT NULL,
    event_id   TEXT    NOT NULL UNIQUE,
    epoch      INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    hash       BLOB    NOT NULL,
    redactor   TEXT    NOT NULL,
    redactions TEXT    NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;
