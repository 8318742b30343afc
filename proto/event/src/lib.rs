//! The event catalogue, canonical bytes and redaction; decides what may be recorded, never records it.
