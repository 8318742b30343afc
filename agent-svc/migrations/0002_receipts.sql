-- One row for each person's allow. have and need say how far the ask was with it; told_seq is where the stream tells so,
-- for one that did not settle the ask. standing is kept until somebody takes an allow for the run back, revoking until its
-- executor knows, and revoked then; dropped when the executor would not take it.
CREATE TABLE receipt (
    receipt_id    TEXT    NOT NULL PRIMARY KEY,
    permission_id TEXT    NOT NULL REFERENCES permission (permission_id),
    session_id    TEXT    NOT NULL REFERENCES session (session_id),
    subject       TEXT    NOT NULL,
    scope         TEXT    NOT NULL CHECK (scope IN ('once', 'run')),
    body          BLOB    NOT NULL,
    have          INTEGER NOT NULL,
    need          INTEGER NOT NULL,
    kept_at       INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    told_seq      INTEGER,
    uses          INTEGER NOT NULL DEFAULT 0,
    standing      TEXT    NOT NULL DEFAULT 'kept' CHECK (standing IN ('kept', 'revoking', 'revoked', 'dropped')),
    revoked_by    TEXT,
    CHECK ((standing IN ('revoking', 'revoked')) = (revoked_by IS NOT NULL)),
    CHECK (standing = 'kept' OR scope = 'run')
) STRICT;

CREATE INDEX receipt_by_permission ON receipt (permission_id);
CREATE INDEX receipt_by_session ON receipt (session_id);
CREATE INDEX receipt_revoking ON receipt (standing) WHERE standing = 'revoking';
