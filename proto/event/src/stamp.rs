//! Moments as text: RFC 3339 in UTC with exactly six digits of a second, so that each has one spelling.

use serde::{Deserialize, Deserializer, Serializer};
use time::format_description::StaticFormatDescription;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

const FORMAT: StaticFormatDescription =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// The text or moment is not one that `YYYY-MM-DDTHH:MM:SS.ffffffZ` can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a moment of the form YYYY-MM-DDTHH:MM:SS.ffffffZ")]
pub struct NotAStamp;

/// The moment in UTC; what is finer than a microsecond is dropped.
pub fn stamp(at: OffsetDateTime) -> Result<String, NotAStamp> {
    let at = at.checked_to_offset(UtcOffset::UTC).ok_or(NotAStamp)?;
    if at.year() < 0 {
        return Err(NotAStamp);
    }
    at.format(FORMAT).map_err(|_| NotAStamp)
}

pub fn parse_stamp(text: &str) -> Result<OffsetDateTime, NotAStamp> {
    let at = PrimitiveDateTime::parse(text, FORMAT).map_err(|_| NotAStamp)?.assume_utc();
    // The parser also takes a signed year; a moment has one spelling.
    if stamp(at)? == text { Ok(at) } else { Err(NotAStamp) }
}

pub(crate) fn serialize<S: Serializer>(at: &OffsetDateTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&stamp(*at).map_err(serde::ser::Error::custom)?)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OffsetDateTime, D::Error> {
    parse_stamp(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_moment_is_written_in_utc_with_microseconds() {
        let at = datetime!(2026-11-29 17:22:00.123456789 +02:00);
        assert_eq!(stamp(at).as_deref(), Ok("2026-11-29T15:22:00.123456Z"));
        assert_eq!(
            parse_stamp("2026-11-29T15:22:00.123456Z"),
            Ok(datetime!(2026-11-29 15:22:00.123456 UTC))
        );
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "2026-11-29T15:22:00Z",
            "2026-11-29T15:22:00.123Z",
            "2026-11-29T15:22:00.123456+00:00",
            "2026-11-29t15:22:00.123456z",
            "+2026-11-29T15:22:00.123456Z",
            "2026-02-30T15:22:00.123456Z",
        ] {
            assert_eq!(parse_stamp(text), Err(NotAStamp), "{text}");
        }
    }
}
