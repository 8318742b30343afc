//! What is wrong with a manifest, where, and what to do about it.

use std::fmt;

/// One thing to change. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub line: u64,
    pub column: u64,
    /// What is wrong; what to do.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, what } = self;
        write!(f, "{file}:{line}:{column}: {what}")
    }
}

/// All faults of one manifest, in the file's order; at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| (fault.line, fault.column));
        Self(faults)
    }

    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}
