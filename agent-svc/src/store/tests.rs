//! The promises of the store, without a service around it.

use std::sync::Arc;

use event::id::{CallId, EventId, PermissionId, ReceiptId, RunId, SessionId};
use event::{Data, Digest, Event, SessionCreated, Source};
use receipt::{Effect, EffectClass, Executor, Network, OnDisconnect, Plan, Scope, Version};
use time::OffsetDateTime;

use super::{
    Append, Change, Claimed, Counted, Entry, Error, How, NewReceipt, NewSession, Node, Opened,
    Owner, Resolved, State, Store, Tally, Untold,
};
use crate::clock::Millis;
use crate::permission::{Ask, Standing};
use transport::StateDir;

const NOW: Millis = Millis(1_000_000);
const EXPIRY: Millis = Millis(1_120_000);

fn at(seconds: i64) -> Millis {
    Millis(NOW.0 + seconds * 1000)
}

async fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(StateDir::own(dir.path()).unwrap()).await.unwrap()
}

async fn session(store: &Store) -> Owner {
    let new = NewSession {
        id: SessionId::new(),
        tenant: "acme".to_owned(),
        subject: "alice".to_owned(),
        grant: b"grant".to_vec(),
        manifest: b"manifest".to_vec(),
        manifest_id: "fix-it".to_owned(),
        policy_rev: Digest::of(b"manifest"),
        workspace: "demo".to_owned(),
        model: "scripted".to_owned(),
        on_disconnect: OnDisconnect::Deny,
        created_at: NOW,
    };
    let Opened::New(owner) = store.open_session(&new, Node::mint()).await.unwrap() else {
        panic!("a new id")
    };
    assert!(store.finish_session(owner, &entry(owner.session)).await.unwrap());
    assert!(!store.finish_session(owner, &entry(owner.session)).await.unwrap(), "once");
    owner
}

fn entry(session_id: SessionId) -> Entry {
    let data = Data::from(SessionCreated { session_id, workspace: None });
    let event = Event { id: EventId::new(), at: OffsetDateTime::UNIX_EPOCH, actor: None, data };
    Entry { id: event.id, sealed: event::seal(&event).unwrap() }
}

/// A session whose run asks something.
async fn asking(store: &Store) -> (Owner, RunId, PermissionId) {
    let owner = session(store).await;
    let (run, call, id) = (RunId::new(), CallId::new(), PermissionId::new());
    let plan = Plan {
        v: Version::V1,
        session: owner.session,
        run,
        call,
        tool: "process.exec".to_owned(),
        action: "process.exec".to_owned(),
        subject: None,
        effect: Effect::Allow,
        effect_class: EffectClass::Staged,
        executor: Executor::SandboxSvc,
        scopes: vec![Scope::Once, Scope::Run],
        task: None,
        manifest: Digest::of(b"manifest"),
        parts: Vec::new(),
        policies: Vec::new(),
        approval: Vec::new(),
        network: Network::None,
        program: None,
        argv: None,
        cwd: None,
        env: None,
        image: None,
        limits: None,
        mounts: Vec::new(),
        snapshot: None,
        workspace: None,
        patch: None,
        stdin: None,
        check: None,
        steps: Vec::new(),
        mcp: None,
        edit: None,
    };
    let bytes = plan.to_bytes().unwrap();
    let ask = Ask {
        id,
        run,
        call,
        plan_digest: receipt::plan_digest(&bytes),
        action_digest: plan.action_digest().unwrap(),
        plan,
        bytes,
        expires_at: EXPIRY,
    };
    let mut append = Append::new(NOW);
    append.entries = vec![entry(owner.session)];
    append.changes =
        vec![Change::Began { run, descent: None }, Change::Asked { ask: Box::new(ask), entry: 0 }];
    assert_eq!(store.append(owner, Some(run), &append).await.unwrap(), 1);
    (owner, run, id)
}

async fn fold(
    store: &Store,
    owner: Owner,
    run: RunId,
    id: PermissionId,
    how: How,
    now: Millis,
) -> Result<u64, Error> {
    let mut append = Append::new(now);
    append.entries = vec![entry(owner.session)];
    append.changes = vec![Change::Answered { permission: id, entry: 0, how }];
    store.append(owner, Some(run), &append).await
}

fn denied(source: Source) -> How {
    How::Denied { source, by: None }
}

#[tokio::test]
async fn a_write_of_a_former_owner_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let old = session(&store).await;
    let taken = store.take_over(Node::mint(), Millis(0)).await.unwrap();
    let new = taken[0].owner;
    assert_eq!((new.session, new.epoch), (old.session, old.epoch + 1));
    let mut append = Append::new(NOW);
    append.entries = vec![entry(old.session)];
    append.changes = vec![Change::Entered(State::Done)];
    for owner in [old, Owner { epoch: new.epoch, ..old }, Owner { epoch: old.epoch, ..new }] {
        assert!(matches!(store.append(owner, None, &append).await, Err(Error::Fenced)));
    }
    let found = store.session("acme", old.session).await.unwrap().unwrap();
    assert_eq!((found.state, found.last_seq), (State::Created, Some(0)));
    assert_eq!(store.append(new, None, &append).await.unwrap(), 1);
}

#[tokio::test]
async fn a_step_is_stored_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let owner = session(&store).await;
    let mut append = Append::new(NOW);
    append.entries = vec![entry(owner.session)];
    // The second change fits nothing, so the first must not stay either.
    append.changes = vec![
        Change::Entered(State::Running),
        Change::Answered { permission: PermissionId::new(), entry: 0, how: How::Answered },
    ];
    assert!(matches!(store.append(owner, None, &append).await, Err(Error::Overtaken)));
    let found = store.session("acme", owner.session).await.unwrap().unwrap();
    assert_eq!((found.state, found.last_seq), (State::Created, Some(0)));
}

#[tokio::test]
async fn an_outbox_row_leaves_by_exactly_its_acknowledgement() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let owner = session(&store).await;
    let mut append = Append::new(NOW);
    append.entries = (0..3).map(|_| entry(owner.session)).collect();
    store.append(owner, None, &append).await.unwrap();
    let batch = store.outbox_batch(owner.session, 10, usize::MAX).await.unwrap();
    assert_eq!(batch.iter().map(|row| row.seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let one = store.outbox_batch(owner.session, 10, 1).await.unwrap();
    assert_eq!(one, batch[..1], "at least one, however small the limit");
    store.outbox_ack(owner.session, &[(0, Digest::of(b"other bytes"))]).await.unwrap();
    store.outbox_ack(SessionId::new(), &[(0, batch[0].hash)]).await.unwrap();
    assert_eq!(store.outbox_batch(owner.session, 10, usize::MAX).await.unwrap(), batch);
    store.outbox_ack(owner.session, &[(0, batch[0].hash), (1, batch[1].hash)]).await.unwrap();
    assert_eq!(store.outbox_batch(owner.session, 10, usize::MAX).await.unwrap(), batch[2..]);
    let found = store.session("acme", owner.session).await.unwrap().unwrap();
    assert_eq!((found.last_seq, found.through_seq), (Some(3), Some(1)));
}

#[tokio::test]
async fn of_many_claims_at_once_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir).await);
    for _ in 0..20 {
        let (owner, _, id) = asking(&store).await;
        let key = (owner.session, id);
        let mut claims = tokio::task::JoinSet::new();
        for person in 0..16 {
            let store = Arc::clone(&store);
            claims.spawn(async move {
                let by = person.to_string();
                match person % 2 {
                    0 => store.claim_allow(key, &by, Scope::Once, None, (NOW, at(30))).await,
                    _ => store.claim_deny(key, &by, Source::Operator, None, NOW).await,
                }
                .unwrap()
            });
        }
        let claims = claims.join_all().await;
        let won = claims.iter().filter(|claimed| matches!(claimed, Claimed::Won { .. })).count();
        assert_eq!(won, 1);
        let standing = store.permission(owner.session, id).await.unwrap().unwrap().standing;
        for claimed in claims {
            assert!(
                matches!(claimed, Claimed::Won { .. })
                    || claimed == Claimed::Lost(standing.clone())
            );
        }
    }
}

#[tokio::test]
async fn only_the_end_of_the_run_ends_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    for (source, ends) in [
        (Source::Timeout, false),
        (Source::MissingResolver, false),
        (Source::Cancel, true),
        (Source::Disconnect, true),
        (Source::SessionEnd, true),
        (Source::System, true),
    ] {
        let (owner, run, id) = asking(&store).await;
        let key = (owner.session, id);
        let claimed = store.claim_allow(key, "alice", Scope::Once, None, (NOW, at(30))).await;
        assert_eq!(claimed.unwrap(), Claimed::Won { until: at(30) });
        let folded = fold(&store, owner, run, id, denied(source), at(29)).await;
        assert_eq!(folded.is_ok(), ends, "{source:?}");
        if !ends {
            assert!(matches!(folded, Err(Error::Overtaken)));
            assert!(fold(&store, owner, run, id, denied(source), at(30)).await.is_ok(), "lapsed");
        }
        assert!(matches!(
            fold(&store, owner, run, id, denied(source), at(31)).await,
            Err(Error::Overtaken)
        ));
    }
}

#[tokio::test]
async fn a_receipt_counts_for_the_holder_in_time_and_the_first_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (owner, run, id) = asking(&store).await;
    let key = (owner.session, id);
    let resolve = |by, scope, body: &'static [u8], now| {
        let new = NewReceipt { id: ReceiptId::new(), scope, body, expires_at: at(3600) };
        store.resolve(key, by, new, move |_: &[Vec<u8>]| Ok(enough(scope, 1)), now)
    };
    assert_eq!(resolve("alice", Scope::Once, b"1", NOW).await.unwrap(), Resolved::NotClaimed);
    store.claim_allow(key, "alice", Scope::Once, Some("fine"), (NOW, at(30))).await.unwrap();
    for (by, scope, now) in
        [("bob", Scope::Once, NOW), ("alice", Scope::Run, NOW), ("alice", Scope::Once, at(30))]
    {
        assert_eq!(resolve(by, scope, b"2", now).await.unwrap(), Resolved::NotClaimed);
    }
    assert_eq!(resolve("alice", Scope::Once, b"3", at(29)).await.unwrap(), Resolved::Allowed);
    assert_eq!(resolve("alice", Scope::Once, b"4", at(90)).await.unwrap(), Resolved::Allowed);
    let kept = Standing::Allowed {
        by: "alice".to_owned(),
        scope: Scope::Once,
        note: Some("fine".to_owned()),
        claimed_at: NOW,
        receipt: b"3".to_vec(),
    };
    assert_eq!(resolve("bob", Scope::Once, b"5", NOW).await.unwrap(), Resolved::Lost(kept.clone()));
    assert_eq!(fold(&store, owner, run, id, How::Answered, at(31)).await.unwrap(), 2);
    let found = store.permission(owner.session, id).await.unwrap().unwrap();
    assert_eq!((found.standing, found.resolved_seq), (kept, Some(2)));
    assert_eq!(store.unfolded(run).await.unwrap(), None);
}

fn enough(scope: Scope, need: u32) -> Tally {
    Tally::Enough { scope, counted: Counted { have: need, need } }
}

#[tokio::test]
async fn an_allow_that_is_not_enough_opens_the_ask_to_others_and_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (owner, run, id) = asking(&store).await;
    let key = (owner.session, id);
    let one = Counted { have: 1, need: 2 };
    let receipt = ReceiptId::new();
    let new = |body, expires_at| NewReceipt { id: receipt, scope: Scope::Once, body, expires_at };
    store.claim_allow(key, "alice", Scope::Once, Some("fine"), (NOW, at(30))).await.unwrap();
    let first = |bodies: &[Vec<u8>]| {
        assert_eq!(bodies, [b"1".to_vec()]);
        Ok(Tally::Short(one))
    };
    let kept = store.resolve(key, "alice", new(b"1", at(60)), first, NOW).await.unwrap();
    assert_eq!(kept, Resolved::Counted(one));
    drop(store);

    let store = open(&dir).await;
    let found = store.unfolded(run).await.unwrap().unwrap();
    assert_eq!((found.ask.id, found.standing), (id, Standing::Open));
    let untold = Untold { receipt, by: "alice".to_owned(), counted: one };
    assert_eq!(store.untold(id).await.unwrap(), [untold]);
    // The same person again, by claim or by receipt, is not a second one.
    let again = store.claim_allow(key, "alice", Scope::Once, None, (at(1), at(31))).await.unwrap();
    assert_eq!(again, Claimed::Counted(one));
    let never = |_: &[Vec<u8>]| panic!("nothing to count");
    let again = store.resolve(key, "alice", new(b"1", at(60)), never, at(1)).await.unwrap();
    assert_eq!(again, Resolved::Counted(one));
    let claimed = store.claim_allow(key, "bob", Scope::Once, None, (at(2), at(32))).await.unwrap();
    assert_eq!(claimed, Claimed::Won { until: at(32) });
    let second = NewReceipt { id: ReceiptId::new(), ..new(b"2", at(60)) };
    let both = |bodies: &[Vec<u8>]| {
        assert_eq!(bodies, [b"1".to_vec(), b"2".to_vec()]);
        Ok(enough(Scope::Once, 2))
    };
    let settled = store.resolve(key, "bob", second, both, at(3)).await.unwrap();
    assert_eq!(settled, Resolved::Allowed);
    assert_eq!(store.receipts(id).await.unwrap(), [b"1".to_vec(), b"2".to_vec()]);
}

#[tokio::test]
async fn an_allow_that_has_run_out_counts_no_more_and_may_be_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (owner, _, id) = asking(&store).await;
    let key = (owner.session, id);
    for (now, lease, expires_at) in [(NOW, at(30), at(40)), (at(40), at(70), at(80))] {
        let claimed = store.claim_allow(key, "alice", Scope::Once, None, (now, lease)).await;
        assert_eq!(claimed.unwrap(), Claimed::Won { until: lease });
        let id = ReceiptId::new();
        let new = NewReceipt { id, scope: Scope::Once, body: b"1", expires_at };
        let short = |bodies: &[Vec<u8>]| {
            assert_eq!(bodies.len(), 1);
            Ok(Tally::Short(Counted { have: 1, need: 2 }))
        };
        store.resolve(key, "alice", new, short, now).await.unwrap();
    }
}

#[tokio::test]
async fn an_ask_whose_time_has_passed_can_no_longer_be_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let timeout = Standing::Denied { source: Source::Timeout, by: None, note: None };
    let (owner, run, id) = asking(&store).await;
    let key = (owner.session, id);
    let late = store.claim_allow(key, "alice", Scope::Once, None, (EXPIRY, at(150))).await.unwrap();
    assert_eq!(late, Claimed::Lost(timeout.clone()));
    let late = store.claim_deny(key, "bob", Source::Operator, None, EXPIRY).await.unwrap();
    assert_eq!(late, Claimed::Lost(timeout));
    assert!(fold(&store, owner, run, id, How::Answered, EXPIRY).await.is_ok());

    // A lease that began in time goes on, but it does not begin again.
    let (owner, _, id) = asking(&store).await;
    let key = (owner.session, id);
    let mut claim = store.claim_allow(key, "alice", Scope::Once, None, (at(110), at(140))).await;
    assert_eq!(claim.unwrap(), Claimed::Won { until: at(140) });
    claim = store.claim_allow(key, "alice", Scope::Once, None, (at(130), at(160))).await;
    assert_eq!(claim.unwrap(), Claimed::Won { until: at(140) });
    claim = store.claim_allow(key, "alice", Scope::Once, None, (at(140), at(170))).await;
    assert!(matches!(
        claim.unwrap(),
        Claimed::Lost(Standing::Denied { source: Source::Timeout, .. })
    ));
}

#[tokio::test]
async fn open_asks_are_those_that_are_acknowledged_and_not_settled() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (owner, ..) = asking(&store).await;
    let seqs = |open: Vec<(u64, PermissionId, Vec<u8>)>| {
        open.into_iter().map(|(seq, ..)| seq).collect::<Vec<_>>()
    };
    for (through, expected) in [(None, vec![]), (Some(0), vec![]), (Some(1), vec![1])] {
        let open = store.open_asks(owner.session, through).await.unwrap();
        assert_eq!(seqs(open), expected);
    }
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir).await;
    let (owner, run, id) = asking(&store).await;
    let before = store.session("acme", owner.session).await.unwrap();
    let ask = store.unfolded(run).await.unwrap();
    drop(store);
    let store = open(&dir).await;
    assert_eq!(store.session("acme", owner.session).await.unwrap(), before);
    assert_eq!(store.unfolded(run).await.unwrap(), ask);
    assert_eq!(ask.map(|permission| permission.ask.id), Some(id));
    assert_eq!(store.session("other", owner.session).await.unwrap(), None);
    assert_eq!(store.manifest(owner.session).await.unwrap(), b"manifest");
}
