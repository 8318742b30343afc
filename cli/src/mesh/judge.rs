//! Has model-svc itself judge the models that were named, and sandbox-svc the administrator's files, over throw-away copies and before a state directory is
//! touched. It starts no service, and it decides nothing that they would decide otherwise.
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use transport::Service;

use super::{
    Error, Isolation, Layout, PolicyFiles, account,
    models::{self, Models, Staged},
    ports::Ports,
    provision,
    settings::{self, Facts},
};
use crate::{
    file::{self, Access},
    pki::{Store, Subject},
};

const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Every fault that model-svc finds, in the names that the operator gave.
pub(crate) fn models(program: &Path, sources: &[Models]) -> Result<Vec<Error>, Error> {
    let home = home()?;
    let layout = Layout::new(home.path());
    identity(&layout, Service::ModelSvc, Access::PRIVATE)?;
    let mut faults = Vec::new();
    // One by one: the form of one file does not hide what is wrong with the other.
    for source in sources {
        let said = ask(program, &layout, source)?;
        let dir = layout.service(Service::ModelSvc);
        faults.extend(said.lines().map(|line| Error::Judged(source.in_given_names(&dir, line))));
    }
    Ok(faults)
}

/// Every fault that sandbox-svc finds in the administrator's files, read as the uid that it will have.
pub(crate) fn policy(
    program: &Path,
    files: &PolicyFiles,
    isolation: Isolation,
    engine: &Path,
) -> Result<Vec<Error>, Error> {
    let service = Service::SandboxSvc;
    let home = home()?;
    let layout = Layout::new(home.path());
    identity(&layout, service, isolation.own_file(service))?;
    // It must be passed by another uid, too.
    file::directory(home.path(), Access { mode: 0o711, owner: None })?;
    file::directory(&layout.service(service), isolation.shown_dir(service))?;
    file::directory(&layout.tls(service), isolation.shown_dir(service))?;
    files.link(&layout, isolation)?;
    let work = layout.root().join("work");
    file::directory(&work, Access { mode: 0o755, owner: None })?;
    let workspaces = BTreeMap::from([("check".to_owned(), work)]);
    let facts = Facts {
        layout: &layout,
        ports: Ports::unused(),
        trust_domain: super::prepare::TRUST_DOMAIN,
        isolation,
        engine,
        workspaces: &workspaces,
        dependencies: &BTreeMap::new(),
        default_manifest: "",
        policy: files,
    };
    let config = settings::table(&facts, service, &[]).to_string();
    file::write(&layout.config(service), config.as_bytes(), isolation.shown_file(service))?;
    let mut command = account::command(isolation, service, program, engine)?.into_std();
    command.arg("--check-config").arg("--config").arg(layout.config(service));
    let said = verdict(service, &layout, command)?;
    let uid = isolation.owner(service).map(|owner| owner.uid);
    let link = layout.tenant_ceilings().display().to_string();
    let told = said.lines().map(|line| files.in_given_names(&link, line));
    Ok(told
        .map(|said| match said.contains("cannot be read") {
            true => Error::Closed { said, uid },
            false => Error::Judged(said),
        })
        .collect())
}

fn home() -> Result<TempDir, Error> {
    let home = tempfile::Builder::new().prefix("harness-check-").tempdir();
    Ok(home.map_err(file::failed("create a directory in", &std::env::temp_dir()))?)
}

/// The check opens a TLS directory; this one is never used for anything else.
fn identity(layout: &Layout, service: Service, access: Access) -> Result<(), Error> {
    let domain = provision::trust_domain(super::prepare::TRUST_DOMAIN)?;
    let store = Store::init(&layout.pki(), domain)?;
    let subject = Subject::Service { service, instance: "1".to_owned() };
    let tls = layout.tls(service);
    for dir in [layout.service(service), tls.clone()] {
        file::directory(&dir, Access::PRIVATE_DIR)?;
    }
    provision::identity(&store, &subject, &tls, access)
}

/// What model-svc says against one source; nothing where it is content.
fn ask(program: &Path, layout: &Layout, source: &Models) -> Result<String, Error> {
    let dir = layout.service(Service::ModelSvc);
    for below in models::DIRS {
        file::directory(&dir.join(below), Access::PRIVATE_DIR)?;
    }
    for Staged { name, bytes } in Models::staged(std::slice::from_ref(source), &dir) {
        file::write(&dir.join(name), &bytes, Access::PRIVATE)?;
    }
    let mut command = account::checker(program);
    command.arg("--check-config");
    command.arg("--tls-dir").arg(layout.tls(Service::ModelSvc));
    command.args(["--trust-domain", super::prepare::TRUST_DOMAIN]);
    command.args(["--listen", "127.0.0.1:1", "--audit-endpoint", "127.0.0.1:2"]);
    command.arg("--state-dir").arg(layout.data(Service::ModelSvc));
    command.arg("--models-file").arg(layout.models());
    verdict(Service::ModelSvc, layout, command)
}

/// What a check of settings says; nothing where the service is content.
fn verdict(service: Service, layout: &Layout, mut command: Command) -> Result<String, Error> {
    let said = layout.root().join("said");
    let failed = |source| Error::Start { service: service.as_str(), source };
    let errors = File::create(&said).map_err(failed)?;
    command.env_clear().env("PATH", super::PATH).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let status = within(LIMIT, &mut command).map_err(failed)?;
    let text = file::read_text(&said)?;
    let own = format!("harness-{service}: ");
    let told = text.lines().map(|line| line.strip_prefix(&own).unwrap_or(line));
    match status.code() {
        Some(0) => Ok(String::new()),
        Some(2) if !text.trim().is_empty() => Ok(told.collect::<Vec<_>>().join("\n")),
        _ => Err(failed(io::Error::other(format!("it can not check its settings: {status}")))),
    }
}

fn within(limit: Duration, command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(PAUSE);
    }
}
