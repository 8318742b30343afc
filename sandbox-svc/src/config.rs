//! Settings of the service: parsed into types, checked as a whole, never changed afterwards.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use transport::{Args, Endpoint, Validate};

use crate::broker::Brokers;
use crate::mounts::dependency::{Dependencies, Dependency};
use crate::tree::carry::Carry;

/// Workspaces, environments, containers and patches.
///
/// A stop leaves the private copies of open runs where they are, mounted, for the next start. To end them all
/// while the service does not run: harness-sandbox-svc --purge --state-dir DIR --engine-socket PATH
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "harness-sandbox-svc", version)]
pub struct Config {
    #[command(flatten)]
    pub transport: Args,

    /// Address for agent-svc
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,

    /// Private directory of the service: its database, its environments; one process at a time
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Where audit-svc listens
    #[arg(long, value_name = "HOST:PORT")]
    pub audit_endpoint: Endpoint,

    /// Unix socket of the container engine; without it there is no command tool
    #[arg(long, value_name = "PATH")]
    pub engine_socket: Option<PathBuf>,

    /// Runtime of every container, by the engine's name for it, such as runsc or kata; the engine's own if absent
    #[arg(long, value_name = "NAME", value_parser = runtime, requires = "engine_socket")]
    pub runtime: Option<String>,

    /// A source tree that sessions may name, repeatable
    #[arg(long, value_name = "NAME=DIR", value_delimiter = ',', required = true)]
    pub workspace: Vec<Workspace>,

    /// A tree that commands may read at /dependencies/NAME where their manifest names it, repeatable
    #[arg(long, value_name = "NAME=DIR", value_delimiter = ',')]
    pub dependency: Vec<Dependency>,

    /// Files of a workspace that its private copies hold although they are named like credentials or hold some,
    /// repeatable. Each use is written to the ledger
    #[arg(long, value_name = "NAME=PATTERN", value_delimiter = ',')]
    pub carry: Vec<CarryRule>,

    /// Where private copies live: a tmpfs of their own (needs CAP_SYS_ADMIN) or plain directories
    #[arg(long, value_enum, value_name = "KIND")]
    pub staging: StagingKind,

    /// Most memory of a command
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_memory: u64,

    /// Most processes of a command
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_pids: u64,

    /// Most processors of a command, such as 1 or 0.5
    #[arg(long, value_name = "COUNT", value_parser = milli)]
    pub max_cpus: Milli,

    /// Longest time of a command
    #[arg(long, value_name = "DURATION", value_parser = transport::config::duration)]
    pub max_time: Duration,

    /// Most output of a command
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_output: u64,

    /// Most bytes in a private copy
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_workspace_bytes: u64,

    /// Most entries in a private copy
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_workspace_inodes: u64,

    /// Most directories within each other, in a workspace and in a private copy
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = count)]
    pub max_workspace_depth: usize,

    /// Most entries in one directory of a workspace or of a private copy
    #[arg(long, value_name = "COUNT", default_value = "100000", value_parser = count)]
    pub max_directory_entries: usize,

    /// Largest file
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_file_bytes: u64,

    /// Most bytes in a command's /tmp
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_tmp_bytes: u64,

    /// How many started containers may wait, each for one command of one run; 0 has every command start its own
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub warm_containers: usize,

    /// How long a private copy is kept after its session's grant has run out; until then a renewed grant
    /// finds it
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = transport::config::duration)]
    pub keep_expired: Duration,

    /// How long what an import replaced is kept, so that it can be taken back
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = transport::config::duration)]
    pub keep_undo: Duration,

    /// Most bytes kept for taking imports back; the oldest go first
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    pub max_undo_bytes: u64,

    /// The organisation's ceiling, a YAML file above every manifest. Read again when it changes; a version that
    /// cannot be used leaves the last good one in force
    #[arg(long, value_name = "FILE")]
    pub ceiling: Option<PathBuf>,

    /// A directory of the tenants' ceilings, `<tenant>.yaml` each. A file that appears is in force at once; one that
    /// vanishes stays in force until the service is started anew
    #[arg(long, value_name = "DIR")]
    pub tenant_ceilings: Option<PathBuf>,

    /// Whose own signatures count where a rule asks for them: a YAML file `approvers: [{subject, key, roles}]`, read
    /// again when it changes. Without it no signature counts
    #[arg(long, value_name = "FILE")]
    pub approver_keys: Option<PathBuf>,

    /// The egress broker, harness-egress: with it commands reach the hosts that manifests allow, without it none
    #[arg(long, value_name = "FILE")]
    pub egress_program: Option<PathBuf>,

    /// A host of this machine or site that commands may reach where their manifest allows it, repeatable; all other
    /// hosts must be on the public internet
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub egress_private: Vec<egress::Target>,

    /// Where to die, for tests of recovery
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "NAME", hide = true)]
    pub failpoint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StagingKind {
    /// A tmpfs per run, with limits on bytes and entries.
    HostTmpfs,
    /// Directories below the state directory, owned by this process.
    Dirs,
}

impl StagingKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::HostTmpfs => "host-tmpfs",
            Self::Dirs => "dirs",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::HostTmpfs, Self::Dirs].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A named source tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub name: String,
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not NAME=DIR with a name of 1 to 128 of a-z A-Z 0-9 . _ - and an absolute directory")]
pub struct NotAWorkspace;

impl FromStr for Workspace {
    type Err = NotAWorkspace;

    fn from_str(text: &str) -> Result<Self, NotAWorkspace> {
        let (name, dir) = text.split_once('=').ok_or(NotAWorkspace)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let dir = PathBuf::from(dir);
        if (1..=128).contains(&name.len()) && name.bytes().all(plain) && dir.is_absolute() {
            Ok(Self { name: name.to_owned(), dir })
        } else {
            Err(NotAWorkspace)
        }
    }
}

/// A pattern of a workspace's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarryRule {
    pub workspace: String,
    pub pattern: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not NAME=PATTERN with a pattern of paths below the workspace that names at least one file or directory"
)]
pub struct NotACarryRule;

impl FromStr for CarryRule {
    type Err = NotACarryRule;

    fn from_str(text: &str) -> Result<Self, NotACarryRule> {
        let (workspace, pattern) = text.split_once('=').ok_or(NotACarryRule)?;
        let names = |part: &str| part.contains(|it: char| !matches!(it, '*' | '?' | '.'));
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        if !workspace.is_empty()
            && pattern.split('/').all(is_plain)
            && pattern.split('/').any(names)
        {
            Ok(Self { workspace: workspace.to_owned(), pattern: pattern.to_owned() })
        } else {
            Err(NotACarryRule)
        }
    }
}

/// Thousandths of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milli(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnAmount(&'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a runtime; write 1 to 64 of a-z A-Z 0-9 . _ -")]
pub struct NotARuntime;

fn runtime(text: &str) -> Result<String, NotARuntime> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(NotARuntime),
    }
}

fn bytes(text: &str) -> Result<u64, NotAnAmount> {
    let refused =
        NotAnAmount("not an amount; write a whole number above 0, or one with KiB, MiB or GiB");
    let at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(refused),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(amount @ 1..) => Ok(amount),
        Some(0) | None => Err(refused),
    }
}

fn count(text: &str) -> Result<usize, NotAnAmount> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        Ok(0) | Err(_) => Err(NotAnAmount("not a count; write a whole number above 0")),
    }
}

fn milli(text: &str) -> Result<Milli, NotAnAmount> {
    let refused =
        NotAnAmount("not a count of processors; write 1, 2 or 0.5, with at most three decimals");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return Err(refused);
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().map_err(|_| refused)?;
    let whole: u64 = whole.parse().map_err(|_| refused)?;
    match whole.checked_mul(1000).and_then(|whole| whole.checked_add(fraction)) {
        Some(amount @ 1..) => Ok(Milli(amount)),
        Some(0) | None => Err(refused),
    }
}

impl Config {
    pub(crate) fn carry(&self) -> HashMap<String, Arc<Carry>> {
        let mut patterns: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for CarryRule { workspace, pattern } in &self.carry {
            patterns.entry(workspace.clone()).or_default().push(pattern.clone());
        }
        patterns.into_iter().map(|(name, patterns)| (name, Carry::new(patterns).into())).collect()
    }

    pub(crate) fn workspaces(&self) -> BTreeMap<String, PathBuf> {
        self.workspace.iter().map(|it| (it.name.clone(), it.dir.clone())).collect()
    }

    /// The trees that commands may read, or all that is wrong with them.
    pub(crate) fn dependencies(&self) -> Result<Dependencies, Vec<String>> {
        Dependencies::open(&self.dependency, &[&self.state_dir, &self.transport.tls_dir])
    }

    pub(crate) fn brokers(&self) -> Option<Brokers> {
        let program = self.egress_program.clone()?;
        Some(Brokers { program, private: self.egress_private.iter().cloned().collect() })
    }

    #[cfg(debug_assertions)]
    pub(crate) fn failpoint(&self) -> crate::failpoint::Failpoint {
        match &self.failpoint {
            Some(name) => crate::failpoint::Failpoint::kill_at(name),
            None => crate::failpoint::Failpoint::off(),
        }
    }

    #[cfg(not(debug_assertions))]
    pub(crate) fn failpoint(&self) -> crate::failpoint::Failpoint {
        crate::failpoint::Failpoint::off()
    }
}

impl Validate for Config {
    fn transport(&self) -> &Args {
        &self.transport
    }

    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<_> =
            self.workspace.iter().filter_map(|it| self.workspace_fault(it)).collect();
        if self.workspaces().len() != self.workspace.len() {
            faults.push("--workspace: a name is given twice; give each tree its own".to_owned());
        }
        let known = self.workspaces();
        for CarryRule { workspace, pattern } in &self.carry {
            if !known.contains_key(workspace) {
                faults.push(format!(
                    "--carry {workspace}={pattern}: there is no such workspace; name one of --workspace"
                ));
            }
        }
        if !self.state_dir.is_absolute() {
            faults.push(format!(
                "--state-dir {}: not absolute; write the whole path",
                self.state_dir.display()
            ));
        }
        if self.max_file_bytes > self.max_workspace_bytes {
            faults.push("--max-file-bytes: larger than --max-workspace-bytes; lower it".to_owned());
        }
        if let Err(found) = self.dependencies() {
            faults.extend(found);
        }
        faults.extend(self.egress_fault());
        if let Err(found) = crate::policy::Policies::open(self) {
            faults.extend(found);
        }
        faults
    }
}

impl Config {
    fn egress_fault(&self) -> Option<String> {
        let Some(program) = &self.egress_program else {
            let unused = !self.egress_private.is_empty();
            return unused.then(|| {
                "--egress-private: nothing is reached without --egress-program; name it too"
                    .to_owned()
            });
        };
        let runs = program.is_absolute()
            && program
                .metadata()
                .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
        let what = "not a program by its whole path; name harness-egress";
        (!runs).then(|| format!("--egress-program {}: {what}", program.display()))
    }

    fn workspace_fault(&self, workspace: &Workspace) -> Option<String> {
        let Workspace { name, dir } = workspace;
        let fault = |what: &str| Some(format!("--workspace {name}={}: {what}", dir.display()));
        let Ok(real) = dir.canonicalize() else {
            return fault("cannot be read; make the directory or correct the path");
        };
        if !real.is_dir() {
            return fault("not a directory; name one");
        }
        if real == Path::new("/") {
            return fault("the whole host; name the directory of one project");
        }
        let state = self.state_dir.canonicalize().unwrap_or_else(|_| self.state_dir.clone());
        if real.starts_with(&state) {
            return fault("inside the state directory; choose another --state-dir");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{CarryRule, Milli, Workspace, bytes, milli, runtime};

    #[test]
    fn amounts_have_known_units_and_are_above_zero() {
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("7"), Ok(7));
        for text in ["", "0", "MiB", "1MB", "-1", "99999999999GiB", "1.5GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(milli("0.5"), Ok(Milli(500)));
        assert_eq!(milli("2"), Ok(Milli(2000)));
        for text in ["", "0", "0.0", ".5", "1.", "1.0001", "-1"] {
            assert!(milli(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_runtime_is_a_name_and_no_path() {
        for text in ["runc", "runsc", "io.containerd.kata.v2"] {
            assert_eq!(runtime(text).as_deref(), Ok(text));
        }
        for text in ["", "/usr/bin/runsc", "a b", "a/../b", "a\n"] {
            assert!(runtime(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_workspace_has_a_plain_name_and_an_absolute_directory() {
        let parsed = "demo=/srv/demo".parse();
        assert_eq!(parsed, Ok(Workspace { name: "demo".into(), dir: "/srv/demo".into() }));
        for text in ["demo", "=/srv", "a b=/srv", "demo=srv", "demo="] {
            assert!(text.parse::<Workspace>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_carried_anyway_is_named_below_the_workspace() {
        for text in ["demo=tests/certs/*.pem", "demo=.env", "demo=**/fixtures/**"] {
            let (workspace, pattern) = text.split_once('=').unwrap();
            let expected = CarryRule { workspace: workspace.into(), pattern: pattern.into() };
            assert_eq!(text.parse(), Ok(expected));
        }
        for text in
            ["demo", "demo=", "=a", "demo=**", "demo=*/**", "demo=/etc", "demo=../a", "demo=a//b"]
        {
            assert!(text.parse::<CarryRule>().is_err(), "{text}");
        }
    }
}
