-- Receipts that were taken back while their run was open.
CREATE TABLE revoked (
    receipt TEXT PRIMARY KEY,
    run TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX revoked_run ON revoked (run);
