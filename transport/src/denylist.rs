//! Whom to refuse although their certificate is good: SPIFFE ids and serial numbers, compared whole; never patterns.

use std::collections::HashSet;

use crate::{
    TrustDomain,
    identity::{Malformed, path_of},
};

/// The entries of one `denylist` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DenyList {
    uris: HashSet<String>,
    serials: HashSet<String>,
}

impl DenyList {
    /// One entry a line; blank lines and lines that start with `#` say nothing. A line that could never match is an
    /// error: a mistyped ban must not pass for a ban.
    pub(crate) fn parse(text: &[u8], domain: &TrustDomain) -> Result<Self, Error> {
        let text = str::from_utf8(text).map_err(|_| Error { line: 1, why: Why::Text })?;
        let mut list = Self::default();
        for (index, line) in text.lines().enumerate() {
            let entry = line.trim();
            if entry.is_empty() || entry.starts_with('#') {
                continue;
            }
            list.add(entry, domain).map_err(|why| Error { line: index + 1, why })?;
        }
        Ok(list)
    }

    fn add(&mut self, entry: &str, domain: &TrustDomain) -> Result<(), Why> {
        if entry.starts_with("spiffe:") {
            drop(path_of(entry, domain).map_err(Why::Uri)?);
            self.uris.insert(entry.to_owned());
        } else {
            self.serials.insert(serial(entry).ok_or(Why::Serial)?);
        }
        Ok(())
    }

    pub(crate) fn names(&self, uri: &str, serial_hex: &str) -> bool {
        self.uris.contains(uri)
            || (!self.serials.is_empty()
                && serial(serial_hex).is_some_and(|it| self.serials.contains(&it)))
    }
}

/// A serial number in the one form that is compared: lower-case hex without separators or leading zeros.
fn serial(text: &str) -> Option<String> {
    let digits: String =
        text.chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
    let fits =
        !digits.is_empty() && digits.len() <= 64 && digits.chars().all(|c| c.is_ascii_hexdigit());
    fits.then(|| digits.trim_start_matches('0').to_owned())
}

/// A line that is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "denylist line {line} is neither a SPIFFE id of this trust domain nor a serial number in hex"
)]
pub struct Error {
    line: usize,
    #[source]
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("the file is not UTF-8 text")]
    Text,
    #[error(transparent)]
    Uri(Malformed),
    #[error("not a serial number; expected hex digits, with or without colons")]
    Serial,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> TrustDomain {
        "harness.test".parse().unwrap()
    }

    #[test]
    fn an_entry_is_a_whole_id_or_a_serial_in_any_writing() {
        let list = DenyList::parse(
            b"# leaked\nspiffe://harness.test/svc/model-svc/1\n\n  00:AB:0c \nspiffe://harness.test/receipts/gateway/0\n",
            &domain(),
        )
        .unwrap();
        assert!(list.names("spiffe://harness.test/svc/model-svc/1", "1"));
        assert!(!list.names("spiffe://harness.test/svc/model-svc/10", "1"));
        assert!(list.names("spiffe://harness.test/receipts/gateway/0", "1"));
        assert!(list.names("spiffe://harness.test/svc/model-svc/2", "ab0c"));
        assert!(list.names("spiffe://harness.test/svc/model-svc/2", "00AB0C"));
        assert!(!list.names("spiffe://harness.test/svc/model-svc/2", "ab0c00"));
    }

    #[test]
    fn a_line_that_could_never_match_is_an_error_and_not_a_ban() {
        for (text, line) in [
            ("spiffe://other.test/svc/model-svc/1", 1),
            ("# fine\nspiffe://harness.test/svc/", 2),
            ("model-svc", 1),
            ("ab cd", 1),
        ] {
            let error = DenyList::parse(text.as_bytes(), &domain()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
        }
    }
}
