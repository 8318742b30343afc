-- Edits that were applied to a run's private copy, and the files that they took out of it and that are kept.
CREATE TABLE mutation (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    call TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    operation TEXT NOT NULL,
    path BLOB NOT NULL,
    destination BLOB,
    before BLOB,
    after BLOB
) STRICT;
CREATE INDEX mutation_run ON mutation (run, number);

CREATE TABLE quarantine (
    run TEXT NOT NULL,
    call TEXT NOT NULL,
    path BLOB NOT NULL,
    mode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    digest BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('quarantined', 'restored')),
    PRIMARY KEY (run, call)
) STRICT;
