-- A run that another one began, with what it may do at most; over once it is. Nothing is granted to a run that is over.
ALTER TABLE run ADD COLUMN parent_run_id TEXT REFERENCES run (run_id);
ALTER TABLE run ADD COLUMN profile TEXT;
ALTER TABLE run ADD COLUMN over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1));
