//! The record: what its bytes look like, and what is refused.

use std::error::Error as _;

use kernel::record::{self, Misfit, Unreadable};
use kernel::{
    CallEnd, CallId, DenySource, Digest, EffectClass, Event, Fact, Halt, Metric, ModelEnd, Outcome,
    PermissionId, Plan, Reason, Resolution, RunId, Scope, Time, Verdict,
};

use crate::world::{World, prompt, said, subject};

fn text(fact: Fact) -> String {
    let bytes = record::encode(&Event { at: Time(7), fact }).expect("an event can be written");
    String::from_utf8(bytes).expect("the record is text")
}

/// A change here is a new kernel version.
#[test]
fn the_bytes_of_a_record_are_stable() {
    let plan = Plan {
        digest: Digest([0xab; 32]),
        action: Digest([1; 32]),
        class: EffectClass::Staged,
        scopes: vec![Scope::Once, Scope::Run],
    };
    let facts = [
        Fact::EnvironmentOpened,
        Fact::ModelEnded {
            call: CallId(2),
            tokens: u64::MAX,
            end: ModelEnd::Calls(vec![CallId(u128::MAX)]),
        },
        Fact::CallPlanned { call: CallId(3), plan, verdict: Verdict::Ask },
        Fact::PermissionResolved {
            permission: PermissionId(4),
            resolution: Resolution::Denied { source: DenySource::MissingResolver, by: None },
        },
        Fact::PermissionResolved {
            permission: PermissionId(4),
            resolution: Resolution::Allowed { by: subject(), scope: Scope::Run },
        },
        Fact::CallEnded {
            call: CallId(3),
            end: CallEnd::Lost { reason: Reason::of("EXECUTION_LOST") },
        },
        Fact::Ended { outcome: Outcome::Halted(Halt::OverBudget(Metric::ToolCalls)) },
    ];
    let lines: Vec<String> = facts.into_iter().map(text).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn another_version_is_refused_whatever_it_holds() {
    let unknown = record::decode(br#"{"v":2,"event":{"what":"ever"},"more":1}"#);
    assert!(matches!(unknown, Err(Unreadable::UnknownVersion { found: 2 })), "{unknown:?}");
}

#[test]
fn a_damaged_event_is_refused_with_its_cause() {
    let whole = text(Fact::CallStarted { call: CallId(2) });
    let damaged = [
        "",
        "{}",
        &whole[..whole.len() - 1],
        &format!("{whole} x"),
        &whole.replace("call_started", "call_begun"),
        &whole.replace("\"at\":7", "\"at\":7,\"by\":1"),
        &whole.replace("00000002", "0000002"),
        &whole.replace("00000002", "0000000G"),
        &whole.replace("00000002", "0000000A"),
    ];
    for bytes in damaged {
        let refused = record::decode(bytes.as_bytes()).expect_err(bytes);
        assert!(
            matches!(refused, Unreadable::Malformed(_)) && refused.source().is_some(),
            "{bytes}"
        );
    }
}

#[test]
fn a_record_with_a_gap_or_of_another_order_is_refused_where_it_breaks() {
    let mut world = World::thinking(prompt());
    world.sees(said(2, 10, ModelEnd::Stop));
    let whole: Vec<Event> = world.record().cloned().collect();
    assert!(record::fold(RunId(0xa), whole.clone()).is_ok());

    for missing in 0..whole.len() - 1 {
        let mut gap = whole.clone();
        gap.remove(missing);
        assert_eq!(record::fold(RunId(0xa), gap), Err(Misfit { index: missing }));
    }
    let mut swapped = whole;
    swapped.swap(1, 2);
    assert_eq!(record::fold(RunId(0xa), swapped), Err(Misfit { index: 1 }));
}

#[test]
fn an_event_that_does_not_fit_changes_nothing() {
    let world = World::thinking(prompt());
    let stray = Event { at: Time(u64::MAX), fact: Fact::CallStarted { call: CallId(9) } };
    assert_eq!(world.run.clone().apply(stray), world.run);
}

#[test]
fn a_reason_cannot_carry_content() {
    for text in ["", "model said no", "Model_ERROR", &"A".repeat(65)] {
        assert!(Reason::parse(text).is_err(), "{text}");
    }
    for own in [
        Reason::MODEL_LOST,
        Reason::MODEL_TRUNCATED,
        Reason::MODEL_ERROR,
        Reason::ABORTED_BY_OPERATOR,
    ] {
        assert_eq!(Reason::parse(own.as_str()), Ok(own));
    }
}
