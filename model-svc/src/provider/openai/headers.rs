//! The few headers of an answer that are read, and only in the forms they should have.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
const MAX_REQUEST_ID: usize = 128;

pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = text(headers, "x-request-id").or_else(|| text(headers, "request-id"))?;
    let harmless = (1..=MAX_REQUEST_ID).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    harmless.then(|| id.to_owned())
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// How long the provider asks to wait: milliseconds first, then seconds, then a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    after(
        text(headers, "retry-after-ms"),
        text(headers, RETRY_AFTER.as_str()),
        OffsetDateTime::now_utc(),
    )
}

fn after(millis: Option<&str>, plain: Option<&str>, now: OffsetDateTime) -> Option<Duration> {
    let wait = millis
        .and_then(whole)
        .map(Duration::from_millis)
        .or_else(|| plain.and_then(whole).map(Duration::from_secs))
        .or_else(|| plain.and_then(|text| until(text, now)))?;
    Some(wait.min(LONGEST_WAIT))
}

fn whole(text: &str) -> Option<u64> {
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// From now to an HTTP date; a moment that has passed is now.
fn until(text: &str, now: OffsetDateTime) -> Option<Duration> {
    let form = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let moment = PrimitiveDateTime::parse(text, form).ok()?.assume_utc();
    Some(Duration::try_from(moment - now).unwrap_or(Duration::ZERO))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::header::{HeaderMap, HeaderValue};
    use time::macros::datetime;

    use super::{after, is_json, request_id};

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            reqwest::header::HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn a_request_id_has_only_harmless_characters() {
        let id = |value: &str| request_id(&headers("x-request-id", value));
        assert_eq!(id("req_1.a:B-2"), Some("req_1.a:B-2".into()));
        assert_eq!(request_id(&headers("request-id", "r1")), Some("r1".into()));
        for value in ["", "<b>", "a b", &"a".repeat(129)] {
            assert_eq!(id(value), None, "{value}");
        }
    }

    #[test]
    fn only_json_is_json() {
        let json = |value: &str| is_json(&headers("content-type", value));
        assert!(json("application/json") && json("Application/JSON; charset=utf-8"));
        for value in ["text/html", "text/event-stream", "application/jsonl", "", "json"] {
            assert!(!json(value), "{value}");
        }
    }

    #[test]
    fn a_wait_is_read_strictly_and_bounded() {
        let now = datetime!(2026-01-01 00:00:00 UTC);
        let seconds = |text| after(None, Some(text), now).map(|wait| wait.as_secs());
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds("99999"), Some(3_600));
        assert_eq!(seconds("Thu, 01 Jan 2026 00:00:30 GMT"), Some(30));
        assert_eq!(seconds("Wed, 31 Dec 2025 00:00:00 GMT"), Some(0));
        for text in ["", "0x10", "1e3", "-1", "+1", " 7", "99999999999", "soon"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(after(Some("250"), Some("7"), now), Some(Duration::from_millis(250)));
        assert_eq!(after(Some("x"), Some("7"), now), Some(Duration::from_secs(7)));
    }
}
