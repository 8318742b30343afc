//! Who is let in by which token, and who is not.
use std::time::Duration;

use acp::token::RANDOM_BYTES;
use http::HeaderValue;

use super::*;

fn token(seed: u8) -> Token {
    Token::mint(&[seed; RANDOM_BYTES])
}

fn entry(token: &Token, roles: &[&str], expires: &str) -> String {
    let (id, sha256) = (token.id(), token.sha256_hex());
    format!(
        "[[token]]\nid = \"{id}\"\nsha256 = \"{sha256}\"\ntenant = \"t\"\nsubject = \"ada\"\nroles = {roles:?}\nexpires = \"{expires}\"\n"
    )
}

fn bearer(text: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(text).expect("printable"))])
}

struct Case {
    tokens: Tokens,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn case(text: &str) -> Case {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    fs::write(&path, text).expect("written");
    Case { tokens: Tokens::open(&path).expect("opens"), path, _dir: dir }
}

/// Replaces the file as the CLI does, so that its stamp changes whatever the clock's grain is.
fn replace(case: &Case, text: &str) {
    let next = case.path.with_extension("next");
    fs::write(&next, text).expect("written");
    fs::rename(&next, &case.path).expect("renamed");
}

#[test]
fn a_known_token_is_its_person() {
    let case = case(&entry(&token(1), &["operator", "viewer"], "2999-01-01T00:00:00Z"));
    let person =
        case.tokens.authenticate(&bearer(&format!("bearer {}", token(1).reveal()))).expect("known");
    assert_eq!(
        (person.tenant.as_str(), person.subject.as_str(), person.roles.as_slice()),
        ("t", "ada", [Role::Operator, Role::Viewer].as_slice())
    );
    assert!(person.may_act() && person.may_watch() && case.tokens.is_current(&person));
    assert!(!Person::nobody().may_watch());
}

#[test]
fn every_other_token_is_refused_alike() {
    let (good, old) = (token(1), token(2));
    let mut text = entry(&good, &["operator"], "2999-01-01T00:00:00Z");
    text += &entry(&old, &["operator"], "2000-01-01T00:00:00Z");
    let case = case(&text);
    // The right id with another secret, and a checksum that fits.
    let mut random = [1; RANDOM_BYTES];
    random[0] = 9;
    let forged = Token::mint(&random);
    assert_eq!(forged.id(), good.id());
    for header in [
        format!("Bearer {}", old.reveal()),
        format!("Bearer {}", forged.reveal()),
        format!("Bearer {}", token(3).reveal()),
        format!("Basic {}", good.reveal()),
        format!("Bearer  {}", good.reveal()),
        good.reveal().to_owned(),
        "Bearer".to_owned(),
        format!("Bearer {}x", good.reveal()),
    ] {
        assert_eq!(case.tokens.authenticate(&bearer(&header)), Err(Unauthenticated), "{header}");
    }
    assert_eq!(case.tokens.authenticate(&HeaderMap::new()), Err(Unauthenticated));
    let mut twice = bearer(&format!("Bearer {}", good.reveal()));
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    assert_eq!(case.tokens.authenticate(&twice), Err(Unauthenticated));
}

#[test]
fn a_changed_file_counts_at_once_and_a_broken_one_changes_nothing() {
    let header = |seed| bearer(&format!("Bearer {}", token(seed).reveal()));
    let case = case(&entry(&token(1), &["operator"], "2999-01-01T00:00:00Z"));
    let person = case.tokens.authenticate(&header(1)).expect("known");

    replace(&case, "half a fi");
    assert!(case.tokens.is_current(&person));
    replace(&case, &entry(&token(1), &["viewer"], "2999-01-01T00:00:00Z"));
    assert!(!case.tokens.is_current(&person), "another role is another right");
    replace(&case, &entry(&token(2), &["viewer"], "2999-01-01T00:00:00Z"));
    assert_eq!(case.tokens.authenticate(&header(1)), Err(Unauthenticated));
    assert!(case.tokens.authenticate(&header(2)).is_ok());
    fs::remove_file(&case.path).expect("removed");
    assert_eq!(case.tokens.authenticate(&header(2)), Err(Unauthenticated));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_the_tokens_id() {
    let soon = OffsetDateTime::now_utc() + Duration::from_secs(60);
    let soon = soon.format(&time::format_description::well_known::Rfc3339).expect("formats");
    let good = entry(&token(1), &["operator"], &soon);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens.toml");
    for (text, fault) in [
        (good.replace("operator", "root"), "roles must be"),
        (good.replace(&token(1).sha256_hex(), "00"), "sha256 must have"),
        (good.replace("ada", ""), "tenant and subject"),
        (format!("{good}{good}"), "the id is there twice"),
        (good.replace("roles = [\"operator\"]", "roles = []"), "roles must be"),
        (good.replace("subject", "subjekt"), "not a tokens file"),
        (good.replace(&soon, "tomorrow"), "not a tokens file"),
    ] {
        fs::write(&path, text).expect("written");
        let error = Tokens::open(&path).expect_err(fault).to_string();
        assert!(error.contains(fault), "{error}");
    }
    fs::remove_file(&path).expect("removed");
    assert!(Tokens::open(&path).expect_err("gone").to_string().contains("harness token create"));
}
