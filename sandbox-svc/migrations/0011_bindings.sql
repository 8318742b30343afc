-- What a private copy is bound to beside run, session, staging and boot; and which binding made it lost.
ALTER TABLE environment ADD COLUMN bindings TEXT;
ALTER TABLE environment ADD COLUMN lost TEXT;
