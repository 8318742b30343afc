//! What an import would write is shown while it is asked about, to whoever may read the session, and to nobody else.

use event::Digest;
use event::id::PermissionId;
use proto::agent::v1 as wire;
use proto::sandbox::v1 as sandbox;
use proto::sandbox::v1::get_patch_response::Part;
use receipt::{Plan, Role};
use serde_json::json;
use transport::{Code, Fault};

use super::gateway::{Ask, Choice, Claimed, Person, Reader};
use super::mesh::Mesh;
use super::model::{Turn, call};

fn digest() -> Digest {
    Digest::of(b"patch")
}

fn name_a_patch(plan: &mut Plan) {
    let patch = json!({
        "digest": digest(), "totals": { "entries": 1, "bytes": 4 },
        "protected": [], "deletions": [], "entries": [],
    });
    plan.patch = Some(serde_json::from_value(patch).unwrap());
}

async fn asked(mesh: &Mesh, alice: &Person, tool: &'static str) -> (Reader, Ask) {
    mesh.model.script([call(tool, json!({})), Turn::Say("done")]);
    let entry = sandbox::PatchEntry {
        path: b"a".to_vec(),
        change: "update".to_owned(),
        before_digest: "sha256:00".to_owned(),
        after_digest: "sha256:11".to_owned(),
        before_mode: 0o644,
        after_mode: 0o755,
        protected: false,
    };
    mesh.sandbox.with(|state| {
        if tool == "import_patch" {
            state.twist = name_a_patch;
        }
        state.patch = vec![Part::Entry(entry), Part::Diff(b"-one\n+two\n".to_vec())];
    });
    let (_, mut reader) = alice.begin().await;
    let ask = reader.ask().await;
    (reader, ask)
}

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> (Code, String) {
    let fault = result.unwrap_err();
    (fault.code, fault.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_is_no_ones_who_may_not_read_the_session() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_reader, ask) = asked(&mesh, &alice, "import_patch").await;
    let stranger = Person { tenant: "other".to_owned(), ..alice.clone() };
    assert_eq!(
        reason(stranger.patch(&ask, 0).await),
        (Code::NotFound, "SESSION_NOT_FOUND".to_owned())
    );
    let auditor = Person::named(&mesh, "otto", Role::Auditor);
    assert_eq!(
        reason(auditor.patch(&ask, 0).await),
        (Code::PermissionDenied, "ROLE_NOT_ALLOWED".to_owned())
    );
    let other = Ask { id: PermissionId::new(), ..ask.clone() };
    assert_eq!(
        reason(alice.patch(&other, 0).await),
        (Code::NotFound, "PERMISSION_NOT_FOUND".to_owned())
    );
    // An ask of another session is none of this one's.
    let elsewhere = Ask { session: alice.create().await, ..ask };
    assert_eq!(
        reason(alice.patch(&elsewhere, 0).await),
        (Code::NotFound, "PERMISSION_NOT_FOUND".to_owned())
    );
    assert_eq!(mesh.sandbox.with(|state| state.patches_asked.len()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_ask_that_names_a_patch_has_one() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_reader, ask) = asked(&mesh, &alice, "process.exec").await;
    assert_eq!(
        reason(alice.patch(&ask, 0).await),
        (Code::FailedPrecondition, "PLAN_WITHOUT_PATCH".to_owned())
    );
    assert_eq!(mesh.sandbox.with(|state| state.patches_asked.len()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_read_the_session_is_shown_the_patch_that_the_plan_names() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_reader, ask) = asked(&mesh, &alice, "import_patch").await;
    let text = concat!(
        r#"{"after":{"mode":"0755","sha256":"sha256:11"},"before":{"mode":"0644","sha256":"sha256:00"},"op":"update","path":"a"}"#,
        "\n\n-one\n+two\n"
    );
    let page = wire::GetPatchResponse {
        patch_digest: digest().as_bytes().to_vec(),
        offset: 0,
        text: text.to_owned(),
        next_offset: None,
    };
    let vera = Person::named(&mesh, "vera", Role::Viewer);
    for person in [&alice, &vera] {
        assert_eq!(person.patch(&ask, 0).await, Ok(page.clone()));
    }
    let from = u64::try_from(text.len() - 5).unwrap();
    let tail = wire::GetPatchResponse { offset: from, text: "+two\n".to_owned(), ..page };
    assert_eq!(alice.patch(&ask, from).await, Ok(tail));
    let beyond = alice.patch(&ask, from + 100).await;
    assert_eq!(reason(beyond), (Code::InvalidArgument, "REQUEST_INVALID".to_owned()));

    let asked = mesh.sandbox.with(|state| state.patches_asked.clone());
    let owner = asked[0].owner.clone();
    assert_eq!(owner.as_ref().map(|owner| owner.session_id.clone()), Some(ask.session.to_string()));
    let run_id = ask.plan.run.to_string();
    let request = sandbox::GetPatchRequest {
        owner,
        run_id,
        patch_digest: digest().to_string(),
        paths: Vec::new(),
        form: sandbox::PatchForm::Shown.into(),
    };
    assert_eq!(asked, vec![request; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_patch_comes_in_pages() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_reader, ask) = asked(&mesh, &alice, "import_patch").await;
    let diff = "+é\n".repeat(70_000);
    mesh.sandbox.with(|state| {
        state.patch =
            diff.as_bytes().chunks(65_536).map(|piece| Part::Diff(piece.to_vec())).collect();
    });
    let (mut text, mut next) = (String::new(), Some(0));
    while let Some(offset) = next {
        let page = alice.patch(&ask, offset).await.unwrap();
        assert!(page.text.len() <= 128 * 1024);
        text.push_str(&page.text);
        next = page.next_offset;
    }
    assert_eq!(text, format!("\n{diff}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sandbox_svc_refuses_is_said_and_what_it_breaks_is_not() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (_reader, ask) = asked(&mesh, &alice, "import_patch").await;
    for (says, told) in [
        ((Code::NotFound, "PATCH_UNKNOWN"), (Code::FailedPrecondition, "PATCH_UNKNOWN")),
        ((Code::FailedPrecondition, "FENCE_STALE"), (Code::Unavailable, "SESSION_RECOVERING")),
        ((Code::NotFound, "SESSION_UNKNOWN"), (Code::Unavailable, "SESSION_RECOVERING")),
        ((Code::Unavailable, "STOPPING"), (Code::Unavailable, "EXECUTOR_UNAVAILABLE")),
        ((Code::Internal, "INTERNAL"), (Code::Internal, "EXECUTOR_FAILED")),
    ] {
        mesh.sandbox.with(|state| state.patch_refused = Some(says));
        assert_eq!(reason(alice.patch(&ask, 0).await), (told.0, told.1.to_owned()), "{says:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_the_ask_is_answered_its_patch_is_shown_no_more() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let (mut reader, ask) = asked(&mesh, &alice, "import_patch").await;
    assert_eq!(alice.claim(&ask, Choice::Deny).await, Ok(Claimed::Won));
    reader.until("permission.resolved").await;
    assert_eq!(
        reason(alice.patch(&ask, 0).await),
        (Code::FailedPrecondition, "PERMISSION_RESOLVED".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_imported_is_read_by_its_session_also_when_it_has_ended() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let unrun = alice.create().await;
    let wanted = wire::GetPatchRequest {
        form: wire::PatchForm::Git.into(),
        paths: vec![b"src".to_vec(), vec![0xff]],
        ..Default::default()
    };
    let none = alice.patch_of_run(unrun, wanted.clone()).await;
    assert_eq!(reason(none), (Code::FailedPrecondition, "SESSION_WITHOUT_RUN".to_owned()));

    mesh.model.script([Turn::Say("done")]);
    mesh.sandbox.with(|state| state.patch = vec![Part::Diff(b"+two\n".to_vec())]);
    let (session, mut reader) = alice.begin().await;
    reader.rest().await;
    let run_id = alice.get(session).await.unwrap().run_id.unwrap();
    let stranger = Person { tenant: "other".to_owned(), ..alice.clone() };
    let refused = stranger.patch_of_run(session, wanted.clone()).await;
    assert_eq!(reason(refused), (Code::NotFound, "SESSION_NOT_FOUND".to_owned()));
    let both =
        wire::GetPatchRequest { permission_id: PermissionId::new().to_string(), ..wanted.clone() };
    let refused = alice.patch_of_run(session, both).await;
    assert_eq!(reason(refused), (Code::InvalidArgument, "REQUEST_INVALID".to_owned()));

    let page = |digest: Digest| wire::GetPatchResponse {
        patch_digest: digest.as_bytes().to_vec(),
        offset: 0,
        text: "+two\n".to_owned(),
        next_offset: None,
    };
    let vera = Person::named(&mesh, "vera", Role::Viewer);
    let newest = vera.patch_of_run(session, wanted.clone()).await;
    assert_eq!(newest, Ok(page(Digest::of(b"newest"))));
    let named = wire::GetPatchRequest { patch_digest: digest().to_string(), ..wanted.clone() };
    assert_eq!(alice.patch_of_run(session, named).await, Ok(page(digest())));
    let asked = mesh.sandbox.with(|state| state.patches_asked.clone());
    let request = |digest: String| sandbox::GetPatchRequest {
        owner: asked[0].owner.clone(),
        run_id: run_id.clone(),
        patch_digest: digest,
        paths: wanted.paths.clone(),
        form: sandbox::PatchForm::Git.into(),
    };
    assert_eq!(asked, [request(String::new()), request(digest().to_string())]);

    mesh.sandbox.with(|state| state.patch_refused = Some((Code::NotFound, "PATCH_GONE")));
    let gone = alice.patch_of_run(session, wanted).await;
    assert_eq!(reason(gone), (Code::FailedPrecondition, "PATCH_GONE".to_owned()));
}
