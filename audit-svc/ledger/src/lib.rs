//! The Merkle log: envelopes, leaves, roots and proofs, verified offline; no I/O, no std.
