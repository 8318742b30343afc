-- Runs that work in the private copy of the run that began them, each admitted by a call of that run's. Its row stays:
-- a run that was a child's never has a copy of its own.
CREATE TABLE child (
    run TEXT PRIMARY KEY,
    parent TEXT NOT NULL REFERENCES environment (run),
    session TEXT NOT NULL,
    profile TEXT NOT NULL,
    open INTEGER NOT NULL CHECK (open IN (0, 1))
) STRICT;
CREATE INDEX child_open ON child (parent) WHERE open = 1;
