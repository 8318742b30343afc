//! The program at a terminal: what it shows before it asks, and that only a yes to the question that stands there is one.
use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::Stdio,
    sync::mpsc,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::Value;
use tokio::{net::TcpListener, process::Command};

use crate::approvals::key;
use crate::played::{Gateway, LIMIT, Play, RUN};
use crate::program::token;

/// A terminal, and everything that was written to it.
struct Terminal {
    keyboard: File,
    written: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Its other side is for the program.
    fn open() -> (Self, OwnedFd) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let keyboard = File::from(ours);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, written) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails once the program has closed its side.
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        (Self { keyboard, written, seen: String::new() }, theirs)
    }

    /// Waits until `text` stands there, and takes everything up to its end.
    fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            let more = self
                .written
                .recv_timeout(LIMIT)
                .unwrap_or_else(|_| panic!("no '{text}' after: {}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn type_line(&mut self, line: &str) {
        self.keyboard.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Runs a command at a terminal while `person` sits there; its exit code, and what the gateway heard.
async fn at_a_terminal(
    play: Play,
    words: &[&str],
    person: impl FnOnce(&mut Terminal) + Send + 'static,
) -> (Option<i32>, Vec<Value>) {
    conversation(play, words, person, false).await
}

/// The same where the program would go on waiting: it is ended once the person is done.
async fn left_alone(
    play: Play,
    words: &[&str],
    person: impl FnOnce(&mut Terminal) + Send + 'static,
) -> (Option<i32>, Vec<Value>) {
    conversation(play, words, person, true).await
}

async fn conversation(
    play: Play,
    words: &[&str],
    person: impl FnOnce(&mut Terminal) + Send + 'static,
    leaves: bool,
) -> (Option<i32>, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let (mut terminal, theirs) = Terminal::open();
    let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
    program.args(words).args(["--gateway", &url, "--token-file", token(dir.path()).as_str()]);
    program.stdin(Stdio::from(theirs.try_clone().unwrap()));
    program.stderr(Stdio::from(theirs)).stdout(Stdio::null()).kill_on_drop(true);
    let mut child = program.spawn().unwrap();
    drop(program);
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    let sits = tokio::task::spawn_blocking(move || {
        person(&mut terminal);
        if leaves {
            kill_process(pid, Signal::TERM).unwrap();
        }
        terminal
    });
    let all = async { tokio::join!(child.wait(), Gateway::play(listener, play), sits) };
    let (status, heard, sat) = tokio::time::timeout(LIMIT, all).await.expect("it ends in time");
    drop(sat.unwrap());
    (status.unwrap().code(), heard)
}

fn decisions(heard: &[Value]) -> Vec<&str> {
    let answers = heard.iter().filter(|request| request["method"] == "permission/respond");
    answers.map(|request| request["params"]["decision"].as_str().unwrap()).collect()
}

const CONNECT: [&str; 4] = ["connect", "--workspace", "w", "hello"];

#[tokio::test]
async fn whatever_is_not_yes_denies() {
    for typed in ["", "d", "allow"] {
        let (code, heard) = at_a_terminal(Play::Honest, &CONNECT, move |terminal| {
            terminal.until("anything else denies: ");
            terminal.type_line(typed);
        })
        .await;
        assert_eq!((code, decisions(&heard)), (Some(0), vec!["deny"]), "{typed}");
    }
}

#[tokio::test]
async fn the_diff_is_shown_as_often_as_it_is_asked_for_and_then_the_question_stands_again() {
    let (code, heard) = at_a_terminal(Play::Imports, &CONNECT, |terminal| {
        for _ in 0..2 {
            terminal.until("; d shows the complete list and the diff: ");
            terminal.type_line("d");
            let shown = terminal.until("-- end of the diff");
            assert!(
                shown.contains("+\\u{1b}[2K\\u{202e}y\\\\n\\r\r\nAllow this? y\r\n"),
                "{shown}"
            );
            assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
        }
        terminal.until("; d shows the complete list and the diff: ");
        terminal.type_line("yes");
    })
    .await;
    assert_eq!((code, decisions(&heard)), (Some(0), vec!["allow"]));
    assert_eq!(heard.iter().filter(|request| request["method"] == "patch/read").count(), 4);
}

#[tokio::test]
async fn another_patch_than_the_one_asked_about_ends_it_without_an_answer() {
    let (code, heard) = at_a_terminal(Play::ShowsAnotherPatch, &CONNECT, |terminal| {
        terminal.until("the complete list and the diff: ");
        terminal.type_line("d");
        terminal.until("do not approve anything over this connection");
    })
    .await;
    assert_eq!((code, decisions(&heard)), (Some(1), vec![]));
}

#[tokio::test]
async fn resume_asks_at_a_terminal_and_leaves_open_what_is_not_approved() {
    for (typed, expected) in [("no", (Some(1), vec![])), ("y", (Some(0), vec!["allow"]))] {
        let (code, heard) =
            at_a_terminal(Play::Imports, &["resume", RUN, "--approve"], move |terminal| {
                let shown = terminal.until("anything else leaves it open");
                assert!(shown.contains("The run asks for patch.import"), "{shown}");
                terminal.type_line(typed);
            })
            .await;
        assert_eq!((code, decisions(&heard)), expected, "{typed}");
    }
}

#[tokio::test]
async fn the_rest_of_the_run_is_allowed_only_where_it_is_offered() {
    for (play, scope) in [(Play::OffersTheRun, Some("run")), (Play::Honest, None)] {
        let (code, heard) = at_a_terminal(play, &CONNECT, move |terminal| {
            let shown = terminal.until("anything else denies: ");
            assert_eq!(
                shown.contains("r for exactly this action"),
                play == Play::OffersTheRun,
                "{shown}"
            );
            assert_eq!(
                shown.contains("run: every later call of this run"),
                play == Play::OffersTheRun,
                "{shown}"
            );
            terminal.type_line("r");
        })
        .await;
        let answer =
            heard.iter().find(|request| request["method"] == "permission/respond").unwrap();
        let decision = if scope.is_some() { "allow" } else { "deny" };
        assert_eq!((code, decisions(&heard)), (Some(0), vec![decision]));
        assert_eq!(answer["params"]["scope"].as_str(), scope);
    }
}

#[tokio::test]
async fn a_yes_without_another_word_is_for_once() {
    let (_, heard) = at_a_terminal(Play::OffersTheRun, &CONNECT, |terminal| {
        terminal.until("anything else denies: ");
        terminal.type_line("y");
    })
    .await;
    let answer = heard.iter().find(|request| request["method"] == "permission/respond").unwrap();
    assert_eq!(answer["params"]["scope"], "once");
}

#[tokio::test]
async fn without_a_key_a_yes_that_needs_one_is_not_sent_and_a_no_is() {
    let (_, heard) = left_alone(Play::NeedsASignature, &CONNECT, |terminal| {
        let shown = terminal.until("anything else leaves it open for others: ");
        assert!(shown.contains("with their own signature"), "{shown}");
        assert!(shown.contains("harness key new --subject NAME --out DIR"), "{shown}");
        terminal.type_line("y");
        terminal.until("left open");
    })
    .await;
    assert_eq!(decisions(&heard), Vec::<&str>::new());
    let (code, heard) = at_a_terminal(Play::NeedsASignature, &CONNECT, |terminal| {
        terminal.until("anything else leaves it open for others: ");
        terminal.type_line("n");
    })
    .await;
    assert_eq!((code, decisions(&heard)), (Some(0), vec!["deny"]));
}

#[tokio::test]
async fn after_one_of_two_it_is_said_who_is_still_needed_and_the_other_may_say_no() {
    let (code, heard) = at_a_terminal(Play::NeedsTwo, &CONNECT, |terminal| {
        let shown = terminal.until("anything else denies: ");
        let needed = "2 different people with the role admin, not the requester";
        assert!(shown.contains(needed), "{shown}");
        terminal.type_line("y");
        let after = terminal.until(needed);
        assert!(after.contains("counted: 1 of 2; it waits for 1 other person"), "{after}");
        terminal.until("deny (operator)");
    })
    .await;
    assert_eq!((code, decisions(&heard)), (Some(0), vec!["allow"]));
}

#[tokio::test]
async fn with_a_key_only_a_yes_is_signed() {
    let dir = tempfile::tempdir().unwrap();
    let (file, public) = key(dir.path()).await;
    let words = [&CONNECT[..], &["--key", &file]].concat();
    for (typed, decision) in [("", "deny"), ("y", "allow")] {
        let (code, heard) = at_a_terminal(Play::NeedsASignature, &words, move |terminal| {
            let shown = terminal.until("anything else denies: ");
            assert!(shown.contains("with their own signature"), "{shown}");
            terminal.type_line(typed);
        })
        .await;
        assert_eq!((code, decisions(&heard)), (Some(0), vec![decision]));
        let answer =
            heard.iter().find(|request| request["method"] == "permission/respond").unwrap();
        let by = answer["params"].get("approval").map(|approval| approval["keyId"].clone());
        assert_eq!(by, (typed == "y").then(|| public.id().to_string().into()));
    }
}
