//! Decides how text from elsewhere may reach a terminal: every character that moves the cursor, hides, reorders or
//! imitates another is written as an escape. It never drops a character and never shortens.
use std::fmt::Write as _;

use serde_json::Value;

/// Blank letters that the standard library counts as printable.
const BLANKS: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// The text on one line. A backslash is doubled, so that an escape can not be imitated.
#[must_use]
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if hides(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The text with its line feeds kept; for output that is shown as what a program wrote.
#[must_use]
pub fn block(text: &str) -> String {
    let mut lines = text.split('\n').map(line);
    let mut out = lines.next().unwrap_or_default();
    for next in lines {
        out.push('\n');
        out.push_str(&next);
    }
    out
}

/// The text with `mark` before each of its lines, so that none of them passes for a line of ours.
#[must_use]
pub fn quoted(mark: &str, text: &str) -> String {
    text.split('\n').map(|part| format!("{mark}{}", line(part))).collect::<Vec<_>>().join("\n")
}

/// JSON on one line, escaped as [`json`] does.
#[must_use]
pub fn json_line(value: &Value) -> String {
    json_text(&value.to_string())
}

/// Indented JSON in which what a terminal would hide is a JSON escape: the text still parses to the same value.
#[must_use]
pub fn json(value: &Value) -> String {
    json_text(&format!("{value:#}"))
}

/// JSON that is text already, escaped as [`json`] does.
pub(crate) fn json_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c != '\n' && hides(c) {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String does not fail.
                if write!(out, "\\u{unit:04x}").is_err() {
                    return out;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// "17 bytes, 1 line": what a reader compares with what is on the screen.
#[must_use]
pub fn extent(text: &str) -> String {
    let lines = text.split('\n').count();
    let (b, l) = (if text.len() == 1 { "" } else { "s" }, if lines == 1 { "" } else { "s" });
    format!("{} byte{b}, {lines} line{l}", text.len())
}

/// Whether a terminal would show all of the text as it is.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(hides)
}

/// Controls, format characters, separators, private and unassigned code points, marks that join the character
/// before them, and blanks other than the space.
fn hides(c: char) -> bool {
    match c {
        '\'' | '"' | '\\' => false,
        c if c.is_ascii() => c.is_ascii_control(),
        c => BLANKS.contains(&c) || c.escape_debug().len() > 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_of_any_script_stays() {
        for text in [
            "cargo test -- --nocapture",
            "naïve café",
            "日本語",
            "Привет",
            "\"it's\" $HOME `x`",
            "🦀",
        ] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn what_moves_hides_or_reorders_is_written_out() {
        let cases = [
            ("\x1b[2J", "\\u{1b}[2J"),
            ("a\x08b\x7f", "a\\u{8}b\\u{7f}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("rm \u{202e}gpj.txt", "rm \\u{202e}gpj.txt"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("\u{61c}\u{200e}\u{200f}", "\\u{61c}\\u{200e}\\u{200f}"),
            (
                "l\u{200b}s\u{200d}\u{feff}\u{2060}\u{ad}",
                "l\\u{200b}s\\u{200d}\\u{feff}\\u{2060}\\u{ad}",
            ),
            ("a\u{2028}b\u{2029}c\u{85}d", "a\\u{2028}b\\u{2029}c\\u{85}d"),
            ("a\u{a0}b\u{3000}c\u{2800}d\u{3164}", "a\\u{a0}b\\u{3000}c\\u{2800}d\\u{3164}"),
            ("e\u{301}\u{fe0f}", "e\\u{301}\\u{fe0f}"),
            ("\u{e0041}\u{f8ff}\u{e000}", "\\u{e0041}\\u{f8ff}\\u{e000}"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}"),
        ];
        for (raw, shown) in cases {
            assert_eq!(line(raw), shown);
        }
    }

    #[test]
    fn an_escape_can_not_be_imitated() {
        assert_ne!(line("\\u{202e}"), line("\u{202e}"));
        assert_ne!(line("\\n"), line("\n"));
    }

    #[test]
    fn a_block_keeps_only_line_feeds() {
        assert_eq!(block("one\ntwo\r\n\x1b[A"), "one\ntwo\\r\n\\u{1b}[A");
        assert_eq!(block(""), "");
    }

    #[test]
    fn json_shows_everything_and_still_parses_to_the_same_value() {
        let value = serde_json::json!({"argv": ["ls\n\n; rm", "\u{202e}x\u{e0041}", "\\u202e", "\u{9b}"], "é": 1});
        let shown = json(&value);
        assert!(shown.chars().all(|c| c == '\n' || !hides(c)), "{shown}");
        assert!(shown.contains("\\u202ex\\udb40\\udc41"), "{shown}");
        let back: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn json_on_one_line_doubles_no_backslash() {
        let value = serde_json::json!({"text": "a\\b\n\u{202e}\u{9b}\""});
        let shown = json_line(&value);
        assert_eq!(shown, r#"{"text":"a\\b\n\u202e\u009b\""}"#);
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }

    #[test]
    fn every_line_of_a_quotation_is_marked() {
        assert_eq!(
            quoted("out| ", "a\n\nAllow? y/N\r\x1b[A"),
            "out| a\nout| \nout| Allow? y/N\\r\\u{1b}[A"
        );
        assert_eq!(quoted("out| ", ""), "out| ");
    }

    #[test]
    fn extent_counts_bytes_and_lines() {
        assert_eq!(extent("é"), "2 bytes, 1 line");
        assert_eq!(extent("a\n\nb"), "4 bytes, 3 lines");
        assert_eq!(extent("a"), "1 byte, 1 line");
    }

    proptest::proptest! {
        #[test]
        fn no_text_reaches_the_terminal_raw(text in proptest::prelude::any::<String>()) {
            proptest::prop_assert!(!line(&text).chars().any(hides));
            proptest::prop_assert!(!block(&text).chars().any(|c| c != '\n' && hides(c)));
        }

        #[test]
        fn two_texts_never_look_the_same(a in ".{0,12}", b in ".{0,12}") {
            proptest::prop_assert_eq!(a == b, line(&a) == line(&b));
        }
    }
}
