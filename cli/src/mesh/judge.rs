//! Has model-svc itself judge the models that were named, over throw-away copies and before a state directory is
//! touched. It starts no service, and it decides nothing that model-svc would decide otherwise.
use std::{
    fs::File,
    io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use transport::Service;

use super::{
    Error, Layout, account,
    models::{self, Models, Staged},
    provision,
};
use crate::{
    file::{self, Access},
    pki::{Store, Subject},
};

const LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Every fault that model-svc finds, in the names that the operator gave.
pub(crate) fn models(program: &Path, sources: &[Models]) -> Result<Vec<Error>, Error> {
    let home = tempfile::Builder::new().prefix("harness-check-").tempdir();
    let home = home.map_err(file::failed("create a directory in", &std::env::temp_dir()))?;
    let layout = Layout::new(home.path());
    identity(&layout)?;
    let mut faults = Vec::new();
    // One by one: the form of one file does not hide what is wrong with the other.
    for source in sources {
        let said = ask(program, &layout, source)?;
        let own = format!("harness-{}: ", Service::ModelSvc);
        let told = said.lines().map(|line| line.strip_prefix(&own).unwrap_or(line));
        let dir = layout.service(Service::ModelSvc);
        faults.extend(told.map(|line| Error::Judged(source.in_given_names(&dir, line))));
    }
    Ok(faults)
}

/// The check opens a TLS directory; this one is never used for anything else.
fn identity(layout: &Layout) -> Result<(), Error> {
    let domain = provision::trust_domain(super::prepare::TRUST_DOMAIN)?;
    let store = Store::init(&layout.pki(), domain)?;
    let subject = Subject::Service { service: Service::ModelSvc, instance: "1".to_owned() };
    let tls = layout.tls(Service::ModelSvc);
    for dir in [layout.service(Service::ModelSvc), tls.clone()] {
        file::directory(&dir, Access::PRIVATE_DIR)?;
    }
    provision::identity(&store, &subject, &tls, Access::PRIVATE)
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
    let said = layout.root().join("said");
    let failed = |source| Error::Start { service: Service::ModelSvc.as_str(), source };
    let errors = File::create(&said).map_err(failed)?;
    let mut command = account::checker(program);
    command.arg("--check-config");
    command.arg("--tls-dir").arg(layout.tls(Service::ModelSvc));
    command.args(["--trust-domain", super::prepare::TRUST_DOMAIN]);
    command.args(["--listen", "127.0.0.1:1", "--audit-endpoint", "127.0.0.1:2"]);
    command.arg("--state-dir").arg(layout.data(Service::ModelSvc));
    command.arg("--models-file").arg(layout.models());
    command.env_clear().env("PATH", super::PATH).current_dir(std::env::temp_dir());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let status = within(LIMIT, &mut command).map_err(failed)?;
    let text = file::read_text(&said)?;
    match status.code() {
        Some(0) => Ok(String::new()),
        Some(2) if !text.trim().is_empty() => Ok(text),
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
