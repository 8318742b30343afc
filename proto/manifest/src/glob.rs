//! Patterns over paths and command subjects: `*` is anything but `/`, `**` is anything and eats one `/` that
//! follows it, `?` is one character but `/`. A pattern covers the whole subject; nothing is escaped.

/// Whether `pattern` covers all of `subject`.
pub fn matches(pattern: &str, subject: &str) -> bool {
    Glob::new(pattern).matches(subject)
}

/// A pattern, read once. Most subjects are told apart by what the pattern begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    /// What every subject begins with.
    prefix: String,
    /// What comes after it; the first, if any, is no literal.
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Exactly(char),
    OneInSegment,
    ManyInSegment,
    Many,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        let literal = pattern.find(['*', '?']).unwrap_or(pattern.len());
        let (prefix, mut rest) = pattern.split_at(literal);
        let mut tokens = Vec::new();
        while let Some(first) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("**") {
                tokens.push(Token::Many);
                rest = after.strip_prefix('/').unwrap_or(after);
                continue;
            }
            tokens.push(match first {
                '*' => Token::ManyInSegment,
                '?' => Token::OneInSegment,
                other => Token::Exactly(other),
            });
            rest = &rest[first.len_utf8()..];
        }
        Self { prefix: prefix.to_owned(), tokens }
    }

    /// No wildcard: it covers exactly itself.
    pub(crate) fn is_literal(&self) -> bool {
        self.tokens.is_empty()
    }

    /// What every subject begins with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The whole pattern, its literal beginning included.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.prefix.chars().map(Token::Exactly).chain(self.tokens.iter().copied()).collect()
    }

    pub(crate) fn matches(&self, subject: &str) -> bool {
        let Some(rest) = subject.strip_prefix(self.prefix.as_str()) else { return false };
        match self.tokens.as_slice() {
            [] => rest.is_empty(),
            [Token::Many] => true,
            _ => self.walk(rest),
        }
    }

    /// Keeps every place in the pattern that could have been reached, so time is bounded by the product
    /// of the lengths whatever the pattern.
    fn walk(&self, subject: &str) -> bool {
        let mut places = vec![false; self.tokens.len() + 1];
        let mut next = places.clone();
        places[0] = true;
        self.skip_empty(&mut places);
        for character in subject.chars() {
            next.fill(false);
            for (place, token) in self.tokens.iter().enumerate() {
                if !places[place] {
                    continue;
                }
                match token {
                    Token::Exactly(wanted) if *wanted == character => next[place + 1] = true,
                    Token::OneInSegment if character != '/' => next[place + 1] = true,
                    Token::ManyInSegment if character != '/' => next[place] = true,
                    Token::Many => next[place] = true,
                    Token::Exactly(_) | Token::OneInSegment | Token::ManyInSegment => {}
                }
            }
            self.skip_empty(&mut next);
            std::mem::swap(&mut places, &mut next);
        }
        places[self.tokens.len()]
    }

    /// A `*` or `**` may cover nothing.
    fn skip_empty(&self, places: &mut [bool]) {
        for (place, token) in self.tokens.iter().enumerate() {
            if places[place] && matches!(token, Token::ManyInSegment | Token::Many) {
                places[place + 1] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    #[test]
    fn a_star_stays_in_its_segment_and_two_stars_do_not() {
        for (pattern, subject, expected) in [
            ("src/*", "src/a.rs", true),
            ("src/*", "src/a/b.rs", false),
            ("src/**", "src/a/b.rs", true),
            ("src/**", "src/", true),
            ("src/**", "src", false),
            ("**", "", true),
            ("**/a", "a", true),
            ("**/a", "x/y/a", true),
            ("**/a", "ba", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("a", "ab", false),
            ("a", "xa", false),
            ("", "", true),
            ("", "a", false),
            ("ä*", "äöü", true),
            ("***", "a/b", true),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} on {subject}");
        }
    }

    #[test]
    fn a_command_pattern_with_one_star_stops_at_a_slash() {
        assert!(matches("git status*", "git status --short"));
        assert!(!matches("git status*", "git status src/lib.rs"));
        assert!(matches("git status**", "git status src/lib.rs"));
    }

    #[test]
    fn a_long_hostile_pattern_ends_in_time() {
        let pattern = "*a".repeat(500);
        assert!(!matches(&pattern, &"a".repeat(400)));
        assert!(matches(&"**".repeat(500), &"a/".repeat(500)));
    }

    /// Written as the rules read, without regard to time.
    fn naive(pattern: &[char], subject: &[char]) -> bool {
        match pattern {
            [] => subject.is_empty(),
            ['*', '*', rest @ ..] => {
                let rest = rest.strip_prefix(&['/'][..]).unwrap_or(rest);
                (0..=subject.len()).any(|taken| naive(rest, &subject[taken..]))
            }
            ['*', rest @ ..] => (0..=subject.len())
                .take_while(|taken| !subject[..*taken].contains(&'/'))
                .any(|taken| naive(rest, &subject[taken..])),
            ['?', rest @ ..] => {
                subject.split_first().is_some_and(|(one, after)| *one != '/' && naive(rest, after))
            }
            [wanted, rest @ ..] => subject
                .split_first()
                .is_some_and(|(one, after)| one == wanted && naive(rest, after)),
        }
    }

    proptest! {
        #[test]
        fn the_matcher_agrees_with_the_naive_reading(
            pattern in "[ab/*?]{0,8}",
            subject in "[ab/\n]{0,8}",
        ) {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                matches(&pattern, &subject),
                naive(&characters(&pattern), &characters(&subject))
            );
        }
    }
}
