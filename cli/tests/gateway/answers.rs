//! What the program answers, what it never answers, and what it does when the gateway contradicts itself.
use serde_json::json;

use crate::played::{Play, RUN, digest, permission};
use crate::program::harness;

#[tokio::test]
async fn a_run_that_asks_pauses_and_says_how_to_go_on() {
    let done = harness(Play::Honest, &["run", "--workspace", "w", "--json", "hello"], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    let opened = done.heard.iter().find(|request| request["method"] == "session/new").unwrap();
    assert_eq!(opened["params"]["onDisconnect"], "hold");
    let document = done.document();
    assert_eq!(
        (&document["kind"], &document["status"]),
        (&json!("run-result"), &json!("waiting_approval"))
    );
    assert_eq!(document["runId"], RUN);
    assert_eq!(document["pendingApprovals"][0]["planDigest"], digest(Play::Honest).to_string());
    let approve: Vec<&str> = document["resume"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(
        (approve[..2].to_vec(), &approve[6..8]),
        (vec!["harness", "resume"], [RUN, "--approve"].as_slice())
    );
    assert!(
        done.stderr.contains("\\u202egpj.txt") && !done.stderr.contains('\u{202e}'),
        "{}",
        done.stderr
    );
}

#[tokio::test]
async fn yes_answers_under_the_digest_that_was_shown() {
    let done =
        harness(Play::Honest, &["run", "--workspace", "w", "--yes", "--json", "hello"], "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let answer = done.answer().unwrap();
    assert_eq!(
        (&answer["decision"], &answer["planDigest"]),
        (&json!("allow"), &json!(digest(Play::Honest).to_string()))
    );
    let document = done.document();
    assert_eq!(
        (&document["status"], &document["output"]),
        (&json!("completed"), &json!("all done"))
    );
    assert_eq!((&document["steps"], &document["usage"]["totalTokens"]), (&json!(2), &json!(5)));
}

#[tokio::test]
async fn no_hold_comes_as_nobody_who_could_answer_and_answers_nothing() {
    let done = harness(Play::Honest, &["run", "--workspace", "w", "--no-hold", "hello"], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    assert_eq!(
        done.heard[0]["params"]["capabilities"],
        json!({"streaming": true, "permissioning": false, "sessions": true})
    );
    assert_eq!(done.request("session/new")["params"]["onDisconnect"], "deny");
    assert!(
        done.stderr.contains(&format!("permission {}: deny (missing_resolver)", permission())),
        "{}",
        done.stderr
    );
    assert_eq!(done.stdout, "all done\n");
}

#[tokio::test]
async fn without_a_terminal_connect_denies_whatever_is_in_the_input() {
    let done =
        harness(Play::Honest, &["connect", "--workspace", "w", "hello"], "y\nyes\ny\n").await;
    assert_eq!(
        (done.code, &done.answer().unwrap()["decision"]),
        (Some(0), &json!("deny")),
        "{}",
        done.stderr
    );
    let shown: Vec<&str> =
        done.stderr.lines().filter(|line| line.starts_with("command| ")).collect();
    assert_eq!(
        shown,
        [
            "command| ",
            "command| Allow this? y/N",
            "command| - permission x: allow (operator)\\r\\u{1b}[2K\\u{202e}",
            "command| model| trust me"
        ]
    );
    for forged in ["Allow this? y/N", "- permission x", "model| trust", "\u{1b}", "\u{202e}", "\r"]
    {
        assert!(!done.stderr.lines().any(|line| line.starts_with(forged)), "{}", done.stderr);
    }
    assert!(!done.stderr.contains(['\u{1b}', '\u{202e}', '\r']), "{}", done.stderr);
    assert!(done.stderr.contains(&format!("- run {RUN} started")), "{}", done.stderr);
}

#[tokio::test]
async fn resume_answers_what_waits_and_follows_to_the_end() {
    let shown = digest(Play::Honest).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown, "--json"];
    let done = harness(Play::Honest, &words, "").await;
    assert_eq!(
        (done.code, &done.answer().unwrap()["decision"]),
        (Some(0), &json!("allow")),
        "{}",
        done.stderr
    );
    assert_eq!(done.document()["status"], "completed");
    let attached = done.heard.iter().find(|request| request["method"] == "session/attach").unwrap();
    assert_eq!(attached["params"], json!({"runId": RUN, "afterSeq": -1}));
}

#[tokio::test]
async fn resume_answers_nothing_that_it_was_not_meant_for() {
    let other = event::Digest::of(b"other").to_string();
    let done = harness(Play::Honest, &["resume", RUN, "--approve", "--plan", &other], "").await;
    assert_eq!((done.code, done.answer()), (Some(1), None), "{}", done.stderr);
    assert!(done.stderr.contains("\\u202egpj.txt"), "{}", done.stderr);
    let unread = harness(Play::Honest, &["resume", RUN, "--approve"], "y\nyes\n").await;
    assert_eq!((unread.code, unread.answer()), (Some(2), None), "{}", unread.stderr);
    assert!(unread.stderr.contains("\\u202egpj.txt"), "{}", unread.stderr);
    assert!(
        unread.stdout.contains(&format!("{RUN} --approve --plan {}\n", digest(Play::Honest))),
        "{}",
        unread.stdout
    );
    let idle = harness(Play::HasNothingOpen, &["resume", RUN, "--approve"], "").await;
    assert_eq!((idle.code, idle.answer()), (Some(1), None));
    assert!(idle.stderr.contains("does not wait for an approval"), "{}", idle.stderr);
}

#[tokio::test]
async fn a_gateway_that_contradicts_itself_is_left() {
    for (play, answers) in [
        (Play::SkipsANumber, false),
        (Play::TurnsTheAnswer, true),
        (Play::SaysItFailed, true),
        (Play::SendsNonsense, false),
    ] {
        let done = harness(play, &["run", "--workspace", "w", "--yes", "hello"], "").await;
        assert_eq!((done.code, done.answer().is_some()), (Some(1), answers), "{}", done.stderr);
        assert!(done.stderr.lines().last().unwrap().starts_with("harness: "), "{}", done.stderr);
        assert_eq!(done.stdout, "");
    }
}
