//! What the container engine says about itself, by the few questions that change nothing.
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tokio::net::UnixStream;

use super::Check;
use crate::{
    error::{Causes, Exit, Explain},
    http,
};

const LIMIT: Duration = Duration::from_secs(10);
/// The oldest engine interface that the sandbox service is tried with.
const OLDEST: (u32, u32) = (1, 41);

/// An engine behind its socket.
#[derive(Debug)]
pub(crate) struct Engine {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no container engine answers at {}", socket.display())]
    Unreachable { socket: PathBuf, source: io::Error },
    #[error("the container engine does not answer {path}")]
    Silent { path: String, source: http::Error },
    #[error("the container engine answers {path} with status {status}")]
    Status { path: String, status: u16 },
    #[error("the container engine's answer to {path} is not what was asked for")]
    Answer { path: String, source: serde_json::Error },
    #[error("the image {0} is not on this machine")]
    NoImage(String),
    #[error("'{0}' is not an image name")]
    NotAnImage(String),
}

impl Explain for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::NotAnImage(_) => Exit::Usage,
            Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::Status { .. }
            | Self::Answer { .. }
            | Self::NoImage(_) => Exit::Failed,
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::Unreachable { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                "run as root, or join the group that owns the socket"
            }
            Self::Unreachable { .. } => "start Docker, or name its socket with --engine-socket",
            Self::Silent { .. } | Self::Status { .. } | Self::Answer { .. } => {
                "restart the engine and look at its log"
            }
            Self::NoImage(_) => {
                "build it with 'deploy/setup.sh', or give --image one that 'docker images' lists"
            }
            Self::NotAnImage(_) => "give a name such as harness/busybox:1, or sha256:<id>",
        }
        .to_owned()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
    api_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    #[serde(default)]
    memory_limit: bool,
    #[serde(default)]
    swap_limit: bool,
    #[serde(default)]
    pids_limit: bool,
    #[serde(default)]
    cpu_cfs_quota: bool,
    #[serde(default)]
    cgroup_version: String,
    #[serde(default)]
    cgroup_driver: String,
    #[serde(default)]
    security_options: Option<Vec<String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    id: String,
}

impl Engine {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Whether the engine knows a container of this name, running or not.
    pub(crate) async fn has_container(&self, name: &str) -> Result<bool, Error> {
        match self.ask::<serde::de::IgnoredAny>(&format!("/containers/{name}/json")).await {
            Ok(_) => Ok(true),
            Err(Error::Status { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn checks(&self) -> Vec<Check> {
        let version: Version = match self.ask("/version").await {
            Ok(version) => version,
            Err(error) => {
                return vec![Check::fail("engine", Causes(&error).to_string(), &error.advice())];
            }
        };
        let mut checks = vec![interface(&version)];
        match self.ask::<Info>("/info").await {
            Ok(info) => checks.extend(abilities(&info)),
            Err(error) => {
                checks.push(Check::fail(
                    "engine-info",
                    Causes(&error).to_string(),
                    &error.advice(),
                ));
            }
        }
        checks
    }

    pub(super) async fn ask<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Result<T, Error> {
        let unreachable = |source| Error::Unreachable { socket: self.socket.clone(), source };
        let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
        let path = path.to_owned();
        let answer = match http::get(stream, &path, LIMIT).await {
            Ok(answer) => answer,
            Err(source) => return Err(Error::Silent { path, source }),
        };
        match answer.status {
            200 => serde_json::from_slice(&answer.body)
                .map_err(|source| Error::Answer { path, source }),
            status => Err(Error::Status { path, status }),
        }
    }
}

/// The id that the engine knows an image by.
pub(crate) async fn image_id(engine: &Engine, image: &str) -> Result<String, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._/:@-".contains(c);
    if image.is_empty() || image.len() > 255 || !image.chars().all(fits) || image.contains("..") {
        return Err(Error::NotAnImage(image.to_owned()));
    }
    match engine.ask::<Image>(&format!("/images/{image}/json")).await {
        Ok(Image { id }) => Ok(id),
        Err(Error::Status { status: 404, .. }) => Err(Error::NoImage(image.to_owned())),
        Err(error) => Err(error),
    }
}

fn interface(version: &Version) -> Check {
    let found = format!("version {}, interface {}", version.version, version.api_version);
    let number = version.api_version.split_once('.');
    let number = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match number {
        Some(number) if number >= OLDEST => Check::ok("engine", found),
        Some(_) | None => Check::fail("engine", found, "install Docker 20.10 or newer"),
    }
}

fn abilities(info: &Info) -> Vec<Check> {
    let Info {
        memory_limit,
        swap_limit,
        pids_limit,
        cpu_cfs_quota,
        cgroup_version,
        cgroup_driver,
        security_options,
        warnings,
    } = info;
    let cgroup = format!("cgroup v{cgroup_version} ({cgroup_driver})");
    let none = cgroup_driver == "none";
    let missing: Vec<&str> = [
        ("memory", memory_limit),
        ("swap", swap_limit),
        ("pids", pids_limit),
        ("cpu", cpu_cfs_quota),
    ]
    .into_iter()
    .filter_map(|(name, there)| (none || !there).then_some(name))
    .collect();
    let mut checks = vec![match missing.as_slice() {
        [] => Check::ok("limits", format!("{cgroup}: memory, swap, pids and cpu are enforced")),
        missing => Check::fail(
            "limits",
            format!("{cgroup}: no limit of {}", missing.join(", ")),
            "enable these cgroup controllers in the kernel; for swap boot with swapaccount=1",
        ),
    }];
    let has = |name: &str| {
        let named = |option: &String| option.split(',').any(|part| part == name);
        security_options.iter().flatten().any(named)
    };
    checks.extend(users(has("name=rootless"), has("name=userns")));
    checks.push(match has("name=seccomp") {
        true => Check::ok("seccomp", "system calls are filtered"),
        false => Check::fail(
            "seccomp",
            "the engine filters no system calls",
            "use a kernel and engine with seccomp",
        ),
    });
    let warnings: Vec<&str> = warnings.iter().flatten().map(String::as_str).collect();
    if !warnings.is_empty() {
        checks.push(Check::warn(
            "engine-warnings",
            warnings.join("; "),
            "see whether they matter here",
        ));
    }
    checks
}

/// Whose numbers the users of containers are.
fn users(rootless: bool, shifted: bool) -> Vec<Check> {
    let mut checks = vec![match shifted {
        false => Check::ok("user-namespaces", "users of containers are the host's own numbers"),
        true => Check::warn(
            "user-namespaces",
            "users of containers are shifted, and the private copies belong to unshifted ones",
            "leave userns-remap out for this engine; commands have no rights without it",
        ),
    }];
    if rootless {
        checks.push(Check::warn(
            "rootless",
            "the engine runs without root and does not see what sandbox-svc mounts",
            "set staging = \"dirs\" in sandbox-svc's configuration, or use an engine of root",
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    fn info(text: &str) -> Vec<(String, Status)> {
        let info: Info = serde_json::from_str(text).unwrap();
        abilities(&info).into_iter().map(|check| (check.name, check.status)).collect()
    }

    #[test]
    fn an_engine_without_limits_or_filter_blocks() {
        let whole = r#"{"MemoryLimit":true,"SwapLimit":true,"PidsLimit":true,"CpuCfsQuota":true,"CgroupVersion":"1",
            "SecurityOptions":["name=seccomp,profile=default"],"Warnings":["no blkio weight"]}"#;
        let all = |limits, users, seccomp| {
            let named = |name: &str, status| (name.to_owned(), status);
            [named("limits", limits), named("user-namespaces", users), named("seccomp", seccomp)]
        };
        let mut expected = all(Status::Ok, Status::Ok, Status::Ok).to_vec();
        expected.push(("engine-warnings".to_owned(), Status::Warn));
        assert_eq!(info(whole), expected);
        assert_eq!(info("{}"), all(Status::Fail, Status::Ok, Status::Fail));
        for feature in ["MemoryLimit", "SwapLimit", "PidsLimit", "CpuCfsQuota"] {
            let without = whole.replace(feature, "Other");
            assert_eq!(info(&without)[0].1, Status::Fail, "{feature}");
        }
        let without =
            whole.replace("\"CgroupVersion\"", "\"CgroupDriver\":\"none\",\"CgroupVersion\"");
        assert_eq!(info(&without)[0].1, Status::Fail, "no driver of control groups");
        let without = whole.replace("[\"name=seccomp,profile=default\"]", "null");
        assert_eq!(info(&without)[2].1, Status::Fail);
        let shifted =
            whole.replace("[\"name=seccomp", "[\"name=userns\",\"name=rootless\",\"name=seccomp");
        let expected =
            [("user-namespaces".to_owned(), Status::Warn), ("rootless".to_owned(), Status::Warn)];
        assert_eq!(info(&shifted)[1..3], expected);
    }

    #[test]
    fn old_engines_and_unknown_versions_block() {
        let status = |api: &str| {
            interface(&Version { version: "x".to_owned(), api_version: api.to_owned() }).status
        };
        assert_eq!(["1.41", "1.50", "2.0"].map(status), [Status::Ok; 3]);
        assert_eq!(["1.40", "1.9", "", "x.y"].map(status), [Status::Fail; 4]);
    }

    #[tokio::test]
    async fn names_that_are_no_images_reach_no_engine() {
        let engine = Engine::new(Path::new("/nowhere"));
        for name in ["", "a b", "../info", "a?b", "a\r\nb"] {
            assert!(matches!(image_id(&engine, name).await, Err(Error::NotAnImage(_))), "{name:?}");
        }
        assert!(matches!(
            image_id(&engine, "harness/sandbox:1").await,
            Err(Error::Unreachable { .. })
        ));
    }
}
