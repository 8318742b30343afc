//! Where a rule is written. It is no part of what the rule says.

use std::cmp::Ordering;

use serde::Serialize;

use crate::tree::Place;

/// Line and column from 1; 0 when it was not read from a file. Any two are equal: two files say the same
/// when they differ only in layout.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct At {
    pub line: u64,
    pub column: u64,
}

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl From<Place> for At {
    fn from(Place { line, column }: Place) -> Self {
        Self { line, column }
    }
}
