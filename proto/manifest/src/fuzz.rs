//! What the parsers, the matcher and the splitter must hold for any bytes: no panic, an end, and what is read is
//! what would be written.

use crate::action::Action;
use crate::ceiling::Ceiling;
use crate::command::{Command, parse_exec_subject};
use crate::glob::Glob;
use crate::host::HostPort;
use crate::path::WorkPath;
use crate::rulebook::Rulebook;
use crate::schema::Manifest;
use crate::shell::split;
use crate::subject::exec_subject;
use crate::{interpreter, lint, print, print_ceiling};

/// Feeds `bytes` to the parsers of manifests and ceilings.
///
/// # Panics
/// When a file that was accepted is not accepted again as it is printed, or means something else.
pub fn fuzz_manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse(bytes, "fuzz") {
        let again = Manifest::parse(print(&manifest).as_bytes(), "fuzz");
        let digest = manifest.digest;
        assert_eq!(again.map(|again| Manifest { digest, ..again }).as_ref(), Ok(&manifest));
        lint(&manifest, None);
        let rulebook = Rulebook::new(manifest, None, None);
        for action in Action::ALL {
            rulebook.decide(action, None);
            rulebook.explain(action, std::str::from_utf8(bytes).ok());
        }
    }
    if let Ok(ceiling) = Ceiling::parse(bytes, "fuzz") {
        let again = Ceiling::parse(print_ceiling(&ceiling).as_bytes(), "fuzz");
        let digest = ceiling.digest;
        assert_eq!(again.map(|again| Ceiling { digest, ..again }).as_ref(), Ok(&ceiling));
    }
}

/// Feeds what stands before the first line break to the matcher as a pattern, and the rest as a subject.
///
/// # Panics
/// When a pattern without a wildcard does not match exactly itself, or a normal form has another.
pub fn fuzz_pattern(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (pattern, subject) = text.split_once('\n').unwrap_or((&text, ""));
    let glob = Glob::new(pattern);
    let matches = glob.matches(subject);
    assert!(!glob.is_literal() || matches == (pattern == subject));
    if let Ok(path) = WorkPath::parse(subject) {
        assert_eq!(
            WorkPath::parse(path.as_str()).map(|path| path.to_string()),
            Ok(path.to_string())
        );
    }
    if let Ok(host) = HostPort::parse(subject) {
        assert_eq!(HostPort::parse(&host.to_string()), Ok(host));
    }
}

/// Feeds `bytes` to the splitter of scripts and to the reader of argvs.
///
/// # Panics
/// When a command without words is found, or a subject is not the one of its argv.
pub fn fuzz_script(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(split(&text).commands.iter().all(|argv| !argv.is_empty()));
    if let Some(argv) = parse_exec_subject(&text) {
        assert_eq!(exec_subject(&argv), text);
    }
    interpreter::inspect(&Command::new(["sh", "-c", &text]));
    interpreter::inspect(&Command::new(text.split(' ')));
}

#[cfg(test)]
mod tests {
    use super::{fuzz_manifest, fuzz_pattern, fuzz_script};
    use crate::starter;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            fuzz_manifest(&bytes);
            fuzz_pattern(&bytes);
            fuzz_script(&bytes);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,64}\n\\PC{0,64}") {
            fuzz_pattern(text.as_bytes());
            fuzz_script(text.as_bytes());
        }

        #[test]
        fn any_damage_to_a_good_manifest_is_read_without_a_panic(
            at in 0usize..2_000,
            with in prop::collection::vec(any::<u8>(), 0..4),
            cut in 0usize..4,
        ) {
            let mut bytes = starter("a").into_bytes();
            let at = at.min(bytes.len());
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, with);
            fuzz_manifest(&bytes);
        }
    }
}
