//! The administrator's files as they change under a service that runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use manifest::{Action, Effect, Layer, Manifest};

use super::{Policies, Unusable};
use crate::config::Config;

const MANIFEST: &str = "id: demo\ntitle: Demo\ngoal: try\nacceptance: [it works]\nallowed_paths: ['**']\n\
     permissions: {fs.read: allow, fs.write: allow, process.exec: allow, patch.import: allow}\n\
     execution: {backend: none}\n";

struct House {
    dir: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tenants")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        // A new file each time, so that a change within one tick of the clock is seen.
        let part = self.path(".part");
        fs::write(&part, text).unwrap();
        fs::rename(part, self.path(name)).unwrap();
    }

    fn ceiling(&self, name: &str, rules: &str) {
        self.write(name, &format!("kind: ceiling\nid: top\n{rules}\n"));
    }

    fn open(&self, flags: &[(&str, &str)]) -> Result<Policies, Vec<String>> {
        Policies::open(&self.config(flags))
    }

    fn config(&self, flags: &[(&str, &str)]) -> Config {
        let path = |name: &str| self.path(name).display().to_string();
        let (state, workspace) = (path("state"), format!("demo={}", path("work")));
        let fixed = [
            ("tls-dir", "/nowhere"),
            ("trust-domain", "test.harness"),
            ("listen", "127.0.0.1:0"),
            ("state-dir", &state),
            ("audit-endpoint", "127.0.0.1:1"),
            ("workspace", &workspace),
            ("staging", "dirs"),
            ("max-memory", "1MiB"),
            ("max-pids", "1"),
            ("max-cpus", "1"),
            ("max-time", "1s"),
            ("max-output", "1MiB"),
            ("max-workspace-bytes", "1MiB"),
            ("max-workspace-inodes", "1"),
            ("max-file-bytes", "1MiB"),
            ("max-tmp-bytes", "1MiB"),
        ];
        let fixed = fixed.iter().map(|(name, value)| format!("--{name}={value}"));
        let named = flags.iter().map(|(name, file)| format!("--{name}={}", path(file)));
        let args = ["sandbox-svc".to_owned()].into_iter().chain(fixed).chain(named);
        let args = args.map(OsString::from);
        <Config as clap::Parser>::try_parse_from(args).unwrap()
    }
}

fn manifest() -> Manifest {
    Manifest::parse(MANIFEST.as_bytes(), "demo.yaml").unwrap()
}

/// What `true` is under the files now, and by whom.
fn decided(policies: &Policies, tenant: &str) -> Result<(Effect, Layer), Unusable> {
    let decision =
        policies.rulebook(&manifest(), tenant)?.decide(Action::ProcessExec, Some("true"));
    Ok((decision.effect, decision.layer))
}

const ALLOWED: Result<(Effect, Layer), Unusable> = Ok((Effect::Allow, Layer::Manifest));
const ASK: &str = "permissions: {process.exec: ask}";
const DENY: &str = "permissions: {process.exec: deny}";

#[test]
fn every_fault_of_every_file_is_told_at_once() {
    let house = House::new();
    house.ceiling("ceiling.yaml", "permissions: {process.exce: deny}\nmore: 1");
    house.ceiling("tenants/a.yaml", "permissions: {process.exec: dney}");
    house.write("tenants/b.yml", "kind: ceiling\nid: top\n");
    house.write("tenants/.hidden", "not looked at");
    house.write("keys.yaml", "approvers: [{subject: ada, key: x, roles: [admin]}]");
    let flags = [
        ("ceiling", "ceiling.yaml"),
        ("tenant-ceilings", "tenants"),
        ("approver-keys", "keys.yaml"),
    ];
    let faults = house.open(&flags).unwrap_err();
    let told = |words: &[&str]| {
        let has = |fault: &&String| words.iter().all(|word| fault.contains(word));
        assert!(faults.iter().any(|fault| has(&fault)), "{words:?} in {faults:#?}");
    };
    told(&["--ceiling", "ceiling.yaml:3:", "process.exce"]);
    told(&["--ceiling", "ceiling.yaml:4:", "more"]);
    told(&["--tenant-ceilings", "a.yaml:3:", "allow, ask, deny"]);
    told(&["--tenant-ceilings", "b.yml", "rename it"]);
    told(&["--approver-keys", "keys.yaml", "approvers[0]", "base64"]);
    assert_eq!(faults.len(), 5, "{faults:#?}");
    // As `--check-config` tells them, beside whatever else is wrong.
    let checked = transport::Validate::faults(&house.config(&flags));
    assert!(checked.ends_with(&faults) && checked[0].starts_with("--workspace"), "{checked:#?}");

    for flag in ["ceiling", "tenant-ceilings", "approver-keys"] {
        let faults = house.open(&[(flag, "absent")]).unwrap_err();
        assert!(faults[0].contains("cannot be read"), "{faults:?}");
    }
}

#[test]
fn a_changed_ceiling_is_in_force_and_a_broken_or_vanished_one_is_not() {
    let house = House::new();
    house.ceiling("ceiling.yaml", ASK);
    let policies = house.open(&[("ceiling", "ceiling.yaml")]).unwrap();
    let organisation = |effect| Ok((effect, Layer::Organisation));
    assert_eq!(decided(&policies, "local"), organisation(Effect::Ask));
    house.ceiling("ceiling.yaml", DENY);
    assert_eq!(decided(&policies, "local"), organisation(Effect::Deny));
    house.ceiling("ceiling.yaml", "permissions: {process.exec: perhaps}");
    assert_eq!(decided(&policies, "local"), organisation(Effect::Deny));
    fs::remove_file(house.path("ceiling.yaml")).unwrap();
    assert_eq!(decided(&policies, "local"), organisation(Effect::Deny));
    house.ceiling("ceiling.yaml", "");
    assert_eq!(decided(&policies, "local"), ALLOWED);
}

#[test]
fn a_tenants_ceiling_may_appear_and_never_vanishes() {
    let house = House::new();
    house.ceiling("tenants/first.yaml", ASK);
    let policies = house.open(&[("tenant-ceilings", "tenants")]).unwrap();
    let tenant = |effect| Ok((effect, Layer::Tenant));
    assert_eq!(decided(&policies, "first"), tenant(Effect::Ask));
    assert_eq!(decided(&policies, "second"), ALLOWED);

    // One that cannot be used on its first day stops everything for that tenant, and nobody else.
    house.write("tenants/second.yaml", "kind: ceiling\n");
    assert!(decided(&policies, "second").is_err());
    assert_eq!(decided(&policies, "first"), tenant(Effect::Ask));
    house.ceiling("tenants/second.yaml", DENY);
    assert_eq!(decided(&policies, "second"), tenant(Effect::Deny));
    house.write("tenants/second.yaml", "kind: ceiling\n");
    assert_eq!(decided(&policies, "second"), tenant(Effect::Deny));

    fs::remove_dir_all(house.path("tenants")).unwrap();
    assert_eq!(decided(&policies, "first"), tenant(Effect::Ask));
    assert_eq!(decided(&policies, "second"), tenant(Effect::Deny));
    assert!(decided(&policies, "third").is_err(), "nobody can tell whether it has a ceiling");
}

#[test]
fn a_tenant_whose_name_leads_elsewhere_has_no_rules_at_all() {
    let house = House::new();
    house.ceiling("open.yaml", "");
    let policies = house.open(&[("tenant-ceilings", "tenants")]).unwrap();
    for tenant in ["../open", "", ".", "a/b", "a b", "a\0"] {
        assert!(decided(&policies, tenant).is_err(), "{tenant:?}");
    }
    assert_eq!(decided(&Policies::default(), "../open"), ALLOWED, "without a directory");
}

#[test]
fn a_broken_list_of_approvers_leaves_the_last_good_one_in_force() {
    const ADA: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let house = House::new();
    let list = |subject: &str| {
        format!("approvers: [{{subject: {subject}, key: '{ADA}', roles: [admin]}}]")
    };
    house.write("keys.yaml", &list("ada"));
    let policies = house.open(&[("approver-keys", "keys.yaml")]).unwrap();
    let key = receipt::PublicKey::parse(ADA).unwrap().id();
    let knows = |subject| policies.approvers().find(subject, key).is_some();
    assert!(knows("ada") && !knows("bob"));
    house.write("keys.yaml", "approvers: {}");
    assert!(knows("ada"));
    house.write("keys.yaml", &list("bob"));
    assert!(knows("bob") && !knows("ada"));
}

#[test]
fn ceilings_are_named_by_their_digests() {
    let house = House::new();
    house.ceiling("ceiling.yaml", ASK);
    house.ceiling("tenants/local.yaml", DENY);
    let flags = [("ceiling", "ceiling.yaml"), ("tenant-ceilings", "tenants")];
    let policies = house.open(&flags).unwrap();
    let digest = |name: &str| event::Digest::of(&fs::read(Path::new(&house.path(name))).unwrap());
    assert_eq!(
        policies.rulebook(&manifest(), "local").unwrap().policies(),
        [
            (Layer::Organisation, digest("ceiling.yaml")),
            (Layer::Tenant, digest("tenants/local.yaml")),
        ]
    );
}
