//! The programs of the class, by name and, where only some of their options run something, by those. The lists
//! steer what is asked; containment is the container's.

use super::Inner;
use super::options::{find, git, make, sed, tar};
use super::wrappers::{self, ENV, LINKER};

/// They take a script after `-c` and speak the language that we can take apart.
const SHELLS: &str = "sh bash dash ash zsh ksh mksh rbash yash";
/// They speak another.
const OTHER_SHELLS: &str = "fish csh tcsh pwsh powershell rc es nu elvish xonsh";
/// Whatever they are given is a program, or holds one.
const INTERPRETERS: &str = "perl ruby irb node nodejs deno bun php lua luajit awk gawk mawk nawk \
    original-awk tclsh wish expect r rscript julia ghci runghc runhaskell guile racket gracket scheme sbcl \
    clisp ecl elixir iex erl escript groovy scala kotlin jshell java osascript swift ocaml raku octave m4 dc \
    ed ex vi vim nvim view rvim vimdiff gvim emacs emacsclient sqlite psql mysql mariadb ftp lftp ipython \
    jython pypy micropython ts-node tsx coffee lldb gdb";
/// They start programs in a way that is not taken apart here.
const STARTERS: &str = "at batch crontab screen tmux xterm socat nc ncat netcat docker podman nerdctl \
    kubectl machinectl flatpak bwrap start-stop-daemon perf rr hyperfine pipx alias source .";
/// `program:` and what makes it one of the class: a word, the beginning of a long option, or a letter.
const FLAGGED: &[(&str, &str)] = &[
    ("apt", "-o --option -c"),
    ("apt-get", "-o --option -c"),
    ("cargo", "--config"),
    ("cmake", "-P -E"),
    ("dpkg", "--pre-invoke --post-invoke"),
    ("go", "run generate tool -exec -toolexec -vettool"),
    ("hg", "--config"),
    ("ip", "exec -b -batch --batch"),
    ("man", "-P -H --pager --html"),
    ("npm", "exec x explore"),
    ("pnpm", "exec dlx"),
    ("rsync", "-e --rs"),
    ("scp", "-S -o -D"),
    ("sftp", "-S -o -D"),
    ("sort", "--compress-p"),
    ("split", "--fil"),
    ("svn", "--config-option --diff-cmd --diff3-cmd --editor-cmd"),
    ("tcpdump", "-z"),
    ("yarn", "exec dlx node"),
    ("zip", "-T --unz"),
];

/// What a program of the class runs; nothing when it is none.
pub(super) fn look(name: &str, arguments: &[String]) -> Option<Vec<Inner>> {
    let name = name.to_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    if ["ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2"].iter().any(|ld| name.starts_with(ld)) {
        return Some(argv(LINKER.command(arguments)));
    }
    if name.starts_with("python") {
        return Some(Vec::new());
    }
    named(name, arguments).or_else(|| {
        // `bash-5.2`, `lua5.4` and `perl5.36.0` are what they are called without the version.
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || "._-".contains(c));
        if stem.is_empty() || stem == name { None } else { named(stem, arguments) }
    })
}

fn named(name: &str, arguments: &[String]) -> Option<Vec<Inner>> {
    if lists(SHELLS, name) {
        return Some(shell(arguments));
    }
    if lists(OTHER_SHELLS, name) {
        return Some(vec![Inner::Unknown("it is not the language of a POSIX shell")]);
    }
    if lists(INTERPRETERS, name) || lists(STARTERS, name) {
        return Some(Vec::new());
    }
    if let Some(wrapper) = wrappers::find(name) {
        let command = wrapper.command(arguments);
        let mut inner =
            if wrapper.joins { vec![Inner::Script(command.join(" "))] } else { argv(command) };
        inner.extend(scripts(arguments, "-c", "--command").map(Inner::Script));
        return Some(inner);
    }
    match name {
        "env" => Some(env(arguments)),
        "su" | "runuser" | "script" | "sg" | "newgrp" => {
            let given = scripts(arguments, "-c", "--command");
            Some(
                given
                    .chain(scripts(arguments, "-c", "--session-command"))
                    .map(Inner::Script)
                    .collect(),
            )
        }
        "eval" => Some(vec![Inner::Script(arguments.join(" "))]),
        "trap" => Some(arguments.first().cloned().map(Inner::Script).into_iter().collect()),
        "find" => find(arguments),
        "git" => git(arguments),
        "tar" | "bsdtar" | "gtar" => tar(arguments),
        "sed" | "gsed" => sed(arguments),
        "make" | "gmake" | "bmake" => make(arguments),
        _ => {
            let (_, flags) = FLAGGED.iter().find(|(program, _)| *program == name)?;
            arguments.iter().any(|word| is_flag(flags, word)).then(Vec::new)
        }
    }
}

pub(super) fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|item| item == name)
}

pub(super) fn argv(words: &[String]) -> Vec<Inner> {
    if words.is_empty() { Vec::new() } else { vec![Inner::Argv(words.to_vec())] }
}

pub(super) fn is_flag(flags: &str, word: &str) -> bool {
    flags.split_ascii_whitespace().any(|flag| {
        let letter = flag.strip_prefix('-').filter(|letter| letter.len() == 1);
        match letter {
            Some(letter) => is_cluster(word) && word.contains(letter),
            None if flag.starts_with('-') => word.starts_with(flag),
            None => word == flag,
        }
    })
}

/// Short options, possibly several in one word.
pub(super) fn is_cluster(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--")
}

/// The values of a short option, alone or last of its cluster, and of a long one.
pub(super) fn scripts<'a>(
    arguments: &'a [String],
    short: &'static str,
    long: &'static str,
) -> impl Iterator<Item = String> + 'a {
    let letter = &short[1..];
    arguments.iter().enumerate().filter_map(move |(index, word)| {
        let next = || arguments.get(index + 1).cloned();
        if let Some(value) = word.strip_prefix(long) {
            return match value.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None if value.is_empty() => next(),
                None => None,
            };
        }
        if !is_cluster(word) {
            return None;
        }
        match word.split_once(letter) {
            Some((_, "")) => next(),
            Some(("-", value)) => Some(value.to_owned()),
            _ => None,
        }
    })
}

/// The script after `-c` is the first word that is no option; without `-c` it is a file.
fn shell(arguments: &[String]) -> Vec<Inner> {
    let mut given = false;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let option = word.len() > 1 && word.starts_with(['-', '+']);
        if word == "--" || word == "-" {
            return first_script(given, rest.next());
        }
        if !option {
            return first_script(given, Some(word));
        }
        if word.starts_with("--") {
            if matches!(word.as_str(), "--rcfile" | "--init-file") {
                rest.next();
            }
            continue;
        }
        given |= word.starts_with('-') && word.contains('c');
        if word.ends_with(['o', 'O']) {
            rest.next();
        }
    }
    Vec::new()
}

fn first_script(given: bool, word: Option<&String>) -> Vec<Inner> {
    word.filter(|_| given).cloned().map(Inner::Script).into_iter().collect()
}

/// `-S` splits its value as a shell would, nearly.
fn env(arguments: &[String]) -> Vec<Inner> {
    let mut inner = argv(ENV.command(arguments));
    inner.extend(scripts(arguments, "-S", "--split-string").map(Inner::Script));
    inner
}
