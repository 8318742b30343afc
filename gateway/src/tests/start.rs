//! What stops the start, and what is said about it.
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use transport::issue::{DevPki, Issued, LeafSpec};
use transport::{Chain, Service, Validate as _};

use super::mesh::{MANIFEST, config, write_signing, write_tokens};
use crate::sign::{self, Sign};

fn pki(domain: &str) -> DevPki {
    DevPki::new(domain.parse().expect("a name")).expect("issuers")
}

fn receipts(pki: &DevPki) -> Issued {
    pki.receipts("0").expect("issued")
}

/// What is said when the gateway of example.test signs with this.
fn refused(dir: &Path, issued: &Issued) -> String {
    write_signing(dir, issued);
    let here = pki("example.test");
    let material = here.context(Service::Gateway).expect("a context").material;
    Chain(&Sign::open(dir, material).expect_err("refused")).to_string()
}

#[test]
fn a_key_that_others_may_read_signs_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    write_signing(dir.path(), &receipts(&pki("example.test")));
    for mode in [0o640, 0o604, 0o660] {
        let exposed = fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.path().join("receipt.key"), exposed).expect("set");
        let error = sign::read(dir.path()).expect_err("exposed").to_string();
        assert!(error.contains("receipt.key may be read by others; give it mode 0600"), "{error}");
    }
}

#[test]
fn only_a_receipts_certificate_of_this_installation_signs() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = pki("example.test");
    // Of the right form, but from an issuer that no service of this mesh trusts.
    let stranger = refused(dir.path(), &receipts(&pki("example.test")));
    assert!(stranger.contains("no service would accept"), "{stranger}");
    let elsewhere = refused(dir.path(), &receipts(&pki("other.test")));
    assert!(elsewhere.contains("no service would accept"), "{elsewhere}");
    // One that can open TLS connections.
    let tls = refused(dir.path(), &here.service(Service::Gateway, "0").expect("issued"));
    assert!(tls.contains("cannot sign"), "{tls}");
    let mut both = LeafSpec::receipts(&here.domain, "0");
    both.ekus.push(transport::issue::Eku::ServerAuth);
    let both = refused(dir.path(), &here.services.issue(&both).expect("issued"));
    assert!(both.contains("not for signing receipts alone"), "{both}");
    let mut other = LeafSpec::receipts(&here.domain, "0");
    other.uri_sans = vec!["spiffe://example.test/receipts/agent-svc/0".to_owned()];
    let other = refused(dir.path(), &here.services.issue(&other).expect("issued"));
    assert!(other.contains("not a receipt signer's"), "{other}");
    let mixed = Issued { cert_pem: receipts(&here).cert_pem, key_pem: receipts(&here).key_pem };
    let mixed = refused(dir.path(), &mixed);
    assert!(mixed.contains("does not belong to the certificate"), "{mixed}");
}

#[test]
fn every_fault_is_told_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = ([127, 0, 0, 1], 1).into();
    let faults = config(dir.path(), nowhere, nowhere).faults();
    let named = |flag: &str| faults.iter().filter(|fault| fault.starts_with(flag)).count();
    assert_eq!(
        (named("--signing-dir:"), named("--manifest-dir:"), named("--tokens-file:")),
        (1, 1, 1),
        "{faults:?}"
    );

    write_signing(&dir.path().join("signing"), &receipts(&pki("example.test")));
    write_tokens(dir.path(), "");
    fs::create_dir(dir.path().join("manifests")).expect("a directory");
    fs::write(dir.path().join("manifests/fix-tests.yaml"), MANIFEST.replace("goal", "goaal"))
        .expect("written");
    let faults = config(dir.path(), nowhere, nowhere).faults();
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert!(fault.contains("fix-tests.yaml:3:1"), "{fault}");
    fs::write(dir.path().join("manifests/fix-tests.yaml"), MANIFEST).expect("written");
    assert_eq!(config(dir.path(), nowhere, nowhere).faults(), Vec::<String>::new());
}
