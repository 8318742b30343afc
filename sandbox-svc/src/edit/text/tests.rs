//! Edits of lines and of found text change what they name and not a byte beside it.

use proptest::prelude::*;

use super::{BadEdit, TextEdit, apply, line_ending};

const MOST: usize = 1 << 20;

fn lines(start: u64, end: u64, text: &str) -> TextEdit {
    TextEdit::Lines { start, end, text: text.to_owned() }
}

fn find(find: &str, replace: &str, every: bool) -> TextEdit {
    TextEdit::Find { find: find.to_owned(), replace: replace.to_owned(), every }
}

fn edited(original: &[u8], edit: TextEdit) -> Result<Vec<u8>, BadEdit> {
    apply(original, &[edit], MOST)
}

#[test]
fn what_cannot_be_edited_as_text_is_refused() {
    for bytes in [b"caf\xe9 \xff\r\n".as_slice(), b"a\0b\n", b"\xff\xfea\0", b"ok\nbad \xc3\n"] {
        assert_eq!(edited(bytes, lines(1, 1, "x")), Err(BadEdit::NotText), "{bytes:?}");
        assert_eq!(edited(bytes, find("a", "b", false)), Err(BadEdit::NotText), "{bytes:?}");
    }
    for (start, end) in [(0, 0), (0, 1), (4, 4), (1, 3), (4, 2), (3, 1), (u64::MAX, u64::MAX)] {
        let refused = edited(b"a\nb\n", lines(start, end, "x"));
        assert_eq!(refused, Err(BadEdit::NoSuchLines { start, end, lines: 2 }), "{start} {end}");
    }
    assert_eq!(edited(b"abc", find("x", "y", true)), Err(BadEdit::NotFound(0)));
    assert_eq!(edited(b"aba", find("a", "y", false)), Err(BadEdit::Ambiguous { at: 0, times: 2 }));
    assert_eq!(edited(b"a\n", lines(1, 1, "x\ry")), Err(BadEdit::Control(0)));
    assert_eq!(edited(b"a\n", find("a", "x\0", false)), Err(BadEdit::Control(0)));
    let both = [lines(1, 2, "x"), find("b", "y", false)];
    assert_eq!(apply(b"a\nb\nc\n", &both, MOST), Err(BadEdit::Overlap));
    let twice = [lines(2, 1, "x"), lines(2, 1, "y")];
    assert_eq!(apply(b"a\nb\nc\n", &twice, MOST), Err(BadEdit::Overlap));
    let long = "x".repeat(1000);
    assert_eq!(apply(&[b'a'; 2000], &[find("a", &long, true)], MOST), Err(BadEdit::TooLarge(MOST)));
    assert_eq!(apply(b"abc\n", &[lines(1, 1, "abcdefgh")], 8), Err(BadEdit::TooLarge(8)));
}

#[test]
fn a_line_keeps_the_ending_that_it_had_or_that_its_neighbours_have() {
    for (original, edit, after) in [
        (b"a\r\nb\r\nc\r\n".as_slice(), lines(2, 2, "x\n"), b"a\r\nx\r\nc\r\n".as_slice()),
        (b"a\r\nb\r\nc", lines(2, 2, "x\ny\nz"), b"a\r\nx\r\ny\r\nz\r\nc"),
        (b"a\r\nb\nc", lines(2, 2, "x\r\ny"), b"a\r\nx\ny\nc"),
        (b"a\r\nb\nc", lines(3, 3, "x"), b"a\r\nb\nx"),
        (b"a\r\nb\nc", lines(3, 3, "x\ny\n"), b"a\r\nb\nx\ny"),
        (b"a\r\nb\nc", lines(4, 3, "x\ny\n"), b"a\r\nb\nc\nx\ny"),
        (b"a\r\nb\n", lines(1, 0, "x"), b"x\r\na\r\nb\n"),
        (b"a\r\nb\n", lines(3, 2, "x"), b"a\r\nb\nx\n"),
        (b"a\nb\nc\n", lines(2, 2, ""), b"a\nc\n"),
        (b"a\nb", lines(2, 2, ""), b"a\n"),
        (b"a\nb\n", lines(1, 1, "\n"), b"\nb\n"),
        (b"a\nb", lines(2, 2, "\n"), b"a\n\n"),
        (b"a\nb", lines(3, 2, "x\n\n"), b"a\nb\nx\n\n"),
        (b"", lines(1, 0, "x\ny"), b"x\ny"),
        (b"", lines(1, 0, "x\n"), b"x\n"),
        (b"\xef\xbb\xbfa\r\nb", lines(1, 1, "x"), b"\xef\xbb\xbfx\r\nb"),
        (b"\xef\xbb\xbfa\r\nb", lines(1, 1, "\u{feff}x"), b"\xef\xbb\xbfx\r\nb"),
        (b"\xef\xbb\xbfa\r\nb", lines(1, 0, "x"), b"\xef\xbb\xbfx\r\na\r\nb"),
        (b"one", lines(1, 1, "x\ny"), b"x\ny"),
    ] {
        assert_eq!(edited(original, edit.clone()).unwrap(), after, "{original:?} {edit:?}");
    }
}

#[test]
fn what_is_found_is_replaced_and_nothing_else() {
    for (original, edit, after) in [
        (
            b"a b\r\nc\r\n".as_slice(),
            find("b\nc", "x\ny\nz", false),
            b"a x\r\ny\r\nz\r\n".as_slice(),
        ),
        (b"a b\r\nc\n", find("b\r\nc\n", "x\ny\n", false), b"a x\r\ny\n"),
        (b"a\r\nb\r\n", find("a", "x\ny", false), b"x\r\ny\r\nb\r\n"),
        (b"a\r\nb\r\n", find("\n", "", true), b"ab"),
        (b"a\nb\na", find("a", "é", true), "é\nb\né".as_bytes()),
        (b"\xef\xbb\xbfa\n", find("a", "b", false), b"\xef\xbb\xbfb\n"),
        (b"x", find("x", "", false), b""),
        (b"a\r\nb", find("b", "c\nd", false), b"a\r\nc\r\nd"),
    ] {
        assert_eq!(edited(original, edit.clone()).unwrap(), after, "{original:?} {edit:?}");
    }
    let several = [lines(3, 3, "3"), find("a", "1", false), lines(2, 1, "new")];
    assert_eq!(apply(b"a\nb\nc\n", &several, MOST).unwrap(), b"1\nnew\nb\n3\n");
}

#[test]
fn an_ending_is_told_by_its_name() {
    for (bytes, name) in
        [(b"".as_slice(), "none"), (b"a\n", "lf"), (b"a\r\n", "crlf"), (b"a\r\nb\n", "mixed")]
    {
        assert_eq!(line_ending(bytes), name);
    }
}

/// A file in pieces: mark, lines with their endings, and whether the last ends.
fn file() -> impl Strategy<Value = (bool, Vec<(String, bool)>, bool)> {
    let line = ("[a-zé ]{0,6}", any::<bool>());
    (any::<bool>(), prop::collection::vec(line, 1..8), any::<bool>())
}

proptest! {
    #[test]
    fn an_edit_by_lines_changes_only_those_lines(
        (marked, made, ended) in file(),
        (first, length) in (0_usize..8, 0_usize..4),
        new in prop::collection::vec("[A-Z]{0,4}", 0..4),
        final_break in any::<bool>(),
    ) {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let all = made.len();
        for (at, (text, both)) in made.iter().enumerate() {
            let ending: &[u8] = if at + 1 == all && !ended { b"" } else if *both { b"\r\n" } else { b"\n" };
            pieces.push([text.as_bytes(), ending].concat());
        }
        // A last line without text and ending is none.
        pieces.retain(|piece| !piece.is_empty());
        prop_assume!(!pieces.is_empty());
        let mark: &[u8] = if marked { b"\xef\xbb\xbf" } else { b"" };
        let original = [mark.to_vec(), pieces.concat()].concat();
        let first = first.min(pieces.len() - 1);
        let last = (first + length).min(pieces.len());
        let mut text = new.join("\n");
        if final_break && !new.is_empty() {
            text.push('\n');
        }
        let edit = lines(first as u64 + 1, last as u64, &text);
        let after = edited(&original, edit).unwrap();
        let before_it = [mark.to_vec(), pieces[..first].concat()].concat();
        let after_it = pieces[last..].concat();
        prop_assert!(after.starts_with(&before_it));
        prop_assert!(after.ends_with(&after_it));
        let middle = &after[before_it.len()..after.len() - after_it.len()];
        // Line for line what was asked for, under endings that the file has.
        let written: Vec<&str> = text.split_inclusive('\n').map(|line| line.trim_end_matches('\n')).collect();
        let middle = std::str::from_utf8(middle).unwrap();
        let found: Vec<&str> = middle
            .split_inclusive('\n')
            .map(|line| line.trim_end_matches('\n').trim_end_matches('\r'))
            .collect();
        prop_assert_eq!(found, written.clone());
        if !pieces.iter().any(|piece| piece.ends_with(b"\r\n")) {
            prop_assert!(!after.contains(&b'\r'));
        }
        let bare = |bytes: &[u8]| line_ending(bytes) == "crlf";
        if bare(&original) {
            prop_assert!(bare(&after) || !after.contains(&b'\n'));
        }
        // What did not end before does not end now, unless its last line went away or is empty.
        if last < pieces.len() || written.last().is_some_and(|line| !line.is_empty()) {
            prop_assert_eq!(original.ends_with(b"\n"), after.ends_with(b"\n"));
        }
    }

    #[test]
    fn a_replacement_changes_only_what_was_found(
        (marked, made, ended) in file(),
        replace in "[A-Z\n]{0,5}",
    ) {
        let mut body = String::new();
        let all = made.len();
        for (at, (text, both)) in made.iter().enumerate() {
            body.push_str(text);
            if at + 1 < all || ended {
                body.push_str(if *both { "\r\n" } else { "\n" });
            }
        }
        let mark = if marked { "\u{feff}" } else { "" };
        let at = body.char_indices().map(|(at, _)| at).nth(body.chars().count() / 2).unwrap_or(0);
        let at = if body.is_char_boundary(at) && !body[at..].starts_with('\n') { at } else { 0 };
        let original = format!("{mark}{}@@{}", &body[..at], &body[at..]);
        let after = edited(original.as_bytes(), find("@@", &replace, false)).unwrap();
        let (head, tail) = (format!("{mark}{}", &body[..at]), &body[at..]);
        prop_assert!(after.starts_with(head.as_bytes()) && after.ends_with(tail.as_bytes()));
        let middle = String::from_utf8(after[head.len()..after.len() - tail.len()].to_vec()).unwrap();
        prop_assert_eq!(middle.replace("\r\n", "\n"), replace);
    }

    #[test]
    fn no_bytes_and_no_edit_break_it(original: Vec<u8>, start: u64, end: u64, text: String, needle: String) {
        let mut all = Vec::new();
        for edit in [lines(start % 4, end % 4, &text), find(&needle, &text, true)] {
            all.push(edit.clone());
            let _: Result<_, BadEdit> = edited(&original, edit);
        }
        let _: Result<_, BadEdit> = apply(&original, &all, MOST);
    }
}
