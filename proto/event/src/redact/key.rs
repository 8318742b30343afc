//! Which names announce a credential. Names are compared on letters and digits only, in lower case.

/// Names that are sensitive as a whole.
const WHOLE: &[&str] = &[
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "credential",
    "credentials",
    "pwd",
    "pass",
];

/// Names that are sensitive however they begin.
const ENDINGS: &[&str] = &[
    "apikey",
    "privatekey",
    "secretkey",
    "accesskey",
    "accesskeyid",
    "accountkey",
    "signingkey",
    "encryptionkey",
    "token",
    "secret",
    "secrets",
    "password",
    "passwd",
    "passphrase",
];

/// Names that end like a credential's and are cursors.
const CURSORS: &[&str] = &["pagetoken", "continuationtoken", "synctoken", "cancellationtoken"];

/// Providers whose variables hold credentials whenever they end in one of [`PROVIDED`].
const PROVIDERS: &[&str] =
    &["openai", "azureopenai", "anthropic", "google", "gemini", "aws", "github", "gitlab"];
const PROVIDED: &[&str] = &["key", "token", "secret"];

/// Names are short; a longer text is prose.
const LONGEST: usize = 128;

pub(super) fn is_sensitive(name: &str) -> bool {
    if name.len() > LONGEST {
        return false;
    }
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|char| char.to_ascii_lowercase())
        .collect();
    if CURSORS.iter().any(|ending| plain.ends_with(ending)) {
        return false;
    }
    WHOLE.contains(&plain.as_str())
        || ENDINGS.iter().any(|ending| plain.ends_with(ending))
        || (PROVIDERS.iter().any(|provider| plain.starts_with(provider))
            && PROVIDED.iter().any(|ending| plain.ends_with(ending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_credentials_are_sensitive() {
        for name in [
            "password",
            "DB_PASSWORD",
            "apiKey",
            "x-api-key",
            "api_key",
            "Authorization",
            "Set-Cookie",
            "client.secret",
            "accessToken",
            "GITHUB_TOKEN",
            "OPENAI_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "aws_access_key_id",
            "credentials",
            "privateKey",
        ] {
            assert!(is_sensitive(name), "{name}");
        }
    }

    #[test]
    fn counts_cursors_and_plain_keys_are_not() {
        for name in [
            "max_tokens",
            "tokenizer",
            "token_count",
            "totalTokens",
            "next_page_token",
            "primary_key",
            "cache_key",
            "sort_key",
            "key",
            "author",
            "auth_method",
            "PASSWORD_FILE",
            "secretary",
            "monkey",
            "passthrough",
            "",
        ] {
            assert!(!is_sensitive(name), "{name}");
        }
    }
}
