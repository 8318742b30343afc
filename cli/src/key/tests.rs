//! A key is one person's, stays private, and signs exactly the plan that was shown.
use receipt::{Plan, PublicKey, SignedApproval};

use super::*;
use crate::session::samples;

#[test]
fn a_key_that_is_nobodys_own_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = make("ada", dir.path()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let told = |text: &str, mode: u32| {
        let path = dir.path().join("other.key");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Signatory::read(&path).unwrap_err()
    };
    for mode in [0o640, 0o604, 0o660] {
        assert!(matches!(told(&text, mode), Error::Open(_)));
    }
    assert!(matches!(told("", 0o600), Error::NotAKey { .. }));
    assert!(matches!(told(&text.replace("Subject", "Object"), 0o600), Error::NoSubject(_)));
    assert!(matches!(told(&text.replace(": ada", ": "), 0o600), Error::NoSubject(_)));
    assert!(matches!(Signatory::read(&dir.path().join("none")).unwrap_err(), Error::File(_)));
    for name in ["", " ada", "a\nb", &"a".repeat(129)] {
        assert!(matches!(make(name, &dir.path().join("x")).unwrap_err(), Error::Name), "{name}");
    }
    assert!(!dir.path().join("x").exists());
}

#[test]
fn a_key_is_made_once_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/ada");
    let (path, made) = make("ada", &out).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o7777, 0o700);
    let read = Signatory::read(&path).unwrap();
    assert_eq!((&*read.subject, read.key.public()), ("ada", made.key.public()));
    assert!(matches!(make("ada", &out), Err(Error::File(file::Error::Exists { .. }))));
    assert_ne!(make("ada", dir.path()).unwrap().1.key.public(), made.key.public());
}

#[test]
fn the_line_for_the_administrator_names_person_key_and_roles() {
    assert_eq!(
        listed("a\"d\u{202e}a", "AAA=", &[Role::Operator, Role::Admin]),
        r#"  - {subject: "a\"d\u202ea", key: "AAA=", roles: [operator, admin]}"#
    );
}

#[test]
fn what_is_signed_is_the_plan_that_was_shown_and_what_it_was_shown_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_, ada) = make("ada", dir.path()).unwrap();
    let ask = samples::ask(&samples::plan(&["rm", "x"]));
    let plan: Plan = ask.plan().unwrap();
    let now = OffsetDateTime::from_unix_timestamp(1_000).unwrap();
    let sent = ada.sign(&ask, plan.session, Scope::Run, now).unwrap();
    let signed =
        SignedApproval::from_text(sent.payload.as_str(), sent.signature.as_str(), sent.key_id)
            .unwrap();
    let key: PublicKey = ada.key.public().unwrap();
    assert_eq!(
        signed.verify(&key).unwrap(),
        Approval {
            plan: ask.plan_digest,
            action: plan.action_digest().unwrap(),
            permission: ask.permission_id,
            session: plan.session,
            run: plan.run,
            call: plan.call,
            scope: Scope::Run,
            subject: "ada".to_owned(),
            iat: 1_000,
            exp: 4_600,
        }
    );
}
