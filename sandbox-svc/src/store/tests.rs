//! What the database itself must refuse, whoever asks.

use event::Digest;
use event::id::{CallId, PermissionId, RunId, SessionId};
use receipt::{Grant, OnDisconnect, Payload as _};

use super::{
    Accepted, Begun, EnvironmentState, ExecutionState, Fenced, NewEnvironment, NewExecution,
    NewSession, PlanRow, Record, Refused, Store,
};
use crate::config::StagingKind;

fn grant(session: SessionId) -> Grant {
    Grant {
        session,
        tenant: "t".to_owned(),
        subject: "ada".to_owned(),
        manifest_id: "demo".to_owned(),
        manifest: Digest::of(b"m"),
        workspace: "demo".to_owned(),
        models: Vec::new(),
        on_disconnect: OnDisconnect::Deny,
        iat: 10,
        exp: 20,
    }
}

async fn fence(store: &Store, session: SessionId, epoch: u64, node: &str) -> Fenced {
    let grant = grant(session);
    let payload = grant.to_bytes().unwrap();
    let new = NewSession { grant: &grant, grant_payload: &payload, manifest: b"m", epoch, node };
    store.fence(&new).await.unwrap()
}

fn plan(session: SessionId, call: CallId) -> PlanRow {
    PlanRow {
        call,
        session,
        run: RunId::new(),
        tool: "process.exec".to_owned(),
        arguments: b"{}".to_vec(),
        bytes: b"plan".to_vec(),
        digest: Digest::of(b"plan"),
    }
}

fn started(session: SessionId, plan: &PlanRow) -> Record {
    let started = event::CallStarted {
        call_id: plan.call,
        run_id: plan.run,
        attempt: 1,
        tool: plan.tool.clone(),
        effect_class: event::EffectClass::Staged,
        plan_digest: plan.digest,
        permission_id: None,
        rules: Vec::new(),
    };
    crate::ledger::record(session, "t", "", started).unwrap()
}

async fn accept(
    store: &Store,
    plan: &PlanRow,
    epoch: u64,
    once: Option<PermissionId>,
) -> Result<(), Refused> {
    let new = NewExecution {
        plan,
        tenant: "t",
        attempt: 1,
        start_before_ms: 1,
        now_ms: 0,
        once: &once.into_iter().collect(),
        receipts: &[],
        after_lost: None,
        epoch,
    };
    match store.accept(&new, &started(plan.session, plan)).await.unwrap() {
        Accepted::Yes => Ok(()),
        Accepted::No(refused) => Err(refused),
    }
}

#[tokio::test]
async fn an_epoch_has_one_node_and_never_falls() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let session = SessionId::new();
    assert!(matches!(fence(&store, session, 2, "a").await, Fenced::Raised));
    assert!(matches!(fence(&store, session, 2, "a").await, Fenced::Raised));
    assert!(matches!(fence(&store, session, 2, "b").await, Fenced::Stale));
    assert!(matches!(fence(&store, session, 1, "a").await, Fenced::Stale));
    assert!(matches!(fence(&store, session, 3, "b").await, Fenced::Raised));
}

#[tokio::test]
async fn a_call_is_admitted_once_and_a_refused_one_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let session = SessionId::new();
    fence(&store, session, 1, "a").await;
    let (first, second) = (plan(session, CallId::new()), plan(session, CallId::new()));
    let permission = Some(PermissionId::new());

    assert_eq!(accept(&store, &first, 0, permission).await, Err(Refused::Fenced));
    assert_eq!(accept(&store, &first, 1, permission).await, Ok(()));
    assert_eq!(accept(&store, &first, 1, permission).await, Err(Refused::Known));
    assert_eq!(accept(&store, &second, 1, permission).await, Err(Refused::Consumed));
    assert_eq!(accept(&store, &second, 1, None).await, Ok(()));

    let sequence: Vec<_> =
        store.to_send(session, 10).await.unwrap().into_iter().map(|entry| entry.seq).collect();
    assert_eq!(sequence, [0, 1]);
    let row = store.execution(first.call).await.unwrap().unwrap();
    assert_eq!((row.plan, row.state, row.attempt), (first, ExecutionState::Accepted, 1));
}

#[tokio::test]
async fn the_first_reason_to_stop_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let session = SessionId::new();
    fence(&store, session, 1, "a").await;
    let plan = plan(session, CallId::new());
    accept(&store, &plan, 1, None).await.unwrap();
    assert_eq!(store.note_reason(plan.call, "timed_out").await.unwrap(), "timed_out");
    assert_eq!(store.note_reason(plan.call, "canceled").await.unwrap(), "timed_out");
}

#[tokio::test]
async fn a_slot_belongs_to_one_environment_and_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let session = SessionId::new();
    fence(&store, session, 1, "a").await;
    let begin = async |run| {
        let new = NewEnvironment { run, session, staging: StagingKind::Dirs, boot: "b" };
        match store.begin_environment(&new).await.unwrap() {
            Begun::New { slot } => slot,
            Begun::Known(row) => panic!("{row:?}"),
        }
    };
    let runs = [RunId::new(), RunId::new(), RunId::new()];
    assert_eq!((begin(runs[0]).await, begin(runs[1]).await), (0, 1));
    store.set_environment_state(runs[0], EnvironmentState::Closed).await.unwrap();
    assert_eq!(begin(runs[2]).await, 0);
}
