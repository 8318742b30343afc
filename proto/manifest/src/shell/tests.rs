//! Scripts taken apart, and scripts that are not.

use super::{Split, split};
use crate::subject::exec_subject;
use proptest::prelude::*;

fn commands(script: &str) -> Vec<String> {
    let Split { commands, unparsable } = split(script);
    assert_eq!(unparsable, None, "{script}");
    commands.iter().map(|argv| exec_subject(argv)).collect()
}

fn beyond(script: &str) -> &'static str {
    split(script).unparsable.unwrap_or("nothing")
}

#[test]
fn scripts_beyond_it_say_why() {
    for (script, why) in [
        ("'a", "a quote is not closed"),
        ("\"a", "a quote is not closed"),
        ("`a", "a backtick is not closed"),
        ("$(a", "a parenthesis is not closed"),
        ("a)", "a parenthesis is not opened"),
        ("a \\", "it ends in a backslash"),
        ("cat <<E\nrm\nE", "it has a here-document"),
        ("$X -rf y", "which program it starts is computed"),
        ("/bin/r? x", "which program it starts is computed"),
        ("\"$X\" y", "which program it starts is computed"),
        ("{rm,-rf,x}", "it expands braces"),
        ("f() { rm; }", "it has a function or a pattern"),
        ("case x in x) rm;; esac", "a parenthesis is not opened"),
        ("[[ -f x ]]", "it is a program"),
        ("$'\\x72m' x", "it has a string with escapes"),
        ("echo ${x:-`rm`}", "it has an involved expansion"),
        ("echo $((1))", "it calculates"),
    ] {
        assert_eq!(beyond(script), why, "{script}");
    }
    assert_eq!(beyond(&"a;".repeat(40_000)), "the script is too long");
    assert_eq!(beyond(&"a;".repeat(300)), "it has too many commands");
    assert_eq!(beyond(&"( ".repeat(1_000)), "it is nested too deeply");
}

#[test]
fn what_was_read_before_the_end_of_the_tether_counts() {
    assert_eq!(split("git status; rm -rf x <<E").commands.len(), 2);
    assert_eq!(split("git status; 'x").commands, [["git", "status"]]);
}

#[test]
fn every_separator_separates() {
    for script in [
        "git status && rm -rf x",
        "git status || rm -rf x",
        "git status; rm -rf x",
        "git status | rm -rf x",
        "git status |& rm -rf x",
        "git status & rm -rf x",
        "git status\nrm -rf x",
        "{ git status; rm -rf x; }",
        "(git status; rm -rf x)",
        "if git status; then rm -rf x; fi",
        "while git status; do rm -rf x; done",
        "! git status; A=1 B= rm -rf x",
        "git status # rm y\nrm -rf x",
        "git status 2>&1 >/dev/null; rm -rf x < y",
        "git status &>log; \\rm -r\"f\" 'x'",
        "git \\\nstatus; r''m -rf x",
    ] {
        assert_eq!(commands(script), ["git status", "rm -rf x"], "{script}");
    }
}

#[test]
fn what_is_substituted_is_found() {
    for script in [
        "echo `rm -rf x`",
        "echo $(rm -rf x)",
        "echo \"$(rm -rf x)\"",
        "echo \"`rm -rf x`\"",
        "A=$(rm -rf x) echo",
        "echo <(rm -rf x)",
        "echo > >(rm -rf x)",
        "echo `echo \\`rm -rf x\\``",
        "for i in $(rm -rf x); do echo; done",
    ] {
        let found = commands(script);
        assert!(found.contains(&"rm -rf x".to_owned()), "{script}: {found:?}");
    }
}

#[test]
fn what_is_only_text_is_no_command() {
    assert_eq!(commands("echo 'rm -rf x; y' \"a && b\""), ["echo 'rm -rf x; y' 'a && b'"]);
    assert_eq!(commands("echo \\; rm"), ["echo ';' rm"]);
    assert_eq!(commands("[ -f x ]"), ["'[' -f x ']'"]);
    assert_eq!(commands("find . -name {}"), ["find . -name '{}'"]);
    assert_eq!(commands("rm -rf $DIR \"$A\""), ["rm -rf '$DIR' '$A'"]);
    assert_eq!(commands(""), Vec::<String>::new());
    assert_eq!(commands("A=1"), Vec::<String>::new());
}

proptest! {
    #[test]
    fn any_text_is_taken_apart_without_a_panic(script in "[a{}()$`'\"\\\\;&|<> \n#!=*,.\\[]{0,40}") {
        let Split { commands, unparsable: _ } = split(&script);
        prop_assert!(commands.iter().all(|argv| !argv.is_empty()));
    }

    #[test]
    fn a_quoted_argv_is_one_command(argv in prop::collection::vec("[a-z'$`;\\\\ ]{1,5}", 1..4)) {
        let mut words = vec!["run".to_owned()];
        words.extend(argv);
        prop_assert_eq!(split(&exec_subject(&words)).commands, vec![words]);
    }
}
