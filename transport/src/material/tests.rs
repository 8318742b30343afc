//! Directories that are loaded, reloaded and refused.
use std::fs;

use tempfile::TempDir;

use super::*;
use crate::issue::{DevPki, Issued, LeafSpec};

struct Setup {
    dir: TempDir,
    pki: DevPki,
}

impl Setup {
    fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            pki: DevPki::new("harness.test".parse().unwrap()).unwrap(),
        }
    }

    fn write(&self, issued: &Issued) {
        self.pki.write_tls_dir(self.dir.path(), issued).unwrap();
    }

    fn issue(&self, instance: &str) -> Issued {
        self.pki.service(Service::ModelSvc, instance).unwrap()
    }

    fn spec(&self) -> LeafSpec {
        self.pki.leaf("svc/model-svc/0")
    }

    fn open(&self) -> Result<Arc<Material>, Error> {
        Material::open(self.dir.path(), self.pki.domain.clone())
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }
}

fn instance(material: &Material) -> String {
    match material.identity() {
        Identity::Service { instance, .. } => instance,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_leaf_takes_over_and_the_same_files_change_nothing() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let material = setup.open().unwrap();
    assert_eq!(material.reload().unwrap(), Reload::Unchanged);
    setup.write(&setup.issue("1"));
    assert_eq!(material.reload().unwrap(), Reload::Changed);
    assert_eq!(instance(&material), "1");
    assert_eq!(material.reload().unwrap(), Reload::Unchanged);
}

#[test]
fn a_key_that_does_not_match_keeps_the_last_good() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let material = setup.open().unwrap();
    let next = setup.issue("1");
    setup.put("tls.crt", &next.cert_pem);
    assert!(matches!(material.reload().unwrap_err(), Error::Key(_)));
    assert_eq!(instance(&material), "0");
    setup.put("tls.key", &next.key_pem);
    assert_eq!(material.reload().unwrap(), Reload::Changed);
    assert_eq!(instance(&material), "1");
}

#[test]
fn what_does_not_fit_together_is_refused_each_with_its_reason() {
    let setup = Setup::new();
    let other = DevPki::new("harness.test".parse().unwrap()).unwrap();
    let good = setup.issue("0");
    let now = OffsetDateTime::now_utc();
    let issue = |spec: &LeafSpec| setup.pki.services.issue(spec).unwrap();
    let expired = LeafSpec { not_after: now - time::Duration::minutes(1), ..setup.spec() };
    let future = LeafSpec { not_before: now + time::Duration::minutes(1), ..setup.spec() };
    let nobody = LeafSpec { uri_sans: Vec::new(), ..setup.spec() };
    let issuer = LeafSpec { is_ca: true, ..setup.spec() };
    let signer = setup.pki.receipts("0").unwrap();
    type Check = fn(&Error) -> bool;
    let cases: [(&Issued, Check); 6] = [
        (&issue(&expired), |it| matches!(it, Error::Validity { .. })),
        (&issue(&future), |it| matches!(it, Error::Validity { .. })),
        (&issue(&nobody), |it| matches!(it, Error::Leaf(crate::leaf::Unidentified::NoUri))),
        (&issue(&issuer), |it| matches!(it, Error::Leaf(crate::leaf::Unidentified::Issuer))),
        (&signer, |it| matches!(it, Error::Leaf(crate::leaf::Unidentified::Id(_)))),
        (&other.service(Service::ModelSvc, "0").unwrap(), |it| matches!(it, Error::Untrusted(_))),
    ];
    for (issued, expected) in cases {
        setup.write(issued);
        let error = setup.open().unwrap_err();
        assert!(expected(&error), "{error:?}");
    }
    setup.write(&good);
    for (name, text) in [("ca.crt", ""), ("tls.crt", "nonsense"), ("auditors-ca.crt", "")] {
        setup.write(&good);
        setup.put(name, text);
        assert!(
            matches!(setup.open().unwrap_err(), Error::NoCertificate { file } if file == name),
            "{name}"
        );
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let key = setup.dir.path().join("tls.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(setup.open().unwrap_err(), Error::Exposed { .. }));
}

#[test]
fn a_reload_never_makes_the_process_another_service() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let material = setup.open().unwrap();
    setup.write(&setup.pki.service(Service::Gateway, "0").unwrap());
    assert!(matches!(material.reload().unwrap_err(), Error::OtherIdentity { .. }));
    assert_eq!(instance(&material), "0");
}

#[test]
fn a_ban_is_in_force_although_the_certificate_is_half_written() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let material = setup.open().unwrap();
    setup.put("tls.crt", &setup.issue("1").cert_pem);
    setup.put("denylist", "spiffe://harness.test/svc/agent-svc/3\n");
    assert!(matches!(material.reload().unwrap_err(), Error::Key(_)));
    assert!(material.denies("spiffe://harness.test/svc/agent-svc/3", "00"));
}

#[test]
fn bans_are_lifted_by_an_empty_list_and_not_by_a_broken_or_missing_one() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let uri = "spiffe://harness.test/svc/agent-svc/3";
    setup.put("denylist", uri);
    let material = setup.open().unwrap();
    assert!(material.denies(uri, "00"));
    setup.put("denylist", "agent-svc");
    assert!(matches!(material.reload().unwrap_err(), Error::Denylist(_)));
    assert!(material.denies(uri, "00"));
    fs::remove_file(setup.dir.path().join("denylist")).unwrap();
    assert!(matches!(material.reload().unwrap_err(), Error::DenylistGone));
    assert!(material.denies(uri, "00"));
    setup.put("denylist", "");
    assert_eq!(material.reload().unwrap(), Reload::Changed);
    assert!(!material.denies(uri, "00"));
}

#[tokio::test]
async fn whoever_waits_for_a_ban_learns_of_it() {
    let setup = Setup::new();
    setup.write(&setup.issue("0"));
    let material = setup.open().unwrap();
    let peer = crate::leaf::Leaf::read(
        &rustls_pki_types::CertificateDer::from(pem_der(&setup.issue("7").cert_pem)),
        &setup.pki.domain,
    )
    .unwrap()
    .peer;
    let waiting = material.until_denied(&peer);
    setup.put("denylist", &peer.serial);
    material.reload().unwrap();
    tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap();
}

fn pem_der(pem: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject;
    rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn nothing_shows_a_key() {
    let setup = Setup::new();
    let issued = setup.issue("0");
    setup.write(&issued);
    let shown = format!("{:?}{:?}", setup.open().unwrap(), issued);
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
