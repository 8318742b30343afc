//! What a file's bytes say about it: a private key, or a token that `event`'s shapes know. It looks at the beginning of
//! a file up to a bound, never at its name, and what is public or plainly made up it lets pass.

use std::sync::LazyLock;

use event::redact;
use regex::bytes::Regex;

use crate::tree::name;

/// How far into a file it is looked.
const LOOKED_AT: usize = 8 << 20;
/// What is judged around a place where something may begin. No token that counts needs more than `LEAST` bytes.
const WINDOW: usize = 1024;
const LEAST: usize = 256;
/// Before a token stands something that is no letter.
const MARGIN: usize = 4;
/// Fewer different characters are a placeholder.
const DIFFERENT: usize = 10;

/// Where a key or token may begin: plain text only, so that most of a file is passed over at once.
static ANCHOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        "(?-u)-----BEGIN |gh[pousr]_|github_pat_|gl(?:pat|rt|dt|ptt|cbt)-|npm_|pypi-|A(?:KIA|SIA|BIA|CCA)|",
        r"xox[abpre]-|xapp-|AIza|ya29\.|GOCSPX-|[sr]k_live_|[sr]k_test_|whsec_|hf_|hns_|gsk_|xai-|SG\.|",
        "hv[sb]\\.|dckr_pat_|glsa_|AGE-SECRET-KEY-1|Q~|:AA|sk-",
    ))
    .ok()
});

/// A key with a body; a text that only names the line before one is none.
static KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?-u)-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
        r#"(?:\\[nr]|[\s"'+,]|[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/]{32}"#,
    ))
    .ok()
});

/// One file's bytes, as they come.
#[derive(Debug)]
pub(crate) struct Screen {
    /// The end of what came before, where something may have begun.
    tail: Vec<u8>,
    left: usize,
    is_first: bool,
}

impl Default for Screen {
    fn default() -> Self {
        Self { tail: Vec::new(), left: LOOKED_AT, is_first: true }
    }
}

impl Screen {
    pub(crate) fn finds_secret(&mut self, bytes: &[u8]) -> bool {
        if std::mem::take(&mut self.is_first) && name::begins_like_a_private_key(bytes) {
            return true;
        }
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        if bytes.is_empty() {
            return false;
        }
        if !self.tail.is_empty() {
            self.tail.extend_from_slice(&bytes[..bytes.len().min(WINDOW)]);
            if holds_secret(&self.tail) {
                return true;
            }
        }
        self.tail = bytes[bytes.len().saturating_sub(WINDOW)..].to_vec();
        holds_secret(bytes)
    }
}

/// A pattern that does not compile withholds everything; a test compiles both.
fn holds_secret(bytes: &[u8]) -> bool {
    let (Some(anchor), Some(key)) = (ANCHOR.as_ref(), KEY.as_ref()) else { return true };
    let mut from = 0;
    while let Some(found) = anchor.find_at(bytes, from) {
        let start = found.start().saturating_sub(MARGIN);
        let window = &bytes[start..bytes.len().min(found.start() + WINDOW)];
        if key.is_match(window) || holds_token(window) {
            return true;
        }
        // Whatever begins before this was seen whole; so no byte is judged more than twice.
        from = found.start() + WINDOW - LEAST;
        if from >= bytes.len() {
            return false;
        }
    }
    false
}

fn holds_token(window: &[u8]) -> bool {
    let text = String::from_utf8_lossy(window);
    redact::tokens(&text).into_iter().any(|(at, rule)| counts(rule, &text[at]))
}

/// Tokens that live for minutes, and what stands in documents for one, do not.
fn counts(rule: &str, token: &str) -> bool {
    let enough = match rule {
        "jwt" => false,
        "sk" => token.len() >= 24 && token.bytes().any(|byte| byte.is_ascii_digit()),
        _ => true,
    };
    enough && !is_made_up(token)
}

fn is_made_up(token: &str) -> bool {
    let lower = token.to_ascii_lowercase();
    let mut different: Vec<u8> = token.bytes().collect();
    different.sort_unstable();
    different.dedup();
    different.len() < DIFFERENT
        || ["example", "xxxx", "placeholder", "redacted", "your"]
            .iter()
            .any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{ANCHOR, KEY, LOOKED_AT, Screen, holds_secret};

    /// Made when the test runs, so that no scanner takes this file for a leak.
    fn tokens() -> Vec<String> {
        let body = "q7Rf2LxZ9aKp3VtMwB8nYc5HdJe1GsUo4iTz6EQh";
        let long = body.repeat(3);
        vec![
            format!("{}_{}", "ghp", body),
            format!("{}_{}", "github_pat", &long[..82]),
            format!("{}-{}", "glpat", &body[..20]),
            format!("{}_{}", "npm", &body[..36]),
            format!("{}-{}", "pypi", &long[..100]),
            format!("{}{}", "AKIA", "Q7RF2LXZ5AKP3VTM"),
            format!("{}-{}", "xoxb", &body[..24]),
            format!("{}{}", "AIza", &body[..35]),
            format!("{}-{}", "GOCSPX", &body[..28]),
            format!("{}_{}", "sk_live", &body[..24]),
            format!("{}-{}", "sk-ant-api03", body),
            format!("{}-{}", "sk-proj", body),
            format!("{}.{}", "hvs", body),
            format!("{}_{}", "dckr_pat", &body[..30]),
        ]
    }

    fn key(label: &str) -> String {
        let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    #[test]
    fn the_patterns_compile() {
        assert!(ANCHOR.is_some() && KEY.is_some());
    }

    #[test]
    fn tokens_and_keys_are_found_wherever_they_stand() {
        let mut secrets = tokens();
        secrets.extend(
            [
                "PRIVATE KEY",
                "RSA PRIVATE KEY",
                "EC PRIVATE KEY",
                "OPENSSH PRIVATE KEY",
                "PGP PRIVATE KEY BLOCK",
            ]
            .map(key),
        );
        secrets.push(key("PRIVATE KEY").replace('\n', "\\n"));
        for secret in &secrets {
            for (before, after) in
                [("", ""), ("key = \"", "\"\n"), ("\u{e9}\u{e9}\n", "\n"), ("a=", "&b")]
            {
                let text = format!("{before}{secret}{after}");
                assert!(holds_secret(text.as_bytes()), "{text}");
            }
            let mut late = vec![b'.'; 300_000];
            late.extend_from_slice(secret.as_bytes());
            assert!(holds_secret(&late), "{secret}");
        }
    }

    #[test]
    fn what_is_public_or_made_up_passes() {
        for text in [
            "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n",
            "-----BEGIN PUBLIC KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n",
            "text.starts_with(\"-----BEGIN PRIVATE KEY-----\")",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
            "GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
            "task-level risk-adjusted disk-usage sk-learn npm_config_cache hf_hub",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "integrity sha512-q7Rf2LxZ9aKp3VtMwB8nYc5HdJe1GsUo4iTz6EQh==",
            "token = os.environ[\"GITHUB_TOKEN\"]",
        ] {
            assert!(!holds_secret(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_secret_across_two_pieces_is_found() {
        for secret in tokens().into_iter().chain([key("PRIVATE KEY")]) {
            let text = format!("{} {secret} {}", "a".repeat(5_000), "b".repeat(5_000));
            for split in 4_990..5_100 {
                let mut screen = Screen::default();
                let (one, other) = text.as_bytes().split_at(split);
                assert!(screen.finds_secret(one) || screen.finds_secret(other), "{secret} {split}");
            }
        }
    }

    #[test]
    fn looking_ends_at_its_bound_and_takes_time_in_proportion() {
        let mut screen = Screen::default();
        let hostile = "sk-ant-".repeat(LOOKED_AT / 7 + 1);
        assert!(!screen.finds_secret(hostile.as_bytes()));
        assert!(!screen.finds_secret(tokens()[0].as_bytes()));
    }
}
