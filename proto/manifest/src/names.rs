//! What a file name means to tools that fold names: `.git` in every spelling. Names decide here, never
//! contents.

use unicode_normalization::UnicodeNormalization as _;

/// Lower case, with every character gone that some file system or tool ignores, and every character that
/// folds to ASCII folded. Two names that any host takes for the same fold to the same text.
pub fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            _ if is_ignorable(character) => (),
            // Full-width forms stand at one distance from ASCII.
            '\u{ff01}'..='\u{ff5e}' => {
                let plain = u32::from(character) - 0xff01 + 0x21;
                folded.extend(char::from_u32(plain).into_iter().flat_map(char::to_lowercase));
            }
            '\u{3000}' => folded.push(' '),
            '\u{2024}' | '\u{fe52}' | '\u{3002}' | '\u{ff61}' => folded.push('.'),
            '\u{2215}' => folded.push('/'),
            '\u{223c}' | '\u{02dc}' => folded.push('~'),
            'ſ' => folded.push('s'),
            'ı' => folded.push('i'),
            'İ' => folded.push('i'),
            'ß' | 'ẞ' => folded.push_str("ss"),
            '\u{fb05}' | '\u{fb06}' => folded.push_str("st"),
            '\u{fb00}' => folded.push_str("ff"),
            '\u{fb01}' => folded.push_str("fi"),
            '\u{fb02}' => folded.push_str("fl"),
            '\u{fb03}' => folded.push_str("ffi"),
            '\u{fb04}' => folded.push_str("ffl"),
            other => folded.extend(other.to_lowercase()),
        }
    }
    if folded.is_ascii() {
        return folded;
    }
    // A host that composes or decomposes names takes both for one.
    folded.nfc().collect()
}

/// Unicode's default ignorable code points, and the controls that nothing shows.
pub(crate) fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{00ad}'
            | '\u{034f}'
            | '\u{061c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Windows also drops final dots and blanks, and everything after a colon.
pub(crate) fn fold_segment(segment: &str) -> String {
    let folded = fold(segment);
    let plain = folded.split(':').next().unwrap_or(&folded);
    plain.trim_end_matches([' ', '.']).to_owned()
}

/// `.git` as Linux, Windows (short names, streams, final dots and blanks, backslashes) and macOS
/// (ignorable characters) would find it.
pub fn is_git(name: &str) -> bool {
    fold(name).split(['\\', '/']).any(|part| {
        let plain = part.split(':').next().unwrap_or(part).trim_end_matches([' ', '.']);
        plain == ".git" || is_short_git(plain)
    })
}

/// The names that Windows gives to `.git` where it keeps 8.3 names: `git~1` and so on.
fn is_short_git(name: &str) -> bool {
    name.strip_prefix("git~").is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::{fold, is_git};

    #[test]
    fn composed_and_decomposed_letters_fold_to_the_same() {
        assert_eq!(fold("R\u{e9}gles"), fold("re\u{301}gles"));
        // What is ignored does not keep a letter and its mark apart.
        assert_eq!(fold("\u{c9}"), fold("e\u{200d}\u{301}"));
        assert_eq!(fold("\u{212b}"), fold("a\u{30a}"));
    }

    #[test]
    fn git_is_git_in_every_spelling() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git.",
            ".git ",
            ".git . .",
            "git~1",
            "GIT~2",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git::$INDEX_ALLOCATION",
            ".git\\hooks",
            "x\\.git",
            ".g\u{206f}it",
            ".g\u{e0067}it",
            ".g\u{3164}it",
            "\u{ff0e}\u{ff47}\u{ff49}\u{ff54}",
            "\u{ff0e}\u{ff27}\u{ff29}\u{ff34}",
            "\u{2024}git",
            ".gıt",
            ".gİt",
            "git\u{ff5e}1",
            ".git\u{3000}",
        ] {
            assert!(is_git(name), "{name:?}");
        }
        for name in [".gitignore", ".github", "git", "git~", "git~x", ".gitattributes", "a.git"] {
            assert!(!is_git(name), "{name:?}");
        }
    }
}
