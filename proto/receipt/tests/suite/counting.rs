//! What holds for every pile of receipts: more of them never lose an admission, and only real people about this very
//! plan count, each once.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use crate::people::{World, allow, key, plan, signed};
use crate::pki::grant;
use event::id::{CallId, RunId, SessionId};
use event::{Digest, Scope};
use proptest::prelude::*;
use receipt::{ApproverKey, Plan, Receipt, Requirement, Role, meant, progress, unfit};

const PEOPLE: [&str; 4] = ["dev", "alice", "bob", "carol"];
const ROLES: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

/// What is wrong with a receipt, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Session,
    Run,
    Call,
    Plan,
    Action,
    Tenant,
    Revoked,
    NoSignature,
    OthersSignature,
}

#[derive(Debug, Clone)]
struct Given {
    person: usize,
    roles: Vec<Role>,
    flaw: Flaw,
}

fn given() -> impl Strategy<Value = Given> {
    let flaw = prop_oneof![
        4 => Just(Flaw::None),
        1 => prop::sample::select(vec![
            Flaw::Session, Flaw::Run, Flaw::Call, Flaw::Plan, Flaw::Action, Flaw::Tenant,
            Flaw::Revoked, Flaw::NoSignature, Flaw::OthersSignature,
        ]),
    ];
    let roles = prop::sample::subsequence(ROLES.to_vec(), 0..=2);
    (0..PEOPLE.len(), roles, flaw).prop_map(|(person, roles, flaw)| Given { person, roles, flaw })
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let roles = prop::sample::subsequence(vec!["viewer", "operator", "admin"], 0..=2);
    (roles, any::<bool>(), 1u8..=3, any::<bool>()).prop_map(
        |(roles, not_requester, count, signature)| Requirement {
            roles: roles.into_iter().map(str::to_owned).collect(),
            not_requester,
            count,
            signature,
        },
    )
}

struct Setting {
    world: World,
    keys: Vec<ApproverKey>,
}

thread_local! {
    static SETTING: OnceCell<Setting> = const { OnceCell::new() };
}

/// Certificates and keys are minted once; nothing in them depends on the case.
fn with_setting<T>(run: impl FnOnce(&Setting) -> T) -> T {
    SETTING.with(|setting| {
        run(setting.get_or_init(|| {
            let mut world = World::new();
            let keys: Vec<_> = PEOPLE.iter().map(|_| key()).collect();
            for (person, key) in PEOPLE.into_iter().zip(&keys) {
                world.list(person, key.public().unwrap(), &["viewer", "operator", "admin"]);
            }
            world.revoked.insert(revoked());
            Setting { world, keys }
        }))
    })
}

fn revoked() -> event::id::ReceiptId {
    "0198f000-0000-7000-8000-0000000000ff".parse().unwrap()
}

fn receipt(setting: &Setting, plan: &Plan, given: &Given) -> Receipt {
    let (person, other) = (given.person, (given.person + 1) % PEOPLE.len());
    let mut receipt = allow(plan, PEOPLE[person], &given.roles, Scope::Once);
    match given.flaw {
        Flaw::None | Flaw::NoSignature | Flaw::OthersSignature => (),
        Flaw::Session => receipt.session = SessionId::new(),
        Flaw::Run => receipt.run = RunId::new(),
        Flaw::Call => receipt.call = CallId::new(),
        Flaw::Plan => receipt.plan = Digest::of(b"other"),
        Flaw::Action => receipt.action = Digest::of(b"other"),
        Flaw::Tenant => receipt.tenant.push('x'),
        Flaw::Revoked => receipt.id = revoked(),
    }
    match given.flaw {
        Flaw::NoSignature => receipt,
        Flaw::OthersSignature => signed(receipt, &setting.keys[other]),
        _ => signed(receipt, &setting.keys[person]),
    }
}

/// The rule once more, in other words: of the good receipts, the people that each requirement takes.
fn admits(requirements: &[Requirement], all: &[Given]) -> bool {
    let requirements = match requirements {
        [] => vec![Requirement::default()],
        listed => listed.to_vec(),
    };
    requirements.iter().all(|requirement| {
        let people: BTreeSet<usize> = all
            .iter()
            .filter(|given| match given.flaw {
                Flaw::None => true,
                Flaw::NoSignature | Flaw::OthersSignature => !requirement.signature,
                _ => false,
            })
            .filter(|given| !(requirement.not_requester && PEOPLE[given.person] == grant().subject))
            .filter(|given| {
                let named = |role: &Role| requirement.roles.contains(role.as_str());
                requirement.roles.is_empty() || given.roles.iter().any(named)
            })
            .map(|given| given.person)
            .collect();
        people.len() >= usize::from(requirement.count)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn exactly_enough_fitting_people_admit(
        requirements in prop::collection::vec(requirement(), 0..3),
        all in prop::collection::vec(given(), 0..5),
    ) {
        let plan = plan(meant(requirements.clone()));
        with_setting(|setting| {
            let receipts: Vec<_> = all.iter().map(|it| receipt(setting, &plan, it)).collect();
            let admitted = setting.world.admit(&plan, &receipts);
            prop_assert_eq!(admitted.is_ok(), admits(&requirements, &all), "{:?}", admitted);
            let Ok(admission) = admitted else { return Ok(()) };
            for counted in &admission.counted {
                let of = receipts.iter().position(|it| it.id == counted.receipt).unwrap();
                let it = &all[of];
                prop_assert!(matches!(
                    it.flaw, Flaw::None | Flaw::NoSignature | Flaw::OthersSignature
                ));
                prop_assert_eq!(&counted.subject, PEOPLE[it.person]);
            }
            Ok(())
        })?;
    }

    #[test]
    fn one_more_receipt_never_loses_admission(
        requirements in prop::collection::vec(requirement(), 0..3),
        all in prop::collection::vec(given(), 0..5),
        more in given(),
        at in any::<prop::sample::Index>(),
    ) {
        let plan = plan(meant(requirements));
        with_setting(|setting| {
            let mut receipts: Vec<_> = all.iter().map(|it| receipt(setting, &plan, it)).collect();
            let before = setting.world.admit(&plan, &receipts);
            receipts.insert(at.index(receipts.len() + 1), receipt(setting, &plan, &more));
            let after = setting.world.admit(&plan, &receipts);
            match (before, after) {
                (Ok(_), after) => prop_assert!(after.is_ok(), "{after:?}"),
                (Err(before), Err(after)) => prop_assert!(
                    after.need - after.have <= before.need - before.have,
                    "{before:?} then {after:?}"
                ),
                (Err(_), Ok(_)) => (),
            }
            Ok(())
        })?;
    }

    #[test]
    fn nobody_counts_twice_and_strangers_to_the_plan_never(
        person in 0..PEOPLE.len(),
        copies in 1usize..5,
        flaw in prop::sample::select(vec![
            Flaw::Session, Flaw::Run, Flaw::Call, Flaw::Plan, Flaw::Action, Flaw::Tenant,
            Flaw::Revoked,
        ]),
        count in 2u8..4,
    ) {
        let two = plan(vec![Requirement { count, ..Requirement::default() }]);
        with_setting(|setting| {
            let roles = vec![Role::Admin];
            let good = Given { person, roles, flaw: Flaw::None };
            let copies: Vec<_> = (0..copies).map(|_| receipt(setting, &two, &good)).collect();
            let short = setting.world.admit(&two, &copies).unwrap_err();
            prop_assert_eq!((short.have, short.need), (1, count.into()));
            let one = plan(vec![]);
            let bad = receipt(setting, &one, &Given { flaw, ..good });
            let short = setting.world.admit(&one, &[bad]).unwrap_err();
            prop_assert_eq!((short.have, short.need), (0, 1));
            Ok(())
        })?;
    }

    /// Whoever has no list of keys may be too hopeful about signatures, and about nothing else.
    #[test]
    fn the_count_without_keys_is_never_below_the_executors(
        requirements in prop::collection::vec(requirement(), 0..3),
        all in prop::collection::vec(given(), 0..5),
    ) {
        let requirements = meant(requirements);
        let plan = plan(requirements.clone());
        let dev = grant().subject;
        let sound = |it: &&Given| {
            matches!(it.flaw, Flaw::None | Flaw::NoSignature | Flaw::OthersSignature)
        };
        with_setting(|setting| {
            let receipts: Vec<_> =
                all.iter().filter(sound).map(|it| receipt(setting, &plan, it)).collect();
            let progress = progress(&requirements, &dev, &receipts);
            match setting.world.admit(&plan, &receipts) {
                Ok(_) => prop_assert!(progress.is_complete()),
                Err(short) => {
                    let lacks = progress.need.saturating_sub(progress.have);
                    prop_assert!(lacks <= short.need - short.have, "{progress:?} {short:?}");
                    let lent = |it: &Given| it.flaw == Flaw::OthersSignature;
                    prop_assert!(!progress.is_complete() || all.iter().any(lent));
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn whoever_fits_nothing_changes_nothing(
        requirements in prop::collection::vec(requirement(), 1..3),
        all in prop::collection::vec(given(), 0..4),
        more in given(),
    ) {
        let requirements = meant(requirements);
        let plan = plan(requirements.clone());
        let roles = more.roles.iter().copied().collect();
        let dev = grant().subject;
        prop_assume!(unfit(&requirements, PEOPLE[more.person], &roles, &dev).is_some());
        with_setting(|setting| {
            let mut receipts: Vec<_> = all.iter().map(|it| receipt(setting, &plan, it)).collect();
            let before = setting.world.admit(&plan, &receipts);
            let counted = progress(&requirements, &dev, &receipts);
            receipts.push(receipt(setting, &plan, &more));
            prop_assert_eq!(progress(&requirements, &dev, &receipts), counted);
            let after = setting.world.admit(&plan, &receipts);
            match (before, after) {
                (Ok(before), Ok(after)) => prop_assert_eq!(before, after),
                (Err(before), Err(after)) => {
                    prop_assert_eq!((before.have, before.need), (after.have, after.need));
                }
                (before, after) => prop_assert!(false, "{before:?} then {after:?}"),
            }
            Ok(())
        })?;
    }
}
