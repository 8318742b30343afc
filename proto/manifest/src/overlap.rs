//! How two patterns lie to each other: whether one covers all that the other does, and whether anything is
//! covered by both. Where an answer would take too long, the one for lint reports nothing and the one for decisions
//! overlooks nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::glob::{Glob, Token};

/// How many states are looked at before giving up.
const MAX_STATES: usize = 16_384;

/// Whether some subject matches both.
pub(crate) fn intersect(one: &Glob, other: &Glob) -> bool {
    meet(one, other) == Some(true)
}

/// Whether it is not certain that no subject matches both: for what must not be overlooked.
pub(crate) fn may_intersect(one: &Glob, other: &Glob) -> bool {
    meet(one, other) != Some(false)
}

/// Nothing where the answer would take too long.
fn meet(one: &Glob, other: &Glob) -> Option<bool> {
    if !one.prefix().starts_with(other.prefix()) && !other.prefix().starts_with(one.prefix()) {
        return Some(false);
    }
    let (one, other) = (one.tokens(), other.tokens());
    let mut seen = BTreeSet::from([(0, 0)]);
    let mut queue = VecDeque::from([(0, 0)]);
    while let Some((left, right)) = queue.pop_front() {
        if left == one.len() && right == other.len() {
            return Some(true);
        }
        if seen.len() > MAX_STATES {
            return None;
        }
        let mut next = Vec::new();
        if one.get(left).is_some_and(may_be_nothing) {
            next.push((left + 1, right));
        }
        if other.get(right).is_some_and(may_be_nothing) {
            next.push((left, right + 1));
        }
        if let (Some(a), Some(b)) = (one.get(left), other.get(right))
            && share_a_character(a, b)
        {
            next.push((after(left, a), after(right, b)));
        }
        queue.extend(next.into_iter().filter(|state| seen.insert(*state)));
    }
    Some(false)
}

/// Whether every subject that `inner` covers is covered by `outer`.
pub(crate) fn contains(outer: &Glob, inner: &Glob) -> bool {
    if !inner.prefix().starts_with(outer.prefix()) {
        return false;
    }
    let (outer, inner) = (outer.tokens(), inner.tokens());
    let alphabet = alphabet(&outer, &inner);
    let start = (0, closed(&outer, [0]));
    let mut seen = BTreeSet::from([start.clone()]);
    let mut queue = VecDeque::from([start]);
    while let Some((place, reached)) = queue.pop_front() {
        if place == inner.len() && !reached.contains(&outer.len()) {
            return false;
        }
        if seen.len() > MAX_STATES {
            return false;
        }
        let Some(token) = inner.get(place) else { continue };
        let mut next = Vec::new();
        if may_be_nothing(token) {
            next.push((place + 1, reached.clone()));
        }
        for character in alphabet.iter().filter(|character| covers(token, **character)) {
            let stepped = reached.iter().filter_map(|place| {
                let token = outer.get(*place)?;
                covers(token, *character).then(|| after(*place, token))
            });
            next.push((after(place, token), closed(&outer, stepped)));
        }
        queue.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    true
}

/// One of each kind of character that the two patterns can tell apart.
fn alphabet(one: &[Token], other: &[Token]) -> BTreeSet<char> {
    let named = one.iter().chain(other).filter_map(|token| match token {
        Token::Exactly(character) => Some(*character),
        Token::OneInSegment | Token::ManyInSegment | Token::Many => None,
    });
    // A private character stands for all that neither names.
    named.chain(['/', '\u{f8ff}']).collect()
}

/// With every place that is reached by covering nothing.
fn closed(tokens: &[Token], places: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for mut place in places {
        all.insert(place);
        while tokens.get(place).is_some_and(may_be_nothing) {
            place += 1;
            all.insert(place);
        }
    }
    all
}

fn may_be_nothing(token: &Token) -> bool {
    matches!(token, Token::ManyInSegment | Token::Many)
}

fn after(place: usize, token: &Token) -> usize {
    place + usize::from(!may_be_nothing(token))
}

fn covers(token: &Token, character: char) -> bool {
    match token {
        Token::Exactly(wanted) => *wanted == character,
        Token::OneInSegment | Token::ManyInSegment => character != '/',
        Token::Many => true,
    }
}

fn share_a_character(one: &Token, other: &Token) -> bool {
    match (one, other) {
        (Token::Exactly(character), token) | (token, Token::Exactly(character)) => {
            covers(token, *character)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{contains, intersect};
    use crate::glob::{Glob, matches};
    use proptest::prelude::*;

    #[test]
    fn patterns_are_compared_by_what_they_cover() {
        for (outer, inner, contained, both) in [
            ("**", "src/**", true, true),
            ("src/**", "**", false, true),
            ("src/*", "src/**", false, true),
            ("src/**", "src/*", true, true),
            ("*.rs", "src/*.rs", false, false),
            ("**.rs", "src/*.rs", true, true),
            ("src/*", "*/lib", false, true),
            ("a?", "ab", true, true),
            ("a", "b", false, false),
            ("a*", "?b", false, true),
        ] {
            let globs = (Glob::new(outer), Glob::new(inner));
            assert_eq!(contains(&globs.0, &globs.1), contained, "{outer} over {inner}");
            assert_eq!(intersect(&globs.0, &globs.1), both, "{outer} and {inner}");
        }
    }

    proptest! {
        #[test]
        fn the_comparison_agrees_with_the_matcher(
            one in "[ab/*?]{0,5}",
            other in "[ab/*?]{0,5}",
            subject in "[abx/]{0,5}",
        ) {
            let (left, right) = (Glob::new(&one), Glob::new(&other));
            let (in_one, in_other) = (matches(&one, &subject), matches(&other, &subject));
            if in_one && in_other {
                prop_assert!(intersect(&left, &right));
            }
            if contains(&left, &right) {
                prop_assert!(!in_other || in_one);
                // A pattern covers something, so what contains it shares that.
                prop_assert!(intersect(&left, &right));
            }
            prop_assert!(contains(&left, &left));
        }
    }
}
