//! Commands inside commands, found; and commands that only look like it.

use super::{Inspection, inspect};
use crate::command::Command;
use crate::shell::split;
use crate::subject::exec_subject;
use proptest::prelude::*;

fn look(text: &str) -> Inspection {
    let mut commands = split(text).commands;
    inspect(&Command { argv: commands.remove(0), program: None })
}

fn inside(text: &str) -> Vec<String> {
    let inspection = look(text);
    assert!(inspection.class.is_some(), "{text}");
    inspection.segments.iter().map(|argv| exec_subject(argv)).collect()
}

#[test]
fn a_wrapper_does_not_hide_its_command() {
    for text in [
        "env rm -rf x",
        "env -i A=1 -u B rm -rf x",
        "env - rm -rf x",
        "env -iS'rm -rf x'",
        "env -vS 'rm -rf x'",
        "env -S '-i A=1 rm -rf x'",
        "env -S 'rm -rf' x",
        "env '--split=rm -rf x'",
        "env -S 'rm\\_-rf\\_x'",
        "su -lc'rm -rf x'",
        "su '--comm=rm -rf x'",
        "su --session 'rm -rf x' root",
        "runuser -u nobody -- rm -rf x",
        "runuser -u nobody rm -rf x",
        "sg group 'rm -rf x'",
        "sg group -c 'rm -rf x'",
        "script log rm -rf x",
        "script -- rm -rf x",
        "script -e -c'rm -rf x'",
        "trap -- 'rm -rf x' EXIT",
        "eval -- 'rm -rf x'",
        "bash -oc pipefail 'rm -rf x'",
        "busybox-1.36 rm -rf x",
        "toybox-x86_64 rm -rf x",
        "coreutils --coreutils-prog=rm -rf x",
        "cttyhack rm -rf x",
        "openvt -c 3 -- rm -rf x",
        "switch_root /new rm -rf x",
        "tar -I'rm -rf x' -cf a b",
        "tar cf a b --checkpoint-=exec='rm -rf x'",
        "git rebase --exe='rm -rf x' main",
        "env -S 'rm -rf x'",
        "env --split-string='rm -rf x'",
        "timeout 5 rm -rf x",
        "timeout -s KILL --kill-after=3 -k 5 5s rm -rf x",
        "timeout --signal KILL 5 rm -rf x",
        "nice -n 5 rm -rf x",
        "nice -5 rm -rf x",
        "nohup rm -rf x",
        "xargs rm -rf x",
        "xargs -0 -n 1 -I{} rm -rf x",
        "setsid -w rm -rf x",
        "stdbuf -oL -e 0 rm -rf x",
        "sudo -u root A=1 -- rm -rf x",
        "doas -u root rm -rf x",
        "su root -c 'rm -rf x'",
        "time -p rm -rf x",
        "watch -n 1 'rm -rf x'",
        "ssh -p 22 host rm -rf x",
        "script -qc 'rm -rf x' log",
        "unshare -r rm -rf x",
        "chroot --userspec=0 / rm -rf x",
        "strace -f -o log rm -rf x",
        "flock lock rm -rf x",
        "flock lock -c 'rm -rf x'",
        "busybox rm -rf x",
        "/lib64/ld-linux-x86-64.so.2 rm -rf x",
        "find . -exec rm -rf x '{}' +",
        "find . -name a -execdir rm -rf x ';'",
        "git -c alias.x='!rm -rf x' x",
        "git -c core.pager='rm -rf x' log",
        "git rebase -x 'rm -rf x' main",
        "git submodule foreach 'rm -rf x'",
        "git bisect run rm -rf x",
        "tar -xf a --to-command='rm -rf x'",
        "tar cf a b --checkpoint-action=exec='rm -rf x'",
        "tar -I 'rm -rf x' -xf a",
        "sh -c 'rm -rf x'",
        "bash -ec 'rm -rf x' name",
        "bash -o pipefail -c -e 'rm -rf x'",
        "/bin/bash-5.2 -lc -- 'rm -rf x'",
        "sh -c 'exec env A=1 timeout 5 rm -rf x'",
        "sh -c \"sh -c 'rm -rf x'\"",
        "sh -c 'eval rm -rf x'",
        "sh -c 'trap \"rm -rf x\" EXIT'",
        "sh -c 'git status | xargs rm -rf x'",
    ] {
        let found = inside(text);
        assert!(found.iter().any(|argv| argv.starts_with("rm -rf x")), "{text}: {found:?}");
    }
}

#[test]
fn what_runs_anything_it_is_given_is_of_the_class() {
    for text in [
        "python3 x.py",
        "python3.11 -c x",
        "perl -e x",
        "ruby x",
        "node x",
        "deno run x",
        "php x",
        "lua5.4 x",
        "awk x",
        "gawk x",
        "tclsh x",
        "vim -c x",
        "sed -e '1e rm' x",
        "sed 's/a/b/e' x",
        "sed -f x",
        "sed '/a/{e' x",
        "make --eval=x",
        "make -f x",
        "make SHELL=x test",
        "find . -delete",
        "git --exec-path=x status",
        "git config alias.x y",
        "git clone ext::x",
        "git -cx=y status",
        "rsync -aze x a b",
        "go run x",
        "npx x",
        "zip -TT x",
        "split --f=x a",
        "sort --co=x a",
        "rsync --rs=x a b",
        "git clone --upl=x a",
        "git grep --open-f=x a",
        "git -C x status",
        "git --no-pager log",
        "make --di=x",
        "bundle exec x",
        "poetry run x",
        "uv run x",
        "gcc -wrapper x a.c",
        "gcc-12 -fplugin=x a.c",
        "rustc -C linker=x a.rs",
        "rustc -Clinker=x a.rs",
        "wget --use-askpass=x y",
        "wget --use-a=x y",
        "nmap --script x y",
        "gnuplot -e x",
        "pdflatex --shell-escape x",
        "latex -shell-escape x",
        "less x",
        "hush x",
        "run-parts x",
        "udhcpc -s x",
        "httpd -p 80",
        "fish -c x",
        "BASH -c x",
        "sh",
        "sh x.sh",
        "/usr/bin/env",
    ] {
        assert!(look(text).class.is_some(), "{text}");
    }
}

#[test]
fn what_only_looks_like_it_is_not() {
    for text in [
        "cargo test",
        "make test",
        "ls sh",
        "git status --short",
        "git commit -m sh",
        "git diff main",
        "find . -name sh",
        "tar -xf a.tar",
        "sed -n 5p x",
        "sed s/a/b/g x",
        "sed -i -e 's|a|b|' x",
        "rm -rf x",
        "shred x",
        "environment x",
        "7z x",
        "git --version",
        "gcc -Wall -O2 a.c",
        "rustc -C opt-level=2 a.rs",
        "sort --reverse a",
        "pdflatex a.tex",
        "go test ./...",
        "npm test",
    ] {
        assert_eq!(look(text), Inspection::default(), "{text}");
    }
}

#[test]
fn what_cannot_be_told_is_said() {
    for text in ["sh -c '$X'", "fish -c 'rm x'", "env -S '\"a'", "sh -c 'f() { x; }'"] {
        assert!(look(text).unparsable.is_some(), "{text}");
    }
}

#[test]
fn a_command_that_may_begin_elsewhere_or_come_from_elsewhere_is_not_absent() {
    for text in [
        "env -S 'rm\\c'",
        "env -S '${X} x'",
        "env -Z rm x",
        "su",
        "su root",
        "su -s x root",
        "runuser -u nobody",
        "sg group",
        "script",
        "script log",
        "sudo -i",
        "sudo --what rm x",
        "timeout -z 5 rm x",
        "ssh host",
        "chroot /new",
        "sh",
        "sh -s x",
        "bash --rcfile x -ic y",
        "busybox --install",
    ] {
        assert!(look(text).unparsable.is_some(), "{text}");
    }
    for text in [
        "python3 -c x",
        "python3",
        "perl -e x",
        "awk 'BEGIN { system(\"rm\") }'",
        "docker run x",
        "make -f x",
        "git config alias.x y",
        "xargs rm",
        "find . -exec '{}' ';'",
    ] {
        assert!(look(text).opaque.is_some(), "{text}");
    }
    for text in [
        "env A=1 -u B rm x",
        "env -i rm x",
        "timeout -s KILL 5 rm x",
        "timeout --foreground 5 rm x",
        "nice -n 5 rm x",
        "sudo -n -u root rm x",
        "sh -c 'ls; rm x'",
        "sh x.sh",
        "python3 x.py",
        "python3 -m pytest -q",
        "su -c 'rm x' root",
        "busybox rm x",
    ] {
        let Inspection { unparsable, opaque, .. } = look(text);
        assert_eq!((unparsable, opaque), (None, None), "{text}");
    }
}

#[test]
fn nesting_ends() {
    let deep = vec!["env".to_owned(); 5_000];
    let inspection = inspect(&Command { argv: deep, program: None });
    assert!(inspection.unparsable.is_some());
    let wide = "find . ".to_owned() + &"-exec env -S 'a;b;c' ; ".repeat(500);
    assert!(look(&wide.replace(" ; ", " \\; ")).unparsable.is_some());
}

proptest! {
    #[test]
    fn any_argv_is_looked_into_without_a_panic(
        argv in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "sh", "-c", "env", "-S", "xargs", "git", "find", "-exec", ";", "tar", "sed", "--",
                    "timeout", "--command", "-", "=", "A=1", "sudo", "make", "ld.so", "",
                ]).prop_map(str::to_owned),
                "[a-z;'\"$(`-]{0,6}",
            ],
            1..8,
        ),
    ) {
        inspect(&Command { argv, program: None });
    }
}
