//! What held runs keep of a stopped mesh: counts it, and has sandbox-svc end it with the rights that it has as a service.
//! It removes nothing by itself.
use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

use transport::Service;

use super::{Error, Layout, account, leftover, prepare, programs, record::Record};
use crate::file;

/// How many runs have a private copy below the directory of a mesh that does not run.
pub(crate) fn held(layout: &Layout) -> Result<usize, Error> {
    let dir = layout.environments();
    match fs::read_dir(&dir) {
        Ok(listed) => Ok(listed.count()),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(file::failed("read", &dir)(source).into()),
    }
}

/// The same, of the mesh that this directory is.
pub(crate) fn kept(dir: &Path) -> Result<usize, Error> {
    held(&Layout::new(prepare::absolute(dir)?))
}

/// Ends containers, mounts and copies of every run, and says what was ended. Refused while the mesh runs.
pub(crate) fn cleanup(dir: &Path, programs: &Path) -> Result<String, Error> {
    let layout = Layout::new(prepare::absolute(dir)?);
    let record = Record::read(&layout)?.ok_or_else(|| Error::NoMesh(dir.to_owned()))?;
    let isolation = prepare::isolation(None, Some(&record))?;
    let _lock = prepare::occupy(&layout, isolation, false)?;
    leftover::end(&layout)?;
    let programs = programs::reachable(programs, &layout, isolation)?;
    let program = programs::find(&programs, Service::SandboxSvc)?;
    let started = account::command(isolation, Service::SandboxSvc, &program, &record.engine)?;
    let mut command: Command = started.into_std();
    command.arg("--purge").arg("--state-dir").arg(layout.data(Service::SandboxSvc));
    command.arg("--engine-socket").arg(&record.engine);
    command.env_clear().env("PATH", super::PATH);
    command.current_dir(layout.service(Service::SandboxSvc)).stdin(Stdio::null());
    let failed = |source| Error::Start { service: Service::SandboxSvc.as_str(), source };
    let output = command.output().map_err(failed)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let own = format!("harness-{}: ", Service::SandboxSvc);
            let last = said.lines().rev().find(|line| line.starts_with(&own)).unwrap_or_default();
            Err(Error::NotEnded(last.trim_start_matches(&own).to_owned()))
        }
    }
}
