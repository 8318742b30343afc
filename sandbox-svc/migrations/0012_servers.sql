-- Containers of tool servers, each from before it is made until it is proven to be gone. The call is the one that
-- started it; told is what the ledger knows of the start, and whose stream that is.
CREATE TABLE server (
    lease TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    tenant TEXT NOT NULL,
    policy_rev TEXT NOT NULL,
    run TEXT NOT NULL,
    call TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    container TEXT,
    cgroups TEXT NOT NULL DEFAULT '',
    started_ms INTEGER
) STRICT;
