//! Amounts with units, as people write them: `64MiB`, `300s`. A number without a unit is taken only where
//! there is just one unit it could have.

use std::time::Duration;

/// Digits only: no sign, no separators.
pub(crate) fn whole(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Bytes: a whole number, or one with B, KiB, MiB or GiB.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    whole(number)?.checked_mul(factor)
}

/// A whole number with ms, s, m or h.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    let number = whole(number)?;
    let seconds = |factor| number.checked_mul(factor).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        _ => None,
    }
}

/// Thousandths: a whole number or one with up to three decimals.
pub(crate) fn milli(text: &str) -> Option<u64> {
    let (ones, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 3 {
        return None;
    }
    whole(ones)?.checked_mul(1_000)?.checked_add(whole(&format!("{decimals:0<3}"))?)
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::{bytes, duration, milli};
    use std::time::Duration;

    #[test]
    fn amounts_need_a_known_unit_and_fit() {
        assert_eq!(bytes("512MiB"), Some(536_870_912));
        assert_eq!(bytes("7"), Some(7));
        for text in ["", "MiB", "1MB", "1 MiB", "-1", "99999999999GiB", "1.5GiB", "+1"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(duration("5m"), Some(Duration::from_secs(300)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        for text in ["", "5", "s", "1d", "1h30m", "18446744073709551615h"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(milli("1"), Some(1_000));
        assert_eq!(milli("0.25"), Some(250));
        for text in ["", ".", "1.0001", "-1", "1e3", "1.+5", "+1"] {
            assert_eq!(milli(text), None, "{text}");
        }
    }
}
