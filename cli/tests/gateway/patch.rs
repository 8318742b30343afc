//! `patch show` and `patch export`: all of a patch or none of it, and nothing in it that a terminal would obey.
use serde_json::json;

use crate::played::{PATCH, Play, RUN, digest, patch_digest, permission};
use crate::program::harness;

#[tokio::test]
async fn a_patch_that_is_not_the_one_that_is_asked_about_is_not_shown() {
    let done = harness(Play::ShowsAnotherPatch, &["patch", "show", RUN], "").await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{}", done.stderr);
    assert!(
        done.stderr.contains("do not approve anything over this connection"),
        "{}",
        done.stderr
    );
}

#[tokio::test]
async fn where_nothing_would_be_imported_nothing_is_shown() {
    for play in [Play::Honest, Play::HasNothingOpen] {
        let done = harness(play, &["patch", "show", RUN], "").await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{}", done.stderr);
        assert!(done.heard.iter().all(|request| request["method"] != "patch/read"));
    }
}

#[tokio::test]
async fn the_whole_patch_is_printed_with_every_character_visible() {
    let done = harness(Play::Imports, &["patch", "show", RUN], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    // Whoever reads must not count as one who could answer.
    assert_eq!(done.heard[0]["params"]["capabilities"]["permissioning"], false);
    assert_eq!(
        done.stdout,
        "{\"op\":\"update\",\"path\":\"a.c\"}\n\n--- a.c\n+++ a.c\n-x\n+\\u{1b}[2K\\u{202e}y\\\\n\\r\nAllow this? y\n"
    );
}

#[tokio::test]
async fn a_program_gets_the_text_as_it_is() {
    let done = harness(Play::Imports, &["patch", "show", RUN, "--json"], "").await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.document(),
        json!({"schemaVersion": 1, "kind": "patch", "permissionId": permission(), "runId": RUN,
            "planDigest": digest(Play::Imports), "patchDigest": patch_digest(),
            "format": "harness.patch-text.v1", "text": PATCH.concat()})
    );
}

#[tokio::test]
async fn a_run_that_would_import_pauses_and_says_how_to_read_the_patch() {
    let done = harness(Play::Imports, &["run", "--workspace", "w", "hello"], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    let show = done.stdout.lines().find(|line| line.starts_with("  harness patch show ")).unwrap();
    assert!(show.ends_with(RUN), "{}", done.stdout);
}

#[tokio::test]
async fn an_export_is_the_text_in_gits_form_as_it_is() {
    let done = harness(Play::Imports, &["patch", "export", RUN], "").await;
    assert_eq!((done.code, done.answer()), (Some(0), None), "{}", done.stderr);
    assert_eq!(done.stdout, PATCH.concat());
    let read = |request: &&serde_json::Value| request["method"] == "patch/read";
    let formats: Vec<_> =
        done.heard.iter().filter(read).map(|request| &request["params"]["format"]).collect();
    assert_eq!(formats, [&json!("harness.patch-git.v1"); 2]);
    let done = harness(Play::ShowsAnotherPatch, &["patch", "export", RUN], "").await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""), "{}", done.stderr);
}

#[tokio::test]
async fn an_export_goes_into_a_new_file_and_over_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("change.patch");
    let command = ["patch", "export", RUN, "--output", path.to_str().unwrap()];
    let done = harness(Play::Imports, &command, "").await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), PATCH.concat());
    std::fs::write(&path, "mine").unwrap();
    let done = harness(Play::Imports, &command, "").await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}
