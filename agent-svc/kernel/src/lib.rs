//! The run's state machine: decides what happens next, never makes it happen; no I/O, no std.
