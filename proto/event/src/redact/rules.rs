//! The rules for text: what a credential looks like, and what stands where one would.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::key;

/// A rule that matched, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: &'static str,
    pub(super) count: u32,
}

pub(super) fn placeholder(rule: &str) -> String {
    format!("[REDACTED:{rule}]")
}

/// Only a complete placeholder counts as redacted; a text that merely begins like one does not.
pub(super) fn is_placeholder(text: &str) -> bool {
    text.strip_prefix("[REDACTED")
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_rule))
}

fn is_rule(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

pub(super) fn apply(_text: &str) -> Option<(String, Vec<Hit>)> {
    None
}
