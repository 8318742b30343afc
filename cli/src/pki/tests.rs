//! What an authority issues, and what it refuses to overwrite.
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn domain() -> TrustDomain {
    "harness.local".parse().unwrap()
}

fn names(files: &[Named]) -> Vec<&str> {
    files.iter().map(|file| file.name).collect()
}

#[test]
fn an_authority_is_private_and_never_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("pki");
    Store::init(&dir, domain()).unwrap();
    let mut seen = Vec::new();
    for name in ["root", "services", "clients", "auditors"] {
        for path in [dir.join(name), dir.join(name).join("ca.crt"), dir.join(name).join("ca.key")] {
            seen.push(fs::metadata(path).unwrap().permissions().mode() & 0o7777);
        }
    }
    assert_eq!(seen, [[0o700, 0o600, 0o600]; 4].concat());
    let key = fs::read(dir.join("root/ca.key")).unwrap();
    assert!(matches!(Store::init(&dir, domain()), Err(Error::File(file::Error::Exists { .. }))));
    assert_eq!(fs::read(dir.join("root/ca.key")).unwrap(), key);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_the_way_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("pki");
    fs::write(&dir, "mine").unwrap();
    assert!(matches!(Store::init(&dir, domain()), Err(Error::File(file::Error::Exists { .. }))));
    assert_eq!(fs::read_to_string(&dir).unwrap(), "mine");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn each_subject_gets_the_files_it_needs_without_the_root_key() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("pki");
    Store::init(&dir, domain()).unwrap();
    fs::remove_file(dir.join("root/ca.key")).unwrap();
    let store = Store::open(&dir).unwrap();
    let issue = |subject: &Subject| store.issue(subject, &Hosts::default(), 30).unwrap();
    let service = |service| Subject::Service { service, instance: "1".to_owned() };
    assert_eq!(names(&issue(&service(Service::Gateway))), ["tls.crt", "tls.key", "ca.crt"]);
    assert_eq!(
        names(&issue(&service(Service::AuditSvc))),
        ["tls.crt", "tls.key", "ca.crt", "auditors-ca.crt"]
    );
    assert_eq!(
        names(&issue(&Subject::Auditor { name: "ada".to_owned() })),
        ["tls.crt", "tls.key", "ca.crt"]
    );
    assert_eq!(
        names(&issue(&Subject::Receipts { instance: "1".to_owned() })),
        ["receipt.crt", "receipt.key"]
    );
}

#[test]
fn identities_have_one_segment_per_name() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("pki");
    let store = Store::init(&dir, domain()).unwrap();
    for name in ["", "a/b", "..", "a b", "ä", "*"] {
        for subject in [
            Subject::Auditor { name: name.to_owned() },
            Subject::Receipts { instance: name.to_owned() },
            Subject::Client { tenant: name.to_owned(), name: "x".to_owned() },
        ] {
            let refused = store.issue(&subject, &Hosts::default(), 30);
            assert!(matches!(refused, Err(Error::Name(_))), "{subject:?}");
        }
    }
}

#[test]
fn a_life_is_at_most_a_year() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::init(&home.path().join("pki"), domain()).unwrap();
    let subject = Subject::Auditor { name: "ada".to_owned() };
    for days in [0, 366] {
        assert!(matches!(store.issue(&subject, &Hosts::default(), days), Err(Error::Days(_))));
    }
}
