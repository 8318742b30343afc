//! What a provider's error means, from its status and a few stable codes; the provider's sentences are read by nobody.

use reqwest::StatusCode;
use serde::Deserialize;

use crate::turn::{Failure, Kind};

/// The stable parts of an error body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Evidence {
    codes: Vec<String>,
    status: Option<u16>,
}

#[derive(Deserialize)]
pub(super) struct ErrorBody {
    code: Option<serde_json::Value>,
    #[serde(rename = "type")]
    kind: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Enveloped {
    error: Option<ErrorBody>,
    /// Some providers have no envelope.
    code: Option<serde_json::Value>,
}

impl From<ErrorBody> for Evidence {
    fn from(ErrorBody { code, kind }: ErrorBody) -> Self {
        let status = code.as_ref().and_then(serde_json::Value::as_u64);
        let codes = [code, kind].into_iter().flatten().filter_map(|value| match value {
            serde_json::Value::String(text) => Some(text),
            _ => None,
        });
        Self { codes: codes.collect(), status: status.and_then(|status| status.try_into().ok()) }
    }
}

impl Evidence {
    fn has(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(&code.as_str()))
    }
}

/// What an error body says; one that is not JSON says nothing.
pub(super) fn evidence(body: &[u8]) -> Evidence {
    let enveloped = serde_json::from_slice::<Enveloped>(body)
        .ok()
        .or_else(|| serde_json::from_slice::<(Enveloped,)>(body).ok().map(|(only,)| only));
    match enveloped {
        Some(Enveloped { error: Some(error), .. }) => error.into(),
        Some(Enveloped { error: None, code }) => ErrorBody { code, kind: None }.into(),
        None => Evidence::default(),
    }
}

/// An answer that is not 200: nothing was generated, so nothing is billed.
pub(super) fn http(status: StatusCode, evidence: &Evidence) -> Failure {
    // Whoever answers from elsewhere was not asked, whatever its words.
    let failure = match status.is_redirection() {
        true => Failure::new(Kind::UnsupportedResponse),
        false => judge(status.as_u16(), evidence),
    };
    Failure { status: Some(status.as_u16()), ..failure }
}

/// An error inside a 200: a number in it acts as the status.
pub(super) fn in_band(evidence: &Evidence) -> Failure {
    judge(evidence.status.unwrap_or(500), evidence)
}

fn judge(status: u16, evidence: &Evidence) -> Failure {
    let quota = ["insufficient_quota", "Arrearage"];
    let filtered = ["content_filter", "data_inspection_failed", "DataInspectionFailed"];
    let too_long = ["context_length_exceeded", "exceed_context_size_error"];
    let limited = ["rate_limit_exceeded", "rate_limit_error"];
    if evidence.has(&quota) {
        return Failure::new(Kind::RateLimited).retryable(false);
    }
    if evidence.has(&filtered) {
        return Failure::new(Kind::ContentFiltered);
    }
    if evidence.has(&too_long) {
        return Failure::new(Kind::InvalidRequest);
    }
    if status == 429 || evidence.has(&limited) {
        return Failure::new(Kind::RateLimited);
    }
    match status {
        401 | 403 => Failure::new(Kind::Auth),
        408 | 500.. => Failure::new(Kind::Http).retryable(true),
        _ => Failure::new(Kind::Http),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{evidence, http};
    use crate::turn::{Failure, Kind};

    #[test]
    fn status_and_code_decide_and_sentences_do_not() {
        let kind = |kind| Failure::new(kind);
        for (status, body, expected) in [
            (401, "", kind(Kind::Auth)),
            (403, "<html>", kind(Kind::Auth)),
            (404, "{}", kind(Kind::Http)),
            (400, r#"{"error":{"message":"rate_limit_exceeded"}}"#, kind(Kind::Http)),
            (307, "", kind(Kind::UnsupportedResponse)),
            (308, r#"{"code":"rate_limit_error"}"#, kind(Kind::UnsupportedResponse)),
            (429, "", kind(Kind::RateLimited)),
            (
                429,
                r#"{"error":{"code":"insufficient_quota"}}"#,
                kind(Kind::RateLimited).retryable(false),
            ),
            (400, r#"{"code":"Arrearage"}"#, kind(Kind::RateLimited).retryable(false)),
            (400, r#"{"error":{"code":"content_filter"}}"#, kind(Kind::ContentFiltered)),
            (400, r#"[{"error":{"code":400,"type":"x"}}]"#, kind(Kind::Http)),
            (400, r#"{"error":{"type":"exceed_context_size_error"}}"#, kind(Kind::InvalidRequest)),
            (500, r#"{"error":{"type":"rate_limit_error"}}"#, kind(Kind::RateLimited)),
            (502, "<html>", kind(Kind::Http).retryable(true)),
            (529, "", kind(Kind::Http).retryable(true)),
        ] {
            let expected = Failure { status: Some(status), ..expected };
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(http(status, &evidence(body.as_bytes())), expected, "{status} {body}");
        }
    }
}
