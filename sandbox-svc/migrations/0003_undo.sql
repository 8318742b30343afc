-- What imports replaced and wrote, as long as it is kept; the bytes are files beside the database. kept is 0 until the
-- import is over. owners holds whose the replaced entries were.
CREATE TABLE undo (
    call TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    run TEXT NOT NULL,
    workspace TEXT NOT NULL,
    digest BLOB NOT NULL,
    entries BLOB NOT NULL,
    owners BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    kept INTEGER NOT NULL DEFAULT 0 CHECK (kept IN (0, 1))
) STRICT;
CREATE INDEX undo_run ON undo (run);
