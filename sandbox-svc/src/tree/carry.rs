//! What the host's configuration carries although it is named like a credential or holds one: patterns of paths, per
//! workspace. It never carries `.git`, the service's own files, or what a manifest denies.

use crate::tree::RelPath;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Carry(Vec<String>);

impl Carry {
    pub(crate) fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    pub(crate) fn patterns(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern covers the path; of a directory, also whether one may cover something in it.
    pub(crate) fn takes(&self, path: &RelPath, is_directory: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let subject = path.to_subject();
        let inside = format!("{subject}/");
        self.0.iter().any(|pattern| {
            manifest::glob::matches(pattern, &subject)
                || is_directory
                    && (manifest::glob::matches(pattern, &inside) || pattern.starts_with(&inside))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Carry;
    use crate::tree::RelPath;

    fn takes(patterns: &[&str], path: &str, is_directory: bool) -> bool {
        let carry = Carry::new(patterns.iter().map(|&pattern| pattern.to_owned()).collect());
        carry.takes(&RelPath::parse(path.as_bytes()).unwrap(), is_directory)
    }

    #[test]
    fn a_pattern_carries_what_it_covers_and_nothing_beside() {
        assert!(takes(&["tests/certs/*.pem"], "tests/certs/ca.pem", false));
        assert!(!takes(&["tests/certs/*.pem"], "tests/certs/deep/ca.pem", false));
        assert!(!takes(&["tests/certs/*.pem"], "certs/ca.pem", false));
        assert!(!takes(&[], "tests/certs/ca.pem", false));
    }

    #[test]
    fn the_way_to_what_is_carried_is_carried() {
        assert!(takes(&["home/.ssh/config"], "home/.ssh", true));
        assert!(takes(&["home/.ssh/**"], "home/.ssh", true));
        assert!(!takes(&["home/.ssh/config"], "home/.ssh", false));
        assert!(!takes(&["home/.ssh/config"], "home/.ssh/id", false));
        assert!(!takes(&["home/.ssh-old/config"], "home/.ssh", true));
    }
}
