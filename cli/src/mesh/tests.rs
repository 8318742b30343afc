//! What a mesh writes, refuses and takes up again, without starting a process.
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use toml::Table;

use super::*;

mod policy;

/// A service that is asked about its settings is content.
const CHECK: &str = r#"case " $* " in *" --check-config "*) exit 0;; esac"#;

/// Programs that do what `script` says, and a script for a model.
fn programs(home: &Path, script: &str) -> Options {
    fs::set_permissions(home, fs::Permissions::from_mode(0o711)).unwrap();
    let dir = home.join("programs");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    for name in programs::names() {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{CHECK}\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let turns = home.join("turns.yaml");
    fs::write(&turns, "script: []\n").unwrap();
    let work = home.join("work");
    fs::create_dir(&work).unwrap();
    Options {
        workspaces: vec![("demo".to_owned(), work)],
        scripts: vec![("scripted".to_owned(), turns)],
        isolation: Some(Isolation::OneUid),
        engine: Some(home.to_owned()),
        ..Options::new(dir)
    }
}

fn config(mesh: &Mesh, service: Service) -> Table {
    toml::from_str(&fs::read_to_string(mesh.layout().config(service)).unwrap()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_second_start_takes_up_everything_that_the_first_made() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let options = programs(home.path(), "exit 0");
    let first = Mesh::create(&state, &options).unwrap();
    let before = (
        first.ready().unwrap(),
        config(&first, Service::SandboxSvc),
        fs::read(first.layout().pki().join("services/ca.crt")).unwrap(),
    );
    drop(first);

    let bare = Options { isolation: None, engine: None, ..Options::new(&options.programs) };
    let second = Mesh::create(&state, &bare).unwrap();
    let after = (
        second.ready().unwrap(),
        config(&second, Service::SandboxSvc),
        fs::read(second.layout().pki().join("services/ca.crt")).unwrap(),
    );
    assert_eq!(before.0.token.reveal(), after.0.token.reveal());
    assert_eq!((before.0.gateway, before.1, before.2), (after.0.gateway, after.1, after.2));
    assert_eq!(
        fs::read_to_string(second.layout().tokens()).unwrap().matches("[[token]]").count(),
        1
    );
}

#[test]
fn what_is_private_is_private() {
    let home = tempfile::tempdir().unwrap();
    let mesh = Mesh::create(&home.path().join("state"), &programs(home.path(), "exit 0")).unwrap();
    let layout = mesh.layout();
    let dirs = [
        layout.pki(),
        layout.client(),
        layout.logs(),
        layout.signing(),
        layout.data(Service::AuditSvc),
    ];
    assert_eq!(dirs.map(|dir| mode(&dir)), [0o700; 5]);
    let files = [
        layout.token(),
        layout.tokens(),
        layout.signing().join("receipt.key"),
        layout.tls(Service::ModelSvc).join("tls.key"),
        layout.auditor().join("tls.key"),
    ];
    assert_eq!(files.map(|file| mode(&file)), [0o600; 5]);
    assert!(!format!("{:?}", mesh.ready().unwrap()).contains("hns_"));
}

#[test]
fn with_own_uids_each_service_owns_its_keys_and_nothing_that_is_written_for_it() {
    if Isolation::available() != Isolation::OwnUids {
        eprintln!("skipped: this is not root");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let options = Options { isolation: None, ..programs(home.path(), "exit 0") };
    let mesh = Mesh::create(&home.path().join("state"), &options).unwrap();
    let layout = mesh.layout();
    let seen = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    for (service, uid) in Service::ALL.into_iter().zip([21_001, 21_002, 21_003, 21_004, 21_005]) {
        assert_eq!(seen(&layout.service(service)), (0, uid, 0o750));
        assert_eq!(seen(&layout.config(service)), (0, uid, 0o640));
        assert_eq!(seen(&layout.tls(service).join("tls.key")), (uid, uid, 0o600));
        assert_eq!(seen(&layout.data(service)), (uid, uid, 0o700));
    }
    assert_eq!(seen(&layout.signing().join("receipt.key")), (21_001, 21_001, 0o600));
    assert_eq!(seen(&layout.models()), (21_004, 21_004, 0o600));
    assert_eq!(seen(&layout.pki()), (0, 0, 0o700));
    assert_eq!(seen(layout.root()), (0, 0, 0o711));
}

#[test]
fn wrong_input_is_refused_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let good = programs(home.path(), "exit 0");
    let bad_manifest = home.path().join("task.yaml");
    fs::write(&bad_manifest, "id: [\n").unwrap();
    let absent = home.path().join("absent");
    let wrong = [
        Options { programs: absent.clone(), ..good.clone() },
        Options { manifests: vec![bad_manifest], ..good.clone() },
        Options { manifests: vec![absent.clone()], ..good.clone() },
        Options { scripts: vec![("Bad Name".to_owned(), absent.clone())], ..good.clone() },
        Options { scripts: Vec::new(), ..good.clone() },
        Options { workspaces: Vec::new(), ..good.clone() },
        Options { models: Some(absent.clone()), ..good.clone() },
        Options { engine: Some(absent.clone()), ..good.clone() },
        Options { workspaces: vec![("demo".to_owned(), absent.clone())], ..good.clone() },
        Options {
            workspaces: vec![("a".to_owned(), "/".into()), ("a".to_owned(), "/".into())],
            ..good.clone()
        },
    ];
    let state = home.path().join("state");
    for options in wrong {
        assert!(Mesh::create(&state, &options).is_err(), "{options:?}");
        assert!(!state.exists());
    }
}

#[test]
fn every_fault_is_told_at_once_in_the_names_that_were_given() {
    let home = tempfile::tempdir().unwrap();
    let refuses = r#"
case " $* " in
*" --check-config "*)
    for last; do :; done
    echo "harness-model-svc: model fast: no script: script ${last%models.toml}scripts/0: unclosed bracket at line 2, column 5" >&2
    exit 2;;
esac"#;
    let good = programs(home.path(), "exit 0");
    fs::write(good.programs.join("model-svc"), format!("#!/bin/sh\n{refuses}\n")).unwrap();
    let (manifest, turns) = (home.path().join("task.yaml"), home.path().join("turns.yaml"));
    fs::write(&manifest, "id: task\nfrob: 1\n").unwrap();
    let absent = home.path().join("absent");
    let options = Options {
        scripts: vec![("fast".to_owned(), turns.clone())],
        manifests: vec![manifest.clone(), absent.clone()],
        workspaces: vec![("demo".to_owned(), absent.clone())],
        ..good
    };
    let state = home.path().join("state");
    let error = crate::Error::from(Mesh::create(&state, &options).unwrap_err());
    assert_eq!(error.exit(), crate::Exit::Usage);
    let told = error.details();
    let (task, absent, turns) = (manifest.display(), absent.display(), turns.display());
    assert!(told[0].starts_with(&format!("can not use workspace {absent}: ")), "{told:?}");
    assert!(told[1].starts_with(&format!("manifest {task}:1:1: ")), "{told:?}");
    assert!(told[told.len() - 2].starts_with(&format!("can not read {absent}: ")), "{told:?}");
    assert_eq!(
        told[told.len() - 1],
        format!("model fast: no script: script {turns}: unclosed bracket at line 2, column 5")
    );
    assert!(!state.exists());
}

#[test]
fn a_directory_of_something_else_or_in_use_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let options = programs(home.path(), "exit 0");
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("notes"), "of somebody").unwrap();
    assert!(matches!(Mesh::create(&other, &options), Err(Error::ForeignDirectory(_))));
    let around = Mesh::create(home.path(), &options).unwrap_err();
    assert!(matches!(around, Error::Argument(Argument::Together { .. })), "{around}");
    let state = home.path().join("state");
    let held = Mesh::create(&state, &options).unwrap();
    assert!(matches!(Mesh::create(&state, &options), Err(Error::InUse(_))));
    assert_eq!(situation(&state).unwrap(), Situation::Running);
    drop(held);
    assert_eq!(situation(&state).unwrap(), Situation::Stopped);
}

#[test]
fn what_held_runs_go_on_with_is_not_dropped_in_silence() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let options = programs(home.path(), "exit 0");
    let first = Mesh::create(&state, &options).unwrap();
    let copy = first.layout().environments().join("a-run");
    drop(first);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let changed = Options {
        workspaces: vec![("other".to_owned(), other)],
        scripts: vec![("fast".to_owned(), home.path().join("turns.yaml"))],
        ..options
    };
    fs::create_dir_all(&copy).unwrap();
    let told = crate::Error::from(Mesh::create(&state, &changed).unwrap_err()).details();
    assert_eq!(
        told,
        [
            "model 'scripted' is not named any more, and 1 held runs may need it",
            "workspace 'demo' is not named any more, and 1 held runs may need it",
        ]
    );
    fs::remove_dir(&copy).unwrap();
    Mesh::create(&state, &changed).unwrap();
}

#[tokio::test]
async fn a_service_that_ends_is_named_with_its_words_and_the_others_are_ended() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"case $0 in */audit-svc) echo "harness-audit-svc: no room; make some" >&2; exit 2;; *) exec sleep 600;; esac"#;
    let mut mesh =
        Mesh::create(&home.path().join("state"), &programs(home.path(), script)).unwrap();
    let error = mesh.start().await.unwrap_err();
    let said = " (harness-audit-svc: no room; make some)";
    assert!(
        matches!(&error, Error::Died { service: "audit-svc", said: s, .. } if s == said),
        "{error}"
    );
    assert!(Service::ALL.iter().all(|service| mesh.pid(*service).is_none()));
}

#[tokio::test]
async fn killed_services_can_be_started_again() {
    let home = tempfile::tempdir().unwrap();
    let mut mesh =
        Mesh::create(&home.path().join("state"), &programs(home.path(), "exec sleep 600")).unwrap();
    for service in Service::ALL {
        mesh.spawn(service).await.unwrap();
    }
    let before = mesh.pid(Service::AgentSvc).unwrap();
    let status = mesh.kill9(Service::AgentSvc).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    assert!(matches!(
        mesh.kill9(Service::AgentSvc).await,
        Err(Error::NotRunning(Service::AgentSvc))
    ));
    mesh.spawn(Service::AgentSvc).await.unwrap();
    assert_ne!(mesh.pid(Service::AgentSvc), Some(before));
    mesh.kill9_all().await.unwrap();
    assert!(Service::ALL.iter().all(|service| mesh.pid(*service).is_none()));
}

#[tokio::test]
async fn what_an_earlier_mesh_left_running_is_ended_and_strangers_are_not() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("state");
    let options = programs(home.path(), "kill -STOP $$");
    let mesh = Mesh::create(&state, &options).unwrap();
    let config = mesh.layout().config(Service::Gateway);
    let pids = mesh.layout().pids();
    drop(mesh);
    // Started by nobody who ends it.
    let mut left = std::process::Command::new(options.programs.join("gateway"))
        .arg("--config")
        .arg(config)
        .spawn()
        .unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(pids, format!("{}\n{}\n", left.id(), stranger.id())).unwrap();
    let waiting = std::thread::spawn(move || left.wait().unwrap());
    let _mesh = Mesh::create(&state, &options).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&waiting.join().unwrap()), Some(9));
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
