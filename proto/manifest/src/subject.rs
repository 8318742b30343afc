//! The subject of a command: the argv itself, quoted so that no two argvs look alike. A caller cannot supply
//! a friendlier name.

/// The argv joined by spaces; a token with any character outside `[A-Za-z0-9_@%+=:,./-]` is single-quoted.
pub fn exec_subject(argv: &[String]) -> String {
    argv.iter().map(|token| quoted(token)).collect::<Vec<_>>().join(" ")
}

fn quoted(token: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !token.is_empty() && token.chars().all(plain) {
        token.to_owned()
    } else {
        format!("'{}'", token.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::exec_subject;
    use proptest::prelude::*;

    fn subject(argv: &[&str]) -> String {
        exec_subject(&argv.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn tokens_are_quoted_exactly_when_a_shell_would_read_them_otherwise() {
        assert_eq!(subject(&["cargo", "test", "--lib"]), "cargo test --lib");
        assert_eq!(subject(&["sh", "-c", "a; b"]), "sh -c 'a; b'");
        assert_eq!(subject(&["echo", ""]), "echo ''");
        assert_eq!(subject(&["echo", "it's"]), r"echo 'it'\''s'");
        assert_eq!(subject(&["echo", "ä\n"]), "echo 'ä\n'");
    }

    proptest! {
        #[test]
        fn different_argvs_have_different_subjects(
            one in prop::collection::vec("[a' ]{0,3}", 1..4),
            other in prop::collection::vec("[a' ]{0,3}", 1..4),
        ) {
            prop_assert_eq!(one == other, exec_subject(&one) == exec_subject(&other));
        }
    }
}
