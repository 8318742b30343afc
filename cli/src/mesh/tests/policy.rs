//! The administrator's files: judged before anything is written, used where they are, and never dropped in passing.
use super::*;

const CEILING: &str = "kind: ceiling\nid: top\n";

fn written(home: &Path, name: &str, text: &str) -> PathBuf {
    let path = home.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn above(mesh: &Mesh) -> [Option<String>; 3] {
    let table = config(mesh, Service::SandboxSvc);
    ["ceiling", "tenant-ceilings", "approver-keys"]
        .map(|key| table.get(key).map(|value| value.as_str().unwrap().to_owned()))
}

#[test]
fn what_can_not_be_used_is_told_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let good = programs(home.path(), "exit 0");
    let (bad, absent) = (
        written(home.path(), "bad.yaml", "kind: ceiling\nid: top\nfrob: 1\n"),
        home.path().join("absent"),
    );
    let policy = PolicyFiles {
        ceiling: Some(bad.clone()),
        tenant_ceiling: Some(absent.clone()),
        approver_keys: Some(absent.clone()),
    };
    let state = home.path().join("state");
    let error = crate::Error::from(Mesh::create(&state, &Options { policy, ..good }).unwrap_err());
    assert_eq!((error.exit(), state.exists()), (crate::Exit::Usage, false));
    let told = error.details();
    assert!(told[0].starts_with(&format!("ceiling {}:3:1: ", bad.display())), "{told:?}");
    let unread = format!("can not read {}: ", absent.display());
    assert!(told[1..].iter().all(|line| line.starts_with(&unread)) && told.len() == 3, "{told:?}");
}

#[test]
fn what_the_service_says_of_them_is_told_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let good = programs(home.path(), "exit 0");
    let (ceiling, keys) = (
        written(home.path(), "c.yaml", CEILING),
        written(home.path(), "k.yaml", "approvers: []\n"),
    );
    let says = r#"
case " $* " in
*" --check-config "*)
    dir=$(dirname "$3")
    [ "$(readlink "$dir/tenant-ceilings/local.yaml")" ] || exit 3
    echo "harness-sandbox-svc: --tenant-ceilings $dir/tenant-ceilings/local.yaml: it cannot be read: denied" >&2
    exit 2;;
esac"#;
    fs::write(good.programs.join("sandbox-svc"), format!("#!/bin/sh\n{says}\n")).unwrap();
    let policy = PolicyFiles {
        ceiling: None,
        tenant_ceiling: Some(ceiling.clone()),
        approver_keys: Some(keys),
    };
    let state = home.path().join("state");
    let error = crate::Error::from(Mesh::create(&state, &Options { policy, ..good }).unwrap_err());
    assert_eq!((error.exit(), state.exists()), (crate::Exit::Usage, false));
    assert_eq!(
        error.line(),
        format!(
            "--tenant-ceiling {}: it cannot be read: denied; check the permissions of the file and the directories above it",
            ceiling.display()
        )
    );
    let closed = Error::Closed { said: "x".to_owned(), uid: Some(21_003) };
    assert!(
        crate::Explain::advice(&closed).starts_with("sandbox-svc reads it as uid 21003: 'chmod")
    );
}

#[test]
fn they_are_used_where_they_are_and_kept_until_somebody_drops_them() {
    let home = tempfile::tempdir().unwrap();
    let good = programs(home.path(), "exit 0");
    let [ceiling, tenant, keys] =
        [("c.yaml", CEILING), ("t.yaml", CEILING), ("k.yaml", "approvers: []\n")]
            .map(|(name, text)| written(home.path(), name, text));
    let named = PolicyFiles {
        ceiling: Some(ceiling.clone()),
        tenant_ceiling: Some(tenant.clone()),
        approver_keys: Some(keys.clone()),
    };
    let state = home.path().join("state");
    let first = Mesh::create(&state, &Options { policy: named, ..good.clone() }).unwrap();
    let dir = first.layout().tenant_ceilings();
    let expected = [&ceiling, &dir, &keys].map(|path| Some(path.display().to_string()));
    assert_eq!(above(&first), expected);
    assert_eq!(fs::read_link(dir.join("local.yaml")).unwrap(), tenant);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    drop(first);

    let other = written(home.path(), "other.yaml", CEILING);
    let policy = PolicyFiles { tenant_ceiling: Some(other.clone()), ..PolicyFiles::default() };
    let second = Mesh::create(&state, &Options { policy, ..good.clone() }).unwrap();
    assert_eq!((above(&second), fs::read_link(dir.join("local.yaml")).unwrap()), (expected, other));
    drop(second);

    let third = Mesh::create(&state, &Options { forget_policy: true, ..good }).unwrap();
    assert_eq!((above(&third), dir.join("local.yaml").exists()), ([None, None, None], false));
}
