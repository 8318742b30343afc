//! How sessions come to be, are renewed, are looked at, and end without a run.

use std::time::Duration;

use event::id::SessionId;
use event::{AgentStatus, Data, Digest};
use proto::agent::v1 as wire;
use receipt::{Grant, OnDisconnect, Role};
use transport::{Code, Fault};

use super::audit::Mood;
use super::gateway::Person;
use super::mesh::{MANIFEST, Mesh, eventually};

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> (Code, String) {
    let fault = result.unwrap_err();
    (fault.code, fault.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_gets_the_same_answer() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let grant = alice.grant(SessionId::new());
    for _ in 0..3 {
        assert_eq!(alice.create_with(&grant, MANIFEST).await, Ok(0));
    }
    assert_eq!(mesh.audit.kinds(&grant.session.to_string()), ["session.created"]);
    assert_eq!(mesh.sandbox.fences.epoch(grant.session), Some(1));
    assert_eq!(mesh.model.fences.epoch(grant.session), Some(1));
    let shown = alice.get(grant.session).await.unwrap();
    assert_eq!((shown.through_seq, shown.run_id), (Some(0), None));
    assert!(matches!(shown.state, Some(wire::session::State::Created(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_at_once_open_one_session() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    for _ in 0..10 {
        let grant = alice.grant(SessionId::new());
        let both =
            tokio::join!(alice.create_with(&grant, MANIFEST), alice.create_with(&grant, MANIFEST));
        assert_eq!(both, (Ok(0), Ok(0)));
        assert_eq!(mesh.audit.kinds(&grant.session.to_string()), ["session.created"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_differs_in_its_times_renews_and_any_other_conflicts() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let first = alice.grant(SessionId::new());
    alice.create_with(&first, MANIFEST).await.unwrap();
    let newer = Grant { iat: first.iat + 1, exp: first.exp + 600, ..first.clone() };
    assert_eq!(alice.create_with(&newer, MANIFEST).await, Ok(0));
    let held = alice.get(first.session).await.unwrap().grant.unwrap();
    assert_eq!(held.payload, receipt::Payload::to_bytes(&newer).unwrap());
    assert_eq!(mesh.sandbox.fences.epoch(first.session), Some(1));
    // An older one changes nothing.
    assert_eq!(alice.create_with(&first, MANIFEST).await, Ok(0));
    assert_eq!(alice.get(first.session).await.unwrap().grant.unwrap(), held);

    let others = [
        Grant { workspace: "elsewhere".to_owned(), ..newer.clone() },
        Grant { subject: "mallory".to_owned(), ..newer.clone() },
        Grant { on_disconnect: OnDisconnect::Hold, ..newer.clone() },
    ];
    for other in others {
        let refused = reason(alice.create_with(&other, MANIFEST).await);
        assert_eq!(refused, (Code::AlreadyExists, "SESSION_CONFLICT".to_owned()));
    }
    // Another tenant learns no more than that the id is taken.
    let stranger = Person { tenant: "other".to_owned(), ..alice.clone() };
    let foreign = Grant { tenant: "other".to_owned(), ..newer };
    let refused = reason(stranger.create_with(&foreign, MANIFEST).await);
    assert_eq!(refused, (Code::AlreadyExists, "SESSION_CONFLICT".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_renewed_without_the_manifest_that_the_session_has() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let first = alice.grant(SessionId::new());
    let unknown = (Code::FailedPrecondition, "MANIFEST_MISMATCH".to_owned());
    assert_eq!(reason(alice.create_with(&first, "").await), unknown);
    alice.create_with(&first, MANIFEST).await.unwrap();
    let newer = Grant { iat: first.iat + 1, exp: first.exp + 600, ..first.clone() };
    // The played executors check that they are shown the whole manifest.
    assert_eq!(alice.create_with(&newer, "").await, Ok(0));
    let held = alice.get(first.session).await.unwrap().grant.unwrap();
    assert_eq!(held.payload, receipt::Payload::to_bytes(&newer).unwrap());

    let elsewhere = Grant { workspace: "elsewhere".to_owned(), ..newer.clone() };
    let conflict = (Code::AlreadyExists, "SESSION_CONFLICT".to_owned());
    assert_eq!(reason(alice.create_with(&elsewhere, "").await), conflict);
    let another = Grant { manifest: Digest::of(b"another"), ..newer.clone() };
    assert_eq!(reason(alice.create_with(&another, "").await), unknown);
    // Another tenant's session is none.
    let stranger = Person { tenant: "other".to_owned(), ..alice.clone() };
    let foreign = Grant { tenant: "other".to_owned(), ..newer };
    assert_eq!(reason(stranger.create_with(&foreign, "").await), unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_does_not_fit_is_refused_before_anyone_is_told() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let right = alice.grant(SessionId::new());
    let refused = |code, reason: &str| (code, reason.to_owned());
    let failed = Code::FailedPrecondition;
    let tenant = Grant { tenant: "other".to_owned(), ..right.clone() };
    let digest = Grant { manifest: Digest::of(b"other"), ..right.clone() };
    let id = Grant { manifest_id: "other".to_owned(), ..right.clone() };
    let model = Grant { models: vec!["another".to_owned()], ..right.clone() };
    let late = Grant { iat: right.iat - 50, exp: right.iat - 1, ..right.clone() };
    let broken = "id: fix-it\n";
    let unreadable = Grant { manifest: Digest::of(broken.as_bytes()), ..right.clone() };
    let table = [
        (tenant, MANIFEST, refused(failed, "GRANT_TENANT_MISMATCH")),
        (digest, MANIFEST, refused(failed, "MANIFEST_MISMATCH")),
        (id, MANIFEST, refused(failed, "MANIFEST_MISMATCH")),
        (model, MANIFEST, refused(failed, "MODEL_UNKNOWN")),
        (late, MANIFEST, refused(failed, "GRANT_EXPIRED")),
        (unreadable, broken, refused(failed, "MANIFEST_INVALID")),
    ];
    for (grant, manifest, expected) in table {
        assert_eq!(reason(alice.create_with(&grant, manifest).await), expected);
    }
    assert_eq!(mesh.sandbox.fences.epoch(right.session), None);
    assert_eq!(reason(alice.get(right.session).await).1, "SESSION_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executors_refusal_leaves_no_session_behind() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let grant = alice.grant(SessionId::new());
    mesh.sandbox
        .with(|state| state.refuses = Some((Code::FailedPrecondition, "WORKSPACE_UNKNOWN")));
    let refused = reason(alice.create_with(&grant, MANIFEST).await);
    assert_eq!(refused, (Code::FailedPrecondition, "WORKSPACE_UNKNOWN".to_owned()));
    assert_eq!(reason(alice.get(grant.session).await).1, "SESSION_NOT_FOUND");
    assert_eq!(mesh.audit.kinds(&grant.session.to_string()), [""; 0]);
    // The id is free again.
    mesh.sandbox.with(|state| state.refuses = None);
    assert_eq!(alice.create_with(&grant, MANIFEST).await, Ok(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_begun_before_a_kill_is_opened_by_the_same_request() {
    let mut mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let grant = alice.grant(SessionId::new());
    mesh.sandbox.with(|state| state.refuses = Some((Code::Unavailable, "BUSY")));
    let refused = reason(alice.create_with(&grant, MANIFEST).await);
    assert_eq!(refused, (Code::Unavailable, "EXECUTOR_UNAVAILABLE".to_owned()));
    assert_eq!(reason(alice.get(grant.session).await).1, "SESSION_NOT_FOUND");
    mesh.restart().await;
    mesh.sandbox.with(|state| state.refuses = None);
    let alice = Person::operator(&mesh);
    assert_eq!(alice.create_with(&grant, MANIFEST).await, Ok(0));
    assert_eq!(mesh.sandbox.fences.epoch(grant.session), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_prompt_ends_after_five_minutes() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    mesh.clock.advance(Duration::from_secs(299));
    assert!(matches!(
        alice.get(session).await.unwrap().state,
        Some(wire::session::State::Created(_))
    ));
    mesh.clock.advance(Duration::from_secs(2));
    let (events, outcome) = alice.attach(session).await.rest().await;
    let Some(Data::AgentStopped(stopped)) = events.last() else { panic!("{events:?}") };
    assert_eq!((events.len(), stopped.status, stopped.steps), (2, AgentStatus::Canceled, 0));
    assert!(matches!(outcome.state, Some(wire::outcome::State::Canceled(_))));
    assert_eq!(outcome.run_id, "");
    let refused = (Code::FailedPrecondition, "SESSION_ALREADY_RUN".to_owned());
    assert_eq!(reason(alice.prompt(session).await), refused);
    assert_eq!(alice.cancel(session).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_session_can_be_canceled_and_a_session_runs_once() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let session = alice.create().await;
    assert_eq!(alice.cancel(session).await, Ok(true));
    assert_eq!(alice.cancel(session).await, Ok(false));
    let session = alice.create().await;
    alice.prompt(session).await.unwrap();
    assert_eq!(reason(alice.prompt(session).await).1, "SESSION_ALREADY_RUN");
    alice.attach(session).await.rest().await;
    assert_eq!(reason(alice.prompt(session).await).1, "SESSION_ALREADY_RUN");
    assert_eq!(alice.cancel(session).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_newest_first_and_found_by_their_run() {
    let mesh = Mesh::start().await;
    let alice = Person::operator(&mesh);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(alice.create().await);
    }
    let mut listed = Vec::new();
    let mut token = String::new();
    loop {
        let obo = alice.obo("ListSessions", None, None);
        let message = wire::ListSessionsRequest { page_size: 2, page_token: token };
        let page = alice.client.clone().list_sessions(alice.with(message, &obo)).await.unwrap();
        let page = page.into_inner();
        listed.extend(page.sessions.into_iter().map(|session| session.session_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    sessions.sort_by(|a, b| b.cmp(a));
    assert_eq!(listed, sessions.iter().map(ToString::to_string).collect::<Vec<_>>());

    let run = alice.prompt(sessions[0]).await.unwrap();
    let viewer = Person::named(&mesh, "vera", Role::Viewer);
    let key = wire::get_session_request::Key::RunId(run.clone());
    let message = wire::GetSessionRequest { key: Some(key) };
    let request = viewer.with(message, &viewer.obo("GetSession", None, None));
    let found = viewer.client.clone().get_session(request).await.unwrap().into_inner();
    let found = found.session.unwrap();
    assert_eq!((found.session_id, found.run_id), (sessions[0].to_string(), Some(run)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_answered_for_only_when_the_ledger_has_it() {
    let mut mesh = Mesh::start().await;
    mesh.kill().await;
    mesh.spans.answer = Duration::from_millis(300);
    mesh.boot(None).await;
    let alice = Person::operator(&mesh);
    let grant = alice.grant(SessionId::new());
    mesh.audit.set(Mood::Down);
    let refused = reason(alice.create_with(&grant, MANIFEST).await);
    assert_eq!(refused, (Code::Unavailable, "AUDIT_UNAVAILABLE".to_owned()));
    mesh.audit.set(Mood::Up);
    eventually("the ledger has it", || !mesh.audit.kinds(&grant.session.to_string()).is_empty())
        .await;
    assert_eq!(alice.create_with(&grant, MANIFEST).await, Ok(0));
}
