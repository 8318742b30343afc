//! What survives a restart, and what a second request finds.
use event::Digest;
use event::id::{CallId, RunId, SessionId};
use proptest::prelude::*;

use super::{Begun, Completion, Entry, Fenced, NoSession, Start, Store};
use crate::owner::{Owner, Terms};
use crate::provider::Need;
use crate::record::{self, Stream};
use crate::turn::{Failure, Kind, Outcome, Turn};
use transport::StateDir;

struct Fixture {
    dir: tempfile::TempDir,
    store: Store,
    owner: Owner,
    terms: Terms,
}

impl Fixture {
    async fn new(tokens: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir).await;
        let owner = Owner { session: SessionId::new(), node: "a".into(), epoch: 1 };
        let terms = Terms {
            tenant: "local".into(),
            subject: "ada".into(),
            manifest: Digest::of(b"manifest"),
            workspace: "demo".into(),
            models: vec!["scripted".into()],
            max_model_tokens: Some(tokens),
            grant_exp: 2_000_000_000,
        };
        assert_eq!(store.fence(&owner, &terms).await.unwrap(), Fenced::Raised);
        Self { dir, store, owner, terms }
    }

    fn entry(&self, run: RunId, call: CallId) -> Entry {
        let turn = Turn {
            call,
            run,
            attempt: 1,
            start_before_ms: 0,
            model: "scripted".into(),
            step: 0,
            messages: vec![],
            tools: vec![],
            max_output_tokens: 0,
            digest: Digest::of(b"request"),
        };
        let now = time::OffsetDateTime::UNIX_EPOCH;
        record::started(Stream::Session(self.owner.session, &self.terms), &turn, now).unwrap()
    }

    async fn begin(&self, run: RunId, call: CallId, need: Need) -> Begun {
        let start = Start {
            owner: &self.owner,
            run,
            call,
            attempt: 1,
            request: Digest::of(b"request"),
            need,
            entry: &self.entry(run, call),
        };
        self.store.begin(&start).await.unwrap()
    }

    async fn finish(&self, run: RunId, call: CallId, tokens: u64) {
        let outcome = Outcome::Failed(Failure::new(Kind::Timeout));
        self.store.finish(call, tokens, &outcome, &self.entry(run, call)).await.unwrap();
    }

    /// Closes the store and opens it again.
    async fn reopen(self) -> Self {
        let Self { dir, store, owner, terms } = self;
        store.pool.close().await;
        drop(store);
        let store = open(&dir).await;
        Self { dir, store, owner, terms }
    }
}

async fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(StateDir::own(dir.path()).unwrap()).await.unwrap()
}

fn exactly(tokens: u64) -> Need {
    Need { input: tokens, least: 0, most: 0 }
}

#[tokio::test]
async fn a_call_is_begun_once_and_found_again() {
    let fixture = Fixture::new(100).await;
    let (run, call) = (RunId::new(), CallId::new());
    let need = Need { input: 10, least: 1, most: 500 };
    let begun = fixture.begin(run, call, need).await;
    assert!(matches!(begun, Begun::Now { output: 90, entry: 1 }), "{begun:?}");
    let again = fixture.begin(run, call, need).await;
    assert!(matches!(again, Begun::Before(Completion::Requested)), "{again:?}");
    assert_eq!(fixture.store.outbox_batch(10, 1 << 20).await.unwrap().len(), 1);
    fixture.finish(run, call, 12).await;
    let outcome = Outcome::Failed(Failure::new(Kind::Timeout));
    let fixture = fixture.reopen().await;
    let done = Some(Completion::Done(Box::new(outcome)));
    let session = fixture.owner.session;
    assert_eq!(fixture.store.completion(session, call).await.unwrap(), done);
    assert_eq!(fixture.store.completion(SessionId::new(), call).await.unwrap(), None);
    // What was finished is never finished again.
    fixture.finish(run, call, 99).await;
    let begun = fixture.begin(run, CallId::new(), exactly(88)).await;
    assert!(matches!(begun, Begun::Now { .. }), "{begun:?}");
}

#[tokio::test]
async fn only_the_present_owner_begins() {
    let mut fixture = Fixture::new(100).await;
    let next = Owner { node: "b".into(), epoch: 2, ..fixture.owner.clone() };
    assert_eq!(fixture.store.fence(&next, &fixture.terms).await.unwrap(), Fenced::Raised);
    let begun = fixture.begin(RunId::new(), CallId::new(), exactly(1)).await;
    assert!(matches!(begun, Begun::NoSession(NoSession::Stale)), "{begun:?}");
    fixture.owner.session = SessionId::new();
    let begun = fixture.begin(RunId::new(), CallId::new(), exactly(1)).await;
    assert!(matches!(begun, Begun::NoSession(NoSession::Unknown)), "{begun:?}");
    assert_eq!(fixture.store.outbox_batch(10, 1 << 20).await.unwrap(), []);
}

#[tokio::test]
async fn a_renewal_never_shortens_and_terms_never_change() {
    let fixture = Fixture::new(100).await;
    let Fixture { store, owner, terms, .. } = &fixture;
    let earlier = Terms { grant_exp: terms.grant_exp - 1, ..terms.clone() };
    assert_eq!(store.fence(owner, &earlier).await.unwrap(), Fenced::Renewed);
    assert_eq!(store.session(owner).await.unwrap(), Ok(terms.clone()));
    let other = Terms { max_model_tokens: None, ..terms.clone() };
    assert!(matches!(store.fence(owner, &other).await.unwrap(), Fenced::OtherTerms(_)));
}

#[tokio::test]
async fn what_a_crash_left_behind_is_found_once() {
    let fixture = Fixture::new(100).await;
    let (run, call) = (RunId::new(), CallId::new());
    fixture.begin(run, call, exactly(60)).await;
    let fixture = fixture.reopen().await;
    let found = fixture.store.interrupted().await.unwrap();
    assert_eq!(found.iter().map(|(it, _)| it.call).collect::<Vec<_>>(), [call]);
    fixture.store.doubt(call, &fixture.entry(run, call)).await.unwrap();
    assert_eq!(fixture.store.interrupted().await.unwrap(), []);
    let session = fixture.owner.session;
    let standing = fixture.store.completion(session, call).await.unwrap();
    assert_eq!(standing, Some(Completion::InDoubt));
    // It may have cost all of it.
    let begun = fixture.begin(run, CallId::new(), exactly(41)).await;
    assert!(matches!(begun, Begun::OverBudget), "{begun:?}");
}

#[tokio::test]
async fn the_outbox_keeps_its_order_and_sets_aside_what_is_refused() {
    let fixture = Fixture::new(100).await;
    let entries: Vec<_> = (0..3).map(|_| fixture.entry(RunId::new(), CallId::new())).collect();
    for entry in &entries {
        fixture.store.enqueue(entry).await.unwrap();
    }
    let all = fixture.store.outbox_batch(10, 1 << 20).await.unwrap();
    let bodies: Vec<_> = all.iter().map(|waiting| waiting.body.clone()).collect();
    assert_eq!(bodies, entries.iter().map(|it| it.sealed.bytes.clone()).collect::<Vec<_>>());
    assert_eq!(fixture.store.outbox_batch(10, 1).await.unwrap(), all[..1], "at least one");
    fixture.store.outbox_refused(all[0].id, "EVENT_SCHEMA").await.unwrap();
    fixture.store.outbox_ack(&all[1..2]).await.unwrap();
    assert_eq!(fixture.store.outbox_batch(10, 1 << 20).await.unwrap(), all[2..]);
    let holds = [
        fixture.store.outbox_holds(all[0].id).await.unwrap(),
        fixture.store.outbox_holds(all[1].id).await.unwrap(),
    ];
    assert_eq!(holds, [true, false]);
}

#[derive(Debug, Clone)]
enum Step {
    Begin {
        input: u64,
        least: u64,
        most: u64,
    },
    /// Of the n-th open call, for this much of what it holds, in percent.
    Finish {
        which: usize,
        percent: u64,
    },
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..60, 0u64..20, 0u64..60)
            .prop_map(|(input, least, more)| Step::Begin { input, least, most: least + more }),
        3 => (any::<usize>(), 0u64..=100)
            .prop_map(|(which, percent)| Step::Finish { which, percent }),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_run_never_holds_more_than_its_budget(steps in prop::collection::vec(step(), 1..24)) {
        const LIMIT: u64 = 200;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut fixture = Fixture::new(LIMIT).await;
            let run = RunId::new();
            let mut open: Vec<(CallId, u64)> = Vec::new();
            let mut held = 0;
            for step in steps {
                match step {
                    Step::Begin { input, least, most } => {
                        let call = CallId::new();
                        let need = Need { input, least, most };
                        match fixture.begin(run, call, need).await {
                            Begun::Now { output, .. } => {
                                assert!((least..=most).contains(&output));
                                held += input + output;
                                open.push((call, input + output));
                            }
                            Begun::OverBudget => assert!(held + input + least > LIMIT),
                            other => panic!("{other:?}"),
                        }
                    }
                    Step::Finish { which, percent } if !open.is_empty() => {
                        let (call, reserved) = open.swap_remove(which % open.len());
                        let cost = reserved * percent / 100;
                        fixture.finish(run, call, cost).await;
                        held = held - reserved + cost;
                    }
                    Step::Finish { .. } => {}
                    Step::Crash => {
                        fixture = fixture.reopen().await;
                        for (call, _) in open.drain(..) {
                            let entry = fixture.entry(run, call);
                            fixture.store.doubt(call, &entry).await.unwrap();
                        }
                    }
                }
                assert!(held <= LIMIT);
            }
        });
    }
}
