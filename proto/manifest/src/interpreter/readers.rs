//! Programs that read their argv in a way of their own: shells, interpreters, `env`, `su` and their like. What
//! they leave open counts as unknown, never as nothing.

use super::Inner;
use super::programs::{argv, is_cluster, is_long, scripts};
use super::wrappers;
use crate::shell::is_assignment;

/// The script after `-c` is the first word that is no option; without `-c` it is a file, and without a file the
/// input.
pub(super) fn shell(arguments: &[String]) -> Vec<Inner> {
    let (mut given, mut unknown) = (false, false);
    let mut rest = arguments.iter();
    let first = loop {
        let Some(word) = rest.next() else { break None };
        if word == "--" || word == "-" {
            break rest.next();
        }
        if word.len() < 2 || !word.starts_with(['-', '+']) {
            break Some(word);
        }
        if word.starts_with("--") {
            // What else has a value, or reads a file of its own, only the shell knows.
            unknown |= !matches!(word.as_str(), "--norc" | "--noprofile" | "--login" | "--posix");
            if matches!(word.as_str(), "--rcfile" | "--init-file" | "--emulate") {
                rest.next();
            }
            continue;
        }
        given |= word.starts_with('-') && word.contains('c');
        unknown |= word.contains('s');
        // Each `o` of a cluster has the name of an option as a word of its own.
        for _ in word.matches(['o', 'O']) {
            rest.next();
        }
    };
    let mut inner = Vec::new();
    match first {
        Some(script) if given => inner.push(Inner::Script(script.clone())),
        Some(_) => {}
        None => unknown = true,
    }
    if unknown {
        inner.push(Inner::Unknown("it reads commands from elsewhere"));
    }
    inner
}

/// A file of its language is a program like any other; a text among the arguments is one that nobody can read.
pub(super) fn interpreter(arguments: &[String]) -> Vec<Inner> {
    let module = arguments.first().is_some_and(|word| word == "-m");
    let file = arguments.first().is_some_and(|word| {
        word.len() > 1 && word.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
    });
    let option = arguments.first().is_some_and(|word| word.starts_with('-'));
    if module || file && !option {
        return Vec::new();
    }
    vec![Inner::Opaque("it is given a program in another language, or reads one")]
}

/// One file that is many programs: the first word says which.
pub(super) fn multi_call(arguments: &[String]) -> Vec<Inner> {
    let Some((first, rest)) = arguments.split_first() else { return Vec::new() };
    if !first.starts_with('-') {
        return argv(arguments);
    }
    let mut inner = vec![Inner::Unknown("which of its programs it is is not certain")];
    if let Some((_, program)) = first.split_once('=') {
        let words: Vec<String> = [program.to_owned()].into_iter().chain(rest.to_vec()).collect();
        inner.extend(argv(&words));
        inner.extend(argv(words.get(1..).unwrap_or_default()));
    }
    inner
}

/// Its options, assignments, then a command; the words in the value of `-S` take the place of that option.
pub(super) fn env(arguments: &[String]) -> Vec<Inner> {
    const VALUED: [&str; 3] = ["--unset", "--chdir", "--argv0"];
    const FLAGS: [&str; 4] =
        ["--ignore-environment", "--null", "--debug", "--list-signal-handling"];
    const SPLIT: &str = "--split-string";
    let mut inner = Vec::new();
    let mut words = arguments.to_vec();
    // What is put in place is shorter than what it was written in.
    while let Some((first, rest)) = words.split_first() {
        if is_assignment(first) || first == "-" {
            words = rest.to_vec();
            continue;
        }
        if first == "--" {
            let after: Vec<String> =
                rest.iter().skip_while(|word| is_assignment(word)).cloned().collect();
            inner.extend(argv(&after));
            return inner;
        }
        let split = if is_long(SPLIT, first) {
            first.split_once('=').map_or(Split::Next, |(_, value)| Split::Value(value.to_owned()))
        } else if first.starts_with("--") {
            let known = VALUED.iter().any(|known| is_long(known, first));
            if !known && !first.contains('=') && !FLAGS.contains(&first.as_str()) {
                inner.push(Inner::Unknown("it has an option that is not known"));
            }
            if known && !first.contains('=') { Split::Skip } else { Split::None }
        } else if is_cluster(first) {
            cluster(first, &mut inner)
        } else {
            inner.extend(argv(&words));
            return inner;
        };
        let (text, rest) = match split {
            Split::None => (None, rest),
            Split::Skip => (None, rest.get(1..).unwrap_or_default()),
            Split::Next => (rest.first().cloned(), rest.get(1..).unwrap_or_default()),
            Split::Value(text) => (Some(text), rest),
        };
        let put = text.map(|text| put_apart(&text, &mut inner)).unwrap_or_default();
        words = put.into_iter().chain(rest.iter().cloned()).collect();
    }
    inner
}

enum Split {
    None,
    /// The next word is a value of no interest.
    Skip,
    /// The next word is split.
    Next,
    Value(String),
}

/// Letters of `env`.
fn cluster(word: &str, inner: &mut Vec<Inner>) -> Split {
    for (at, letter) in word.char_indices().skip(1) {
        let value = &word[at + letter.len_utf8()..];
        match letter {
            'i' | '0' | 'v' => {}
            'u' | 'C' | 'a' => return if value.is_empty() { Split::Skip } else { Split::None },
            'S' if value.is_empty() => return Split::Next,
            'S' => return Split::Value(value.to_owned()),
            _ => inner.push(Inner::Unknown("it has an option that is not known")),
        }
    }
    Split::None
}

/// Splits at blanks outside of quotes. Escapes, variables and comments are left to `env` itself.
fn put_apart(text: &str, inner: &mut Vec<Inner>) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut understood = !text.contains(['\\', '$', '#']);
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_ascii_whitespace() || character == '\u{b}' => {
                words.extend(word.take());
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    understood &= quote.is_none();
    if !understood {
        inner.push(Inner::Unknown("env -S has escapes, variables or an open quote"));
        // What may be meant, so that it is judged too.
        inner.push(Inner::Script(text.replace("\\_", " ")));
    }
    words
}

/// `su`, `runuser` and `script`: a shell with what `-c` says, or after operands a command.
pub(super) fn su(name: &str, arguments: &[String]) -> Vec<Inner> {
    let mut inner: Vec<Inner> = scripts(arguments, 'c', "--command")
        .chain(scripts(arguments, '\0', "--session-command"))
        .map(Inner::Script)
        .collect();
    let plain = |word: &String| {
        !word.starts_with('-')
            || matches!(word.as_str(), "-" | "-l" | "-m" | "-p" | "-q" | "-a" | "-f" | "-c" | "-e")
            || matches!(word.as_str(), "-lc" | "-qc" | "-ac" | "-ec" | "--command" | "--login")
            || word.starts_with("--command=")
    };
    let operands = arguments.iter().filter(|word| !word.starts_with('-')).count();
    // The value of -c is a word of its own, and one more names a user or a file.
    let understood = inner.len() == 1 && operands <= 2 && arguments.iter().all(plain);
    if !understood {
        inner.push(Inner::Unknown("it starts a shell whose commands are not certain"));
    }
    // `runuser -u user [--] command`, `script -- command` and `script file command`.
    let letters = if name == "script" { wrappers::SCRIPT } else { wrappers::RUNUSER };
    if name != "su" {
        inner.extend(argv(letters.command(arguments)));
    }
    if let Some(end) = arguments.iter().position(|word| word == "--") {
        inner.extend(argv(&arguments[end + 1..]));
    } else if name == "script" {
        inner.extend(argv(letters.command(arguments).get(1..).unwrap_or_default()));
    }
    inner
}

/// `sg [-] group [-c] command`.
pub(super) fn sg(arguments: &[String]) -> Vec<Inner> {
    let words: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|word| !matches!(*word, "-" | "-c" | "--"))
        .collect();
    let odd = words.iter().any(|word| word.starts_with('-'));
    let mut inner: Vec<Inner> = scripts(arguments, 'c', "--command").map(Inner::Script).collect();
    match words.split_first() {
        Some((_, script)) if !script.is_empty() => inner.push(Inner::Script(script.join(" "))),
        _ => inner.push(Inner::Unknown("it starts a shell that reads its input")),
    }
    if odd {
        inner.push(Inner::Unknown("it has an option that is not known"));
    }
    inner
}

/// `trap [--] script signals`; with other options it only prints.
pub(super) fn trap(arguments: &[String]) -> Vec<Inner> {
    let words = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    words.first().cloned().map(Inner::Script).into_iter().collect()
}
