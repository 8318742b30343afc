//! The engine's own way to run a command: `docker run --rm` with everything that sandbox-svc's containers have and the
//! command line can say. Every field of the host configuration is compared, so that the yardstick is no easier.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::Engine;
use serde_json::Value;

/// What the command line cannot say, or says for itself.
const APART: [&str; 6] =
    ["AutoRemove", "MaskedPaths", "ReadonlyPaths", "ContainerIDFile", "ConsoleSize", "SecurityOpt"];

/// The flags of a container of sandbox-svc, without its first process.
#[derive(Debug)]
pub(crate) struct Flags {
    image: String,
    flags: Vec<String>,
}

impl Flags {
    /// As the container `name` has them, which must be there.
    pub(crate) fn of(name: &str) -> Result<Self> {
        let made = Engine::inspect(name)?;
        let image = made["Image"].as_str().context("an image")?.to_owned();
        let flags = Self { image, flags: flags(&made)? };
        flags.compare(&made)?;
        Ok(flags)
    }

    pub(crate) fn command(&self, verb: &[&str], argv: &[&str]) -> Command {
        let (program, arguments) = argv.split_first().unwrap_or((&"", &[]));
        let mut command = Command::new("docker");
        command.args(verb).args(&self.flags).args(["--entrypoint", program, &self.image]);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// From the start of `docker run --rm` to its end.
    pub(crate) fn run(&self, argv: &[&str]) -> Result<Duration> {
        let began = Instant::now();
        let status = self.command(&["run", "--rm"], argv).status()?;
        ensure!(status.success(), "docker run: {status}");
        Ok(began.elapsed())
    }

    /// What the engine makes of the flags, beside what it made for sandbox-svc.
    fn compare(&self, made: &Value) -> Result<()> {
        let output = self.command(&["create"], &["true"]).output()?;
        ensure!(output.status.success(), "docker create: {output:?}");
        let id = String::from_utf8(output.stdout)?.trim().to_owned();
        let own = Engine::inspect(&id);
        let removed = Command::new("docker").args(["rm", &id]).output()?;
        ensure!(removed.status.success(), "docker rm: {removed:?}");
        let own = own?;
        let (theirs, ours) = (&own["HostConfig"], &made["HostConfig"]);
        for (field, value) in ours.as_object().context("a host configuration")? {
            let told_apart = APART.contains(&field.as_str());
            ensure!(
                told_apart || same(value, &theirs[field]),
                "the yardstick differs in {field}: {} instead of {value}",
                theirs[field]
            );
        }
        for field in ["User", "WorkingDir", "Hostname", "Env"] {
            let (theirs, ours) = (&own["Config"][field], &made["Config"][field]);
            ensure!(same(ours, theirs), "the yardstick differs in {field}: {theirs} not {ours}");
        }
        ensure!(
            security(theirs)? == security(ours)?,
            "the yardstick differs in its security options"
        );
        Ok(())
    }
}

fn flags(made: &Value) -> Result<Vec<String>> {
    let (host, config) = (&made["HostConfig"], &made["Config"]);
    let number = |field: &str| host[field].as_i64().with_context(|| format!("no {field}"));
    let text = |field: &str| config[field].as_str().with_context(|| format!("no {field}"));
    let seccomp = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/seccomp/sandbox.json");
    let thousandths = number("NanoCpus")? / 1_000_000;
    let mut flags: Vec<String> = [
        "--pull=never --network=none --ipc=none --cgroupns=private --read-only --cap-drop=ALL",
        "--security-opt=no-new-privileges=true --log-driver=none --no-healthcheck",
    ]
    .iter()
    .flat_map(|words| words.split(' ').map(str::to_owned))
    .collect();
    flags.extend([
        format!("--security-opt=seccomp={}", seccomp.display()),
        format!("--memory={}", number("Memory")?),
        format!("--memory-swap={}", number("MemorySwap")?),
        format!("--pids-limit={}", number("PidsLimit")?),
        format!("--cpus={}.{:03}", thousandths / 1_000, thousandths % 1_000),
        format!("--oom-score-adj={}", number("OomScoreAdj")?),
        format!("--user={}", text("User")?),
        format!("--workdir={}", text("WorkingDir")?),
        format!("--hostname={}", text("Hostname")?),
    ]);
    for limit in host["Ulimits"].as_array().into_iter().flatten() {
        let name = limit["Name"].as_str().context("a limit has a name")?;
        flags.push(format!("--ulimit={name}={}:{}", limit["Soft"], limit["Hard"]));
    }
    for (place, options) in host["Tmpfs"].as_object().into_iter().flatten() {
        let options = options.as_str().context("a tmpfs has options")?;
        flags.push(format!("--tmpfs={place}:{options}"));
    }
    for mount in host["Mounts"].as_array().into_iter().flatten() {
        let part = |field: &str| mount[field].as_str().with_context(|| format!("no {field}"));
        let (source, target) = (part("Source")?, part("Target")?);
        let mode = if mount["ReadOnly"] == true { ",readonly" } else { "" };
        let how = "bind-propagation=rprivate,bind-recursive=disabled";
        flags.push(format!("--mount=type=bind,source={source},target={target},{how}{mode}"));
    }
    Ok(flags)
}

/// Nothing, none and empty are the same.
fn same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    };
    let sorted = |list: &[Value]| {
        let mut texts: Vec<_> = list.iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    match (one, other) {
        (Value::Object(left), Value::Object(right)) if !left.is_empty() && !right.is_empty() => {
            let all = left.keys().chain(right.keys());
            all.into_iter().all(|name| same(&one[name], &other[name]))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            sorted(left) == sorted(right)
                || left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => one == other || is_empty(one) && is_empty(other),
    }
}

/// A profile is compared as what it says, not as it is written.
fn security(host: &Value) -> Result<Vec<String>> {
    let options = host["SecurityOpt"].as_array().context("security options")?;
    let mut read = Vec::new();
    for option in options {
        let option = option.as_str().context("an option is a text")?;
        read.push(match option.strip_prefix("seccomp=") {
            Some(profile) => serde_json::from_str::<Value>(profile)?.to_string(),
            None => option.to_owned(),
        });
    }
    read.sort();
    Ok(read)
}
