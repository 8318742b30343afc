//! Appends and proves; never edits.
