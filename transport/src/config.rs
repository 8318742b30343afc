//! Where settings come from: a TOML file, then the environment, then flags. All faults are told at once; nothing insecure has a default.

mod collect;
mod file;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use self::collect::Sources;
use crate::{Args, Chain, Identity, Material, Service, material, telemetry};

/// A service's configuration.
pub trait Validate {
    /// The shared part.
    fn transport(&self) -> &Args;

    /// Everything that is wrong with the whole although each part parsed, one clear line each that says what to do: missing
    /// files, limits that contradict each other. Opens and parses files; never listens, writes or connects.
    fn faults(&self) -> Vec<String>;
}

/// How the process ends instead of starting, with what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for, for standard output; status 0.
    Done(String),
    /// What is wrong, one line each, for standard error; status 2.
    Faulty(Vec<String>),
}

/// Reads the configuration of `service` from `args` (the program's name first), from `HARNESS_<SERVICE>_<FLAG>` and from the
/// TOML file that `--config` names, whose keys are the flags. The TLS directory is checked along with it.
pub fn load<C: clap::Parser + Validate>(
    service: Service,
    args: impl IntoIterator<Item = OsString>,
) -> Result<C, Exit> {
    load_from(service, args.into_iter().collect(), &|name| std::env::var_os(name))
}

fn load_from<C: clap::Parser + Validate>(
    service: Service,
    args: Vec<OsString>,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<C, Exit> {
    let check_only = args.iter().any(|arg| arg == "--check-config");
    let mut sources = Sources::new(service, C::command(), args);
    sources.read_file(env);
    sources.read_environment(env);
    let found = sources.matches()?;
    let mut faults = found.faults;
    let config = match found.whole {
        true => Some(C::from_arg_matches(&found.matches).map_err(|error| faulty(&error))?),
        false => None,
    };
    match &config {
        Some(config) => {
            faults.extend(material_fault(service, config.transport()));
            faults.extend(config.faults());
        }
        // Some setting is wrong, but the TLS directory may be known all the same.
        None if found.tls_known => {
            let args = <Args as clap::FromArgMatches>::from_arg_matches(&found.matches);
            faults.extend(material_fault(service, &args.map_err(|error| faulty(&error))?));
        }
        None => {}
    }
    match config {
        Some(config) if faults.is_empty() && !check_only => Ok(config),
        Some(_) if faults.is_empty() => Err(Exit::Done("configuration is valid\n".to_owned())),
        _ => Err(Exit::Faulty(faults)),
    }
}

fn faulty(error: &clap::Error) -> Exit {
    Exit::Faulty(vec![collect::sentence(error)])
}

fn material_fault(service: Service, args: &Args) -> Option<String> {
    let dir = args.tls_dir.display();
    match open(service, args) {
        Ok(_) => None,
        Err(error) => Some(format!("--tls-dir {dir}: {}", Chain(&error))),
    }
}

/// The material of a process that is `service` and nobody else.
pub(crate) fn open(
    service: Service,
    args: &Args,
) -> Result<std::sync::Arc<Material>, material::Error> {
    let material = Material::open(&args.tls_dir, args.trust_domain.clone())?;
    match material.identity() {
        Identity::Service { service: found, .. } if found == service => Ok(material),
        other => Err(material::Error::WrongService { uri: other.uri(&args.trust_domain), service }),
    }
}

/// Parses a duration with its unit: `250ms`, `10s`, `5m`, `12h`, `30d`. Use it as a clap `value_parser`.
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration(()))?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| NotADuration(()))?;
    let seconds =
        |each: u64| number.checked_mul(each).map(Duration::from_secs).ok_or(NotADuration(()));
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        _ => Err(NotADuration(())),
    }
}

/// A text that is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration; write a whole number and a unit, such as 250ms, 10s, 5m or 12h")]
pub struct NotADuration(());

pub(crate) fn log_filter(text: &str) -> Result<String, telemetry::Error> {
    telemetry::filter(text).map(|_| text.to_owned())
}

/// The flag that names the file, before anything else is read.
fn config_flag(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    None
}

#[cfg(test)]
mod tests;
