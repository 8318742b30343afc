//! Where settings come from, which wins, and every fault at once.
use std::{net::SocketAddr, path::Path};

use clap::Parser;
use tempfile::TempDir;

use super::*;
use crate::{Endpoint, issue::DevPki};

#[derive(Debug, Parser)]
struct Sample {
    #[command(flatten)]
    transport: Args,

    /// Where it listens
    #[arg(long)]
    listen: SocketAddr,

    #[arg(long)]
    audit_endpoint: Endpoint,

    #[arg(long, value_parser = duration, default_value = "10s")]
    disconnect_grace: Duration,

    #[arg(long)]
    workspace: Vec<String>,

    #[arg(long)]
    allowed_origin: Vec<String>,

    #[arg(long)]
    supervise: bool,

    #[arg(long)]
    max_pids: Option<u32>,
}

impl Validate for Sample {
    fn transport(&self) -> &Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        let grace = self.disconnect_grace > Duration::from_secs(3600);
        grace
            .then(|| "--disconnect-grace is more than an hour; give less".to_owned())
            .into_iter()
            .collect()
    }
}

struct Setup {
    dir: TempDir,
}

impl Setup {
    fn new() -> Self {
        let setup = Self { dir: TempDir::new().unwrap() };
        let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
        pki.write_tls_dir(&setup.tls(), &pki.service(Service::AgentSvc, "0").unwrap()).unwrap();
        setup
    }

    fn tls(&self) -> PathBuf {
        self.dir.path().join("tls")
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn complete(&self) -> String {
        format!(
            "tls-dir = {:?}\ntrust-domain = 'harness.test'\nlisten = '127.0.0.1:7001'\naudit-endpoint = 'audit:7002'\n",
            self.tls()
        )
    }
}

fn load_with(file: Option<&Path>, env: &[(&str, &str)], flags: &[&str]) -> Result<Sample, Exit> {
    let mut args: Vec<OsString> = vec!["harness".into()];
    if let Some(file) = file {
        args.extend(["--config".into(), file.into()]);
    }
    args.extend(flags.iter().map(OsString::from));
    let lookup =
        |name: &str| env.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value));
    load_from(Service::AgentSvc, args, &lookup)
}

fn faults(result: Result<Sample, Exit>) -> Vec<String> {
    match result.unwrap_err() {
        Exit::Faulty(faults) => faults,
        Exit::Done(text) => panic!("not faulty: {text}"),
    }
}

#[test]
fn flags_win_over_the_environment_and_it_wins_over_the_file() {
    let setup = Setup::new();
    let file = setup.file(
        &(setup.complete()
            + "disconnect-grace = '1s'\nworkspace = ['a=/a', 'b=/b']\nmax-pids = 7\n"),
    );

    let from_file = load_with(Some(&file), &[], &[]).unwrap();
    assert_eq!(from_file.disconnect_grace, Duration::from_secs(1));
    assert_eq!(from_file.workspace, ["a=/a", "b=/b"]);
    assert_eq!(from_file.max_pids, Some(7));
    assert_eq!(from_file.transport.tls_dir, setup.tls());

    let env =
        [("HARNESS_AGENT_SVC_DISCONNECT_GRACE", "2s"), ("HARNESS_AGENT_SVC_WORKSPACE", "c=/c")];
    let from_env = load_with(Some(&file), &env, &[]).unwrap();
    assert_eq!(from_env.disconnect_grace, Duration::from_secs(2));
    assert_eq!(from_env.workspace, ["c=/c"]);

    let flags = ["--disconnect-grace", "3s", "--workspace=d=/d", "--workspace", "e=/e"];
    let from_flags = load_with(Some(&file), &env, &flags).unwrap();
    assert_eq!(from_flags.disconnect_grace, Duration::from_secs(3));
    assert_eq!(from_flags.workspace, ["d=/d", "e=/e"]);
    assert_eq!(from_flags.audit_endpoint, "audit:7002".parse().unwrap());
}

#[test]
fn the_file_can_be_named_in_the_environment_and_switches_can_stand_in_it() {
    let setup = Setup::new();
    let file = setup.file(&(setup.complete() + "supervise = true\nallowed-origin = []\n"));
    let env = [("HARNESS_AGENT_SVC_CONFIG", file.to_str().unwrap())];
    let sample = load_with(None, &env, &[]).unwrap();
    assert!(sample.supervise);
    assert!(sample.allowed_origin.is_empty());
    assert!(
        !load_with(None, &env, &["--disconnect-grace=1s"])
            .unwrap()
            .workspace
            .iter()
            .any(|it| it == "a")
    );
}

#[test]
fn check_config_tells_every_fault_at_once() {
    let setup = Setup::new();
    let file = setup.file(
        "tls-dir = '/nowhere'\ntrust-domain = '*'\nlisten = 'localhost'\ndisconect-grace = '1s'\nmax-pids = [1, 2]\n\
         supervise = 'maybe'\n\n[limits]\ncpus = 1\n",
    );
    let env = [("HARNESS_AGENT_SVC_DISCONNECT_GRACE", "soon")];
    let found = faults(load_with(
        Some(&file),
        &env,
        &["--check-config", "--log-format", "xml", "--liste", "x"],
    ));
    let file = file.display();
    let expected = [
        format!("{file}: limits must be a text, a number, true, false or a list of these"),
        format!("{file}: unknown key disconect-grace; did you mean disconnect-grace?"),
        format!("{file}: max-pids takes one value, not a list"),
        "unknown argument --liste; did you mean --listen?".to_owned(),
        "invalid value 'xml' for '--log-format <LOG_FORMAT>' [possible values: json, text]".to_owned(),
        format!(
            "{file}: invalid value '*' for '--trust-domain <NAME>': not a trust domain; use lower-case letters, digits, \
             '.', '-' and '_', and no pattern"
        ),
        format!("{file}: invalid value 'localhost' for '--listen <LISTEN>': invalid socket address syntax"),
        "HARNESS_AGENT_SVC_DISCONNECT_GRACE: invalid value 'soon' for '--disconnect-grace <DISCONNECT_GRACE>': not a \
         duration; write a whole number and a unit, such as 250ms, 10s, 5m or 12h"
            .to_owned(),
        format!("{file}: invalid value 'maybe' for '--supervise' [possible values: true, false]"),
        "--audit-endpoint is missing; give the flag, HARNESS_AGENT_SVC_AUDIT_ENDPOINT or audit-endpoint in the file"
            .to_owned(),
    ];
    let (mut found, mut expected) = (found, expected.to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn faults_of_the_whole_are_told_beside_faults_of_the_parts() {
    let setup = Setup::new();
    let file = setup.file(&(setup.complete() + "disconnect-grace = '2h'\nunknown = 1\n"));
    std::fs::remove_file(setup.tls().join("tls.key")).unwrap();
    assert_eq!(
        faults(load_with(Some(&file), &[], &["--check-config"])),
        [
            format!(
                "{}: unknown key unknown; --help lists the flags, which are the keys",
                file.display()
            ),
            format!(
                "--tls-dir {}: cannot read {}: entity not found",
                setup.tls().display(),
                setup.tls().join("tls.key").display()
            )
            .replace("entity not found", "No such file or directory (os error 2)"),
            "--disconnect-grace is more than an hour; give less".to_owned(),
        ]
    );
}

#[test]
fn the_tls_directory_is_judged_although_another_setting_is_wrong() {
    let setup = Setup::new();
    let file = setup.file(
        &setup.complete().replace("harness.test", "other.test").replace("127.0.0.1:7001", "x"),
    );
    let found = faults(load_with(Some(&file), &[], &[]));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        found[1],
        format!(
            "--tls-dir {}: tls.crt is not usable: the certificate's id is refused: the id belongs to another trust domain",
            setup.tls().display()
        )
    );
}

#[test]
fn the_certificate_of_another_service_is_a_fault() {
    let setup = Setup::new();
    let pki = DevPki::new("harness.test".parse().unwrap()).unwrap();
    pki.write_tls_dir(&setup.tls(), &pki.service(Service::Gateway, "0").unwrap()).unwrap();
    let file = setup.file(&setup.complete());
    assert_eq!(
        faults(load_with(Some(&file), &[], &[])),
        [format!(
            "--tls-dir {}: tls.crt belongs to spiffe://harness.test/svc/gateway/0, not to an instance of agent-svc; issue \
             one for this service",
            setup.tls().display()
        )]
    );
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_a_fault_with_its_place() {
    let setup = Setup::new();
    let missing = setup.dir.path().join("none.toml");
    let found = faults(load_with(Some(&missing), &[], &[]));
    assert_eq!(
        found[0],
        format!("--config {}: no such file; name an existing one", missing.display())
    );

    let file = setup.file("listen = '127.0.0.1:1'\nlisten = '127.0.0.1:2'\n");
    let found = faults(load_with(Some(&file), &[], &[]));
    assert_eq!(found[0], format!("{}:2:1: not TOML: duplicate key", file.display()));
}

#[test]
fn a_sound_configuration_passes_the_check_and_help_is_no_fault() {
    let setup = Setup::new();
    let file = setup.file(&setup.complete());
    assert_eq!(
        load_with(Some(&file), &[], &["--check-config"]).unwrap_err(),
        Exit::Done("configuration is valid\n".to_owned())
    );
    let Exit::Done(help) = load_with(None, &[], &["--help"]).unwrap_err() else {
        panic!("help is no fault")
    };
    assert!(
        help.contains("--audit-endpoint") && help.contains("HARNESS_AGENT_SVC_<FLAG>"),
        "{help}"
    );
}

#[test]
fn a_flag_without_its_value_is_one_fault() {
    let setup = Setup::new();
    let file = setup.file(&setup.complete());
    let found = faults(load_with(Some(&file), &[], &["--disconnect-grace"]));
    assert_eq!(
        found,
        ["a value is required for '--disconnect-grace <DISCONNECT_GRACE>' but none was supplied"]
    );
}

#[test]
fn durations_have_units() {
    for (text, limit) in [
        ("250ms", Duration::from_millis(250)),
        ("10s", Duration::from_secs(10)),
        ("5m", Duration::from_secs(300)),
        ("12h", Duration::from_secs(43_200)),
        ("30d", Duration::from_secs(2_592_000)),
    ] {
        assert_eq!(duration(text), Ok(limit), "{text}");
    }
    for text in [
        "",
        "10",
        "s",
        "1.5s",
        "-1s",
        "1 s",
        "10S",
        "99999999999999999999s",
        "18446744073709551615d",
    ] {
        assert_eq!(duration(text), Err(NotADuration(())), "{text}");
    }
}
