//! Answers that need more than one word: a signature, a scope, other people; and allows that are taken back.
use receipt::{PublicKey, SignedApproval};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::played::{Play, RECEIPT, RUN, digest, permission, plan, session};
use crate::program::harness;

/// A new key of ada's: its file, and its public half.
pub(crate) async fn key(dir: &std::path::Path) -> (String, PublicKey) {
    let out = dir.join("ada");
    let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
    program.args(["key", "new", "--subject", "ada", "--json", "--out", out.to_str().unwrap()]);
    let made: Value = serde_json::from_slice(&program.output().await.unwrap().stdout).unwrap();
    assert_eq!((&made["kind"], &made["subject"]), (&json!("approval-key"), &json!("ada")));
    let public = made["publicKey"].as_str().unwrap();
    assert!(made["line"].as_str().unwrap().contains(public));
    (made["file"].as_str().unwrap().to_owned(), PublicKey::parse(public).unwrap())
}

#[tokio::test]
async fn what_needs_a_signature_is_not_approved_without_a_key() {
    let shown = digest(Play::NeedsASignature).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown];
    let done = harness(Play::NeedsASignature, &words, "").await;
    assert_eq!((done.code, done.answer()), (Some(2), None), "{}", done.stderr);
    let last = done.stderr.lines().last().unwrap();
    assert!(
        last.contains("needs a person's own signature") && last.contains("harness key new"),
        "{last}"
    );
    let denied = harness(Play::NeedsASignature, &["resume", RUN, "--deny"], "").await;
    assert_eq!((denied.code, &denied.answer().unwrap()["decision"]), (Some(0), &json!("deny")));
    let paused = harness(Play::NeedsASignature, &["run", "--workspace", "w", "hello"], "").await;
    assert!(paused.stdout.contains("add --key FILE"), "{}", paused.stdout);
}

#[tokio::test]
async fn an_answer_that_is_not_the_one_in_force_is_a_failure_and_the_run_is_followed_all_the_same()
{
    for (play, answer, code) in [
        (Play::WasDenied, "--approve", 1),
        (Play::WasDenied, "--deny", 0),
        (Play::WasAllowed, "--approve", 0),
        (Play::WasAllowed, "--deny", 1),
    ] {
        let shown = digest(play).to_string();
        let words = ["resume", RUN, answer, "--plan", &shown, "--json"];
        let done = harness(play, &words, "").await;
        assert_eq!(done.code, Some(code), "{answer}: {}", done.stderr);
        assert!(done.stderr.contains("is settled already: already resolved: "), "{}", done.stderr);
        assert_eq!(done.document()["status"], "completed");
        let last = done.stderr.lines().last().unwrap();
        assert_eq!(last.contains("is not in force: already resolved: "), code == 1, "{last}");
    }
    let words = ["run", "--workspace", "w", "--yes", "hello"];
    let done = harness(Play::WasDenied, &words, "").await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
}

#[tokio::test]
async fn an_answer_under_which_the_call_is_not_admitted_is_a_failure() {
    for (play, why, code) in [
        (Play::DoesNotAdmit, "did not admit the call under it (APPROVAL_KEY_UNKNOWN)", "completed"),
        (Play::AsksAnew, "is asked about anew", "waiting_approval"),
    ] {
        let shown = digest(play).to_string();
        let words = ["resume", RUN, "--approve", "--plan", &shown, "--json"];
        let done = harness(play, &words, "").await;
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        assert_eq!(done.document()["status"], code);
        let last = done.stderr.lines().last().unwrap();
        assert!(last.contains("is not in force") && last.contains(why), "{last}");
    }
}

#[tokio::test]
async fn a_key_under_the_token_of_another_person_is_told_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = key(dir.path()).await;
    let shown = digest(Play::HasAnothersToken).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown, "--key", &file];
    let done = harness(Play::HasAnothersToken, &words, "").await;
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let last = done.stderr.lines().last().unwrap();
    assert!(last.contains("signs as 'ada'") && last.contains("give the token of 'ada'"), "{last}");
}

#[tokio::test]
async fn yes_signs_only_with_a_key_that_is_given_and_shows_what_it_signs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, public) = key(dir.path()).await;
    let words = ["run", "--workspace", "w", "--yes", "--key", &file, "hello"];
    let done = harness(Play::NeedsASignature, &words, "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.answer().unwrap()["approval"]["keyId"], public.id().to_string());
    assert!(done.stderr.contains("\\u{202e}gpj.txt"), "{}", done.stderr);
}

#[tokio::test]
async fn whose_own_yes_does_not_count_is_told_who_can_and_not_how_to_approve() {
    let run = ["run", "--workspace", "w", "hello"];
    let paused = harness(Play::NeedsTwo, &run, "").await;
    let shown = digest(Play::NeedsTwo).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown];
    let counted = harness(Play::NeedsTwo, &words, "").await;
    for (done, why) in
        [(paused, "Your own yes does not count; "), (counted, "Your yes counts already; ")]
    {
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let who =
            "it waits for the yes of 2 different people with the role admin, not the requester.";
        assert!(done.stdout.contains(&format!("{why}{who}\n")), "{}", done.stdout);
        assert!(!done.stdout.contains("--approve"), "{}", done.stdout);
        assert!(done.stdout.contains("--deny"), "{}", done.stdout);
    }
}

#[tokio::test]
async fn a_run_that_is_not_begun_is_told_what_would_help_against_just_that() {
    let run = ["run", "--workspace", "w", "hello"];
    let waits = harness(Play::MayNotWait, &run, "").await;
    let fails = harness(Play::Fails, &run, "").await;
    assert_eq!((waits.code, fails.code), (Some(2), Some(1)));
    let last = waits.stderr.lines().last().unwrap();
    assert!(last.contains("--yes, --no-hold"), "{last}");
    let last = fails.stderr.lines().last().unwrap();
    assert!(last.ends_with("internal error (ACP_INTERNAL_ERROR); see the gateway's log"), "{last}");
}

#[tokio::test]
async fn a_signature_is_of_the_plan_that_was_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (file, public) = key(dir.path()).await;
    let shown = digest(Play::NeedsASignature).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown, "--key", &file];
    let done = harness(Play::NeedsASignature, &words, "").await;
    let answer = done.answer().unwrap();
    assert_eq!((done.code, &answer["scope"]), (Some(0), &json!("once")), "{}", done.stderr);
    assert!(done.stderr.contains("\\u{202e}gpj.txt"), "{}", done.stderr);
    let approval = &answer["approval"];
    let member = |name: &str| approval[name].as_str().unwrap();
    let signed = SignedApproval::from_text(member("payload"), member("signature"), public.id());
    let signed = signed.unwrap().verify(&public).unwrap();
    let plan = plan(Play::NeedsASignature);
    assert_eq!(
        (signed.plan, signed.action, signed.permission, signed.session, signed.run, signed.call),
        (
            digest(Play::NeedsASignature),
            plan.action_digest().unwrap(),
            permission(),
            session(),
            plan.run,
            plan.call
        )
    );
    assert_eq!((signed.subject.as_str(), signed.exp - signed.iat), ("ada", 3600));
}

#[tokio::test]
async fn a_key_signs_nothing_that_needs_no_signature() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = key(dir.path()).await;
    let shown = digest(Play::Honest).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown, "--key", &file];
    let done = harness(Play::Honest, &words, "").await;
    assert_eq!((done.code, done.answer().unwrap().get("approval")), (Some(0), None));
}

#[tokio::test]
async fn yes_to_everything_is_no_signature() {
    let words = ["connect", "--workspace", "w", "hello"];
    let denied = harness(Play::NeedsASignature, &words, "y\n").await;
    assert_eq!(denied.answer().unwrap()["decision"], "deny");
}

#[tokio::test]
async fn resume_approves_the_rest_of_the_run_only_where_that_is_offered() {
    for (play, scope, expected) in [
        (Play::OffersTheRun, "run", (Some(0), Some(json!("run")))),
        (Play::OffersTheRun, "once", (Some(0), Some(json!("once")))),
        (Play::Honest, "run", (Some(2), None)),
        (Play::OffersTheRun, "forever", (Some(2), None)),
    ] {
        let shown = digest(play).to_string();
        let words = ["resume", RUN, "--approve", "--plan", &shown, "--scope", scope];
        if scope == "forever" {
            let mut program = Command::new(env!("CARGO_BIN_EXE_harness"));
            let output = program.args(words).args(["--state", "x"]).output().await.unwrap();
            assert_eq!(output.status.code(), expected.0);
            continue;
        }
        let done = harness(play, &words, "").await;
        let sent = done.answer().map(|answer| answer["scope"].clone());
        assert_eq!((done.code, sent), expected, "{}", done.stderr);
    }
}

#[tokio::test]
async fn one_of_two_leaves_the_run_waiting_for_the_other() {
    let shown = digest(Play::NeedsTwo).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown, "--json"];
    let done = harness(Play::NeedsTwo, &words, "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("counted: 1 of 2"), "{}", done.stderr);
    assert!(done.stderr.contains("2 different people with the role admin"), "{}", done.stderr);
    let document = done.document();
    assert_eq!(document["status"], "waiting_approval");
    assert_eq!(document["pendingApprovals"][0]["plan"]["approval"][0]["count"], 2);
}

#[tokio::test]
async fn whoever_may_not_approve_is_told_so() {
    let shown = digest(Play::KnowsThemNot).to_string();
    let words = ["resume", RUN, "--approve", "--plan", &shown];
    let done = harness(Play::KnowsThemNot, &words, "").await;
    assert_eq!(done.code, Some(1));
    let last = done.stderr.lines().last().unwrap();
    assert!(last.contains("does not count: no role\\u{202e} fits"), "{last}");
    assert!(last.ends_with("; it waits for the yes of 1 person"), "{last}");
}

#[tokio::test]
async fn standing_allows_are_listed_and_taken_back() {
    let listed = harness(Play::Honest, &["grants", "list", RUN], "").await;
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert_eq!(
        listed.stdout,
        format!(
            "{RECEIPT} process.exec ls\\u{{202e}} (5 bytes, 1 line): by ada at 2026-01-01T00:00:00.000000Z, until \
             2026-01-02T00:00:00.000000Z, used 2 times\n"
        )
    );
    // Whoever looks must not count as one who could answer.
    assert_eq!(listed.heard[0]["params"]["capabilities"]["permissioning"], false);
    let document = harness(Play::Honest, &["grants", "list", RUN, "--json"], "").await.document();
    assert_eq!(
        (&document["kind"], &document["grants"][0]["receiptId"]),
        (&json!("grants"), &json!(RECEIPT))
    );
    let revoked = harness(Play::Honest, &["grants", "revoke", RUN, RECEIPT], "").await;
    assert_eq!((revoked.code, &*revoked.stdout), (Some(0), &*format!("revoked {RECEIPT}\n")));
    assert_eq!(
        revoked.request("grant/revoke")["params"],
        json!({"sessionId": session(), "receiptId": RECEIPT})
    );
    assert_eq!(revoked.stderr, "");
    let words = ["grants", "revoke", RUN, RECEIPT, "--json"];
    let later = harness(Play::RevokesLater, &words, "").await;
    let document = later.document();
    assert_eq!((&document["revoked"], &document["pending"]), (&json!(true), &json!(true)));
    assert!(later.stderr.contains("told again until it knows"), "{}", later.stderr);
    let other = harness(Play::Honest, &["grants", "revoke", RUN, RUN], "").await;
    assert_eq!((other.code, other.stdout.as_str()), (Some(1), ""));
    assert!(other.stderr.contains("no allow stands"), "{}", other.stderr);
}
