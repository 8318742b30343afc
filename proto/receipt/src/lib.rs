//! Plans, session grants, approval receipts and on-behalf-of contexts: signed and verified; never decided.
