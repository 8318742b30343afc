//! Programs of which only some options or words run something else. What may be such an option counts as one.

use super::Inner;
use super::programs::{argv, is_cluster, is_flag, lists, scripts, told_to_run};

pub(super) fn find(arguments: &[String]) -> Option<Vec<Inner>> {
    const RUNS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
    let mut class = arguments.iter().any(|word| word == "-delete");
    let mut inner = Vec::new();
    for (index, word) in arguments.iter().enumerate() {
        if RUNS.contains(&word.as_str()) {
            class = true;
            let after = &arguments[index + 1..];
            let end = after.iter().position(|word| word == ";" || word == "+");
            let command = &after[..end.unwrap_or(after.len())];
            if command.first().is_some_and(|program| program.contains("{}")) {
                inner.push(Inner::Opaque("it runs the files that it finds"));
            }
            inner.extend(argv(command));
        }
    }
    class.then_some(inner)
}

/// Options and subcommands through which git runs what it is told, and configuration that names programs.
pub(super) fn git(arguments: &[String]) -> Option<Vec<Inner>> {
    const OPTIONS: &str = "--exec --config --ext-diff --textconv --upload-pack --receive-pack \
        --open-files-in-pager --extcmd --template --git-dir --work-tree --super-prefix --paginate -c -x -u -O";
    const SUBCOMMANDS: &str = "config bisect filter-branch difftool mergetool send-email svn daemon instaweb \
        credential submodule p4 cvsserver shell gui citool help remote-ext hook maintenance";
    let settings = scripts(arguments, 'c', "--config");
    let run = scripts(arguments, 'x', "--exec");
    let mut inner: Vec<Inner> = settings
        .filter_map(|setting| {
            let (_, value) = setting.split_once('=')?;
            Some(Inner::Script(value.trim_start_matches('!').to_owned()))
        })
        .chain(run.map(Inner::Script))
        .collect();
    for (index, word) in arguments.iter().enumerate() {
        if matches!(word.as_str(), "foreach" | "run") {
            let after = &arguments[index + 1..];
            let after = after.iter().skip_while(|word| word.starts_with('-')).cloned();
            let words: Vec<String> = after.collect();
            inner.extend(argv(&words));
            inner.push(Inner::Script(words.join(" ")));
        }
    }
    // Before the subcommand stand options about where the configuration is, and that names programs.
    let early = arguments.first().is_some_and(|word| word.starts_with('-') && word != "--version");
    let class = early
        || arguments.iter().any(|word| {
            is_flag(OPTIONS, word)
                || lists(SUBCOMMANDS, word)
                || word.starts_with("ext::")
                || word.starts_with("fd::")
        });
    inner.extend(told_to_run());
    class.then_some(inner)
}

pub(super) fn tar(arguments: &[String]) -> Option<Vec<Inner>> {
    const LONG: &str = "--to-c --checkpoint-a --us --rsh --rmt --info-s --new-v";
    let old_style = |index: usize, word: &str| index == 0 && !word.starts_with('-');
    let mut class = false;
    let mut inner = Vec::new();
    for (index, word) in arguments.iter().enumerate() {
        let letters = (is_cluster(word) || old_style(index, word)) && word.contains(['I', 'F']);
        let long = word.starts_with("--") && is_flag(LONG, word);
        if !letters && !long {
            continue;
        }
        class = true;
        let attached = match word.split_once('=') {
            Some((_, value)) if long => value,
            _ if long => "",
            _ => word.split_once(['I', 'F']).map_or("", |(_, value)| value),
        };
        let next = || arguments.get(index + 1).map(String::as_str);
        let value = if attached.is_empty() { next() } else { Some(attached) };
        let script = value.map(|value| value.strip_prefix("exec=").unwrap_or(value));
        inner.extend(script.map(|script| Inner::Script(script.to_owned())));
    }
    inner.extend(told_to_run());
    class.then_some(inner)
}

/// A script of sed is harmless only when it is plainly so: `e` runs, and where `e` may hide is hard to tell.
pub(super) fn sed(arguments: &[String]) -> Option<Vec<Inner>> {
    let mut given = false;
    let mut rest = arguments.iter();
    let mut operands = Vec::new();
    while let Some(word) = rest.next() {
        let script = match word.as_str() {
            "-e" | "--expression" => rest.next().map(String::as_str),
            "-n" | "-E" | "-r" | "-i" | "-s" | "-u" | "-z" | "--quiet" | "--silent" => continue,
            "--regexp-extended" | "--in-place" | "--debug" | "--posix" | "--sandbox" => continue,
            other => match other.strip_prefix("--expression=") {
                Some(script) => Some(script),
                // A script from a file, or letters that may hold one.
                None if other.len() > 1 && other.starts_with('-') => return Some(told_to_run()),
                None => {
                    operands.push(other);
                    continue;
                }
            },
        };
        given = true;
        if !script.is_some_and(is_plain_sed) {
            return Some(told_to_run());
        }
    }
    match operands.first() {
        Some(script) if !given && !is_plain_sed(script) => Some(told_to_run()),
        _ => None,
    }
}

/// One command of `p`, `d`, `q` or `=` under line numbers, or one substitution whose flags are known.
fn is_plain_sed(script: &str) -> bool {
    let address = |c: char| c.is_ascii_digit() || matches!(c, ',' | '$' | ' ' | '!');
    let command = script.trim_start_matches(address);
    if matches!(command, "p" | "d" | "q" | "=") {
        return true;
    }
    let Some(rest) = command.strip_prefix('s') else { return false };
    let Some(delimiter) = rest.chars().next().filter(|c| matches!(c, '/' | '|' | '#' | ',' | ':'))
    else {
        return false;
    };
    let parts: Vec<&str> = rest.split(delimiter).collect();
    !script.contains(['\n', '\\', ';'])
        && parts.len() == 4
        && parts[3].chars().all(|flag| matches!(flag, 'g' | 'p' | 'i' | 'I' | '0'..='9'))
}

/// Targets are the project's own; another file, text or variable is the caller's program.
pub(super) fn make(arguments: &[String]) -> Option<Vec<Inner>> {
    const OPTIONS: &str = "--ev --fi --mak --dir --inc -E -f -C -I";
    let class = arguments
        .iter()
        .any(|word| is_flag(OPTIONS, word) || !word.starts_with('-') && word.contains('='));
    class.then(told_to_run)
}
