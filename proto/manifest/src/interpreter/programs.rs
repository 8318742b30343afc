//! The programs of the class, by name and, where only some of their options run something, by those. The lists
//! steer what is asked; containment is the container's.

use super::Inner;
use super::options::{find, git, make, sed, tar};
use super::readers::{env, interpreter, multi_call, sg, shell, su, trap};
use super::wrappers::{self, LINKER};
use crate::command::is_multi_call;

/// They take a script after `-c` and speak the language that we can take apart.
const SHELLS: &str = "sh bash dash ash hush zsh ksh mksh rbash yash";
/// They speak another.
const OTHER_SHELLS: &str = "fish csh tcsh pwsh powershell rc es nu elvish xonsh";
/// Whatever they are given is a program, or holds one.
const INTERPRETERS: &str = "perl ruby irb node nodejs deno bun php lua luajit awk gawk mawk nawk \
    original-awk tclsh wish expect r rscript julia ghci runghc runhaskell guile racket gracket scheme sbcl \
    clisp ecl elixir iex erl escript groovy scala kotlin jshell java osascript swift ocaml raku octave m4 dc \
    ed ex vi vim nvim view rvim vimdiff gvim emacs emacsclient sqlite psql mysql mariadb ftp lftp ipython \
    jython pypy micropython ts-node tsx coffee lldb gdb gnuplot texlua";
/// They start programs in a way that is not taken apart here.
const STARTERS: &str = "at batch crontab screen tmux xterm socat nc ncat netcat docker podman nerdctl \
    kubectl machinectl flatpak bwrap start-stop-daemon perf rr hyperfine pipx alias source . less more most \
    newgrp run-parts httpd inetd tcpsvd udpsvd crond init linuxrc runsv runsvdir telnetd ftpd mdev ifup \
    ifdown ifplugd popmaildir lpd svlogd reformime sendmail luatex lualatex";
/// A program and what makes it one of the class: a word, a long option, a letter, or after `^` how a word begins.
const FLAGGED: &[(&str, &str)] = &[
    ("apt", "-o --option -c --config-file"),
    ("apt-get", "-o --option -c --config-file"),
    ("bundle", "exec"),
    ("bundler", "exec"),
    ("c++", CC),
    ("cargo", "--config"),
    ("cc", CC),
    ("clang", CC),
    ("clang++", CC),
    ("cmake", "-P -E"),
    ("conda", "run"),
    ("dpkg", "--pre-invoke --post-invoke"),
    ("g++", CC),
    ("gcc", CC),
    ("go", "run generate tool -exec -toolexec -vettool"),
    ("hatch", "run shell"),
    ("hg", "--config"),
    ("ip", "exec -b -batch --batch"),
    ("latex", TEX),
    ("man", "-P -H --pager --html"),
    ("nmap", "--script ^-sC ^-A"),
    ("npm", "exec x explore"),
    ("pdflatex", TEX),
    ("pdftex", TEX),
    ("pdm", "run"),
    ("pipenv", "run shell"),
    ("pnpm", "exec dlx"),
    ("poetry", "run shell"),
    ("rsync", "-e --rs"),
    ("rustc", "^-Clink ^link --codegen ^-Z"),
    ("rye", "run"),
    ("scp", "-S -o -D"),
    ("sftp", "-S -o -D"),
    ("sort", "--compress-p"),
    ("split", "--fil"),
    ("svn", "--config-option --diff-cmd --diff3-cmd --editor-cmd"),
    ("tcpdump", "-z"),
    ("tex", TEX),
    ("udhcpc", "-s --script"),
    ("udhcpc6", "-s --script"),
    ("uv", "run tool"),
    ("wget", "-e --execute --use-askpass --config"),
    ("xelatex", TEX),
    ("yarn", "exec dlx node"),
    ("zip", "-T --unz"),
];

const CC: &str = "-wrapper -fplugin -specs --specs ^-B --wrapper";
const TEX: &str = "^-sh ^--sh ^-enable-w ^--enable-w";

/// What a program of the class runs; nothing when it is none.
pub(super) fn look(name: &str, arguments: &[String]) -> Option<Vec<Inner>> {
    let name = name.to_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    if ["ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2"].iter().any(|ld| name.starts_with(ld)) {
        return Some(LINKER.inner(arguments));
    }
    if is_multi_call(name) {
        return Some(multi_call(arguments));
    }
    if name.starts_with("python") {
        return Some(interpreter(arguments));
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
    if lists(INTERPRETERS, name) {
        return Some(interpreter(arguments));
    }
    if lists(STARTERS, name) {
        return Some(vec![Inner::Opaque("it starts programs in ways of its own")]);
    }
    if let Some(wrapper) = wrappers::find(name) {
        return Some(wrapper.inner(arguments));
    }
    match name {
        "env" => Some(env(arguments)),
        "su" | "runuser" | "script" => Some(su(name, arguments)),
        "sg" => Some(sg(arguments)),
        "eval" => {
            let words = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
            Some(vec![Inner::Script(words.join(" "))])
        }
        "trap" => Some(trap(arguments)),
        "find" => find(arguments),
        "git" => git(arguments),
        "tar" | "bsdtar" | "gtar" => tar(arguments),
        "sed" | "gsed" => sed(arguments),
        "make" | "gmake" | "bmake" => make(arguments),
        _ => {
            let (_, flags) = FLAGGED.iter().find(|(program, _)| *program == name)?;
            arguments.iter().any(|word| is_flag(flags, word)).then(told_to_run)
        }
    }
}

pub(super) fn has_options(name: &str) -> bool {
    const READ: &str = "find git tar bsdtar gtar sed gsed make gmake bmake";
    lists(READ, name) || FLAGGED.iter().any(|(program, _)| *program == name)
}

pub(super) fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|item| item == name)
}

pub(super) fn argv(words: &[String]) -> Vec<Inner> {
    if words.is_empty() { Vec::new() } else { vec![Inner::Argv(words.to_vec())] }
}

/// It has options that name something to run, and those are not taken apart.
pub(super) fn told_to_run() -> Vec<Inner> {
    vec![Inner::Opaque("its options name what it runs")]
}

/// Whether a word may be one of these. Long options may be shortened, and a flag may stand for all that begin
/// with it.
pub(super) fn is_flag(flags: &str, word: &str) -> bool {
    flags.split_ascii_whitespace().any(|flag| {
        if let Some(beginning) = flag.strip_prefix('^') {
            return word.starts_with(beginning);
        }
        let letter = flag.strip_prefix('-').filter(|letter| letter.len() == 1);
        match letter {
            Some(letter) => is_cluster(word) && word.contains(letter),
            None if flag.starts_with("--") => is_long(flag, word),
            None if flag.starts_with('-') => {
                word.starts_with(flag)
                    || word.strip_prefix('-').is_some_and(|w| w.starts_with(flag))
            }
            None => word == flag,
        }
    })
}

/// Whether a word is a long option or a shortened one, whatever value is in it.
pub(super) fn is_long(flag: &str, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    name.len() > 2 && name.starts_with("--") && (flag.starts_with(name) || name.starts_with(flag))
}

/// Short options, possibly several in one word.
pub(super) fn is_cluster(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--")
}

/// The values of a short option, wherever it is in a cluster, and of a long one, which may be shortened.
pub(super) fn scripts<'a>(
    arguments: &'a [String],
    letter: char,
    long: &'static str,
) -> impl Iterator<Item = String> + 'a {
    arguments.iter().enumerate().filter_map(move |(index, word)| {
        let next = || arguments.get(index + 1).cloned();
        if is_long(long, word) {
            return word.split_once('=').map_or_else(next, |(_, value)| Some(value.to_owned()));
        }
        if !is_cluster(word) {
            return None;
        }
        match word.split_once(letter)? {
            (_, "") => next(),
            (_, value) => Some(value.to_owned()),
        }
    })
}
