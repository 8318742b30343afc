//! Each service under its own user: what one holds, the others cannot open, and only sandbox-svc speaks to the engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Person, Rig, Spec, Turn, manifest, until};
use serde_json::json;
use transport::Service;

/// Uid, gid and supplementary groups of a running process.
struct Account {
    uid: String,
    gid: String,
    groups: String,
}

impl Account {
    fn of(rig: &Rig, service: Service) -> Result<Self> {
        let pid = rig.mesh.pid(service).with_context(|| format!("{service} runs"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> Result<Vec<String>> {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .context("a field of status")?;
            Ok(line.split_whitespace().map(str::to_owned).collect())
        };
        let first =
            |name: &str| -> Result<String> { field(name)?.first().cloned().context("an id") };
        Ok(Self { uid: first("Uid:")?, gid: first("Gid:")?, groups: field("Groups:")?.join(",") })
    }

    /// Whether a program with this account and no capability succeeds.
    fn can(&self, program: &[&str]) -> Result<bool> {
        let Self { uid, gid, groups } = self;
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            uid,
            "--regid",
            gid,
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
        ]);
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.args(["--groups", groups]),
        };
        Ok(command
            .args(program)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .output()?
            .status
            .success())
    }
}

async fn rig() -> Result<Rig> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this test shows what `up` does as root; run it as root"
    );
    let rules = manifest("apart").rule("process.exec", json!("allow"));
    let turns =
        vec![Turn::Call("process.exec", json!({"argv": ["sleep", "8"]})), Turn::Say("slept")];
    Rig::start(Spec::new(rules, turns)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_has_its_own_user_and_only_the_holder_opens_what_is_held() -> Result<()> {
    let rig = rig().await?;
    let layout = rig.mesh.layout();
    // A provider key as `up` stores one.
    let key = layout.service(Service::ModelSvc).join("keys/suite.key");
    std::fs::write(&key, "a-key-of-the-suite")?;
    let model = Account::of(&rig, Service::ModelSvc)?;
    std::os::unix::fs::chown(&key, Some(model.uid.parse()?), Some(model.gid.parse()?))?;
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;

    let socket = PathBuf::from("/var/run/docker.sock");
    let held: [(&str, Service, &Path); 3] = [
        ("the engine's socket", Service::SandboxSvc, &socket),
        ("the provider key", Service::ModelSvc, &key),
        ("the signing key", Service::Gateway, &layout.signing().join("receipt.key")),
    ];
    let mut uids = Vec::new();
    for service in Service::ALL {
        let account = Account::of(&rig, service)?;
        for (what, holder, path) in held {
            let opened = match what {
                "the engine's socket" => account.can(&["docker", "version"])?,
                _ => account.can(&["cat", &path.display().to_string()])?,
            };
            assert_eq!(opened, service == holder, "{service} opens {what}");
        }
        for other in Service::ALL.into_iter().filter(|other| *other != service) {
            let state = layout.data(other).display().to_string();
            assert!(!account.can(&["ls", &state])?, "{service} lists the state of {other}");
        }
        uids.push(account.uid);
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), Service::ALL.len(), "five users: {uids:?}");
    assert!(!uids.contains(&"0".to_owned()), "none of them root");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_sandbox_svc_is_a_peer_of_the_engines_socket_while_a_container_is_attached()
-> Result<()> {
    let rig = rig().await?;
    let mut person = Person::arrive(&rig).await?;
    let session = person.open("apart", None).await?;
    person.prompt(session)?;
    person.next_of("sandbox.started").await?;
    let services: Vec<(Service, u32)> = Service::ALL
        .into_iter()
        .filter_map(|service| Some((service, rig.mesh.pid(service)?)))
        .collect();
    let peers = until("a peer of the engine's socket", || async {
        let peers = peers_of("docker.sock").ok()?;
        let ours: Vec<Service> = services
            .iter()
            .filter(|(_, pid)| peers.contains(pid))
            .map(|(service, _)| *service)
            .collect();
        (!ours.is_empty()).then_some(ours)
    })
    .await;
    assert_eq!(peers, [Service::SandboxSvc]);
    Ok(())
}

/// The processes at the other end of every connection to the socket named `name`, from `ss`.
fn peers_of(name: &str) -> Result<Vec<u32>> {
    let output = Command::new("ss")
        .args(["--unix", "--processes", "--no-header"])
        .output()
        .context("ss runs")?;
    ensure!(output.status.success(), "ss: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    // Columns: netid state recv-q send-q local-address local-inode peer-address peer-inode users.
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let far: Vec<&str> = rows
        .iter()
        .filter(|row| row.len() > 7 && row[4].ends_with(name) && row[1] == "ESTAB")
        .map(|row| row[7])
        .collect();
    let near = rows.iter().filter(|row| row.len() > 8 && far.contains(&row[5]));
    Ok(near
        .flat_map(|row| row[8..].iter())
        .flat_map(|users| users.split("pid=").skip(1))
        .filter_map(digits)
        .collect())
}

fn digits(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
