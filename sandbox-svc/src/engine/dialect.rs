//! How the engine on the socket wants a container described, and what its own words for it mean: Docker's are the
//! plain ones, Podman's are brought into them. It never lets a field pass that was not compared.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bollard::models::{ContainerCreateBody, ContainerInspectResponse, ResourcesUlimits};
use event::Digest;
use serde_json::{Value, json};

use crate::engine::EngineError;

const SECCOMP: &str = "seccomp=";
/// Podman makes these writable beside a read-only root, without a limit.
const COVERED: [&str; 2] = ["/run", "/var/tmp"];
const COVER: &str = "ro,noexec,nosuid,nodev,size=4k,mode=0555";
/// Podman raises limits that it is not told.
const PROCESSES: i64 = 4096;
/// What is left of `ALL` in Podman's words: everything that a container has by default.
const DEFAULT_CAPABILITIES: [&str; 11] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Variables that Podman adds.
const ADDED: [&str; 3] = ["TERM=xterm", "container=podman", "HOSTNAME=sbx"];

/// Which engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Docker,
    Podman,
}

impl Dialect {
    /// By the components that the engine names.
    pub(crate) fn of<'c>(mut components: impl Iterator<Item = &'c str>) -> Self {
        match components.any(|name| name == "Podman Engine") {
            true => Self::Podman,
            false => Self::Docker,
        }
    }

    /// The body as this engine takes it. `profiles` is where a profile can be read by the engine.
    pub(super) fn adapt(
        self,
        mut body: ContainerCreateBody,
        profiles: &Path,
    ) -> Result<ContainerCreateBody, EngineError> {
        let (Self::Podman, Some(host)) = (self, body.host_config.as_mut()) else {
            return Ok(body);
        };
        for option in host.security_opt.iter_mut().flatten() {
            if let Some(profile) = option.strip_prefix(SECCOMP) {
                let path = profile_file(profiles, profile)?;
                *option = format!("{SECCOMP}{}", path.display());
            }
        }
        // A tmpfs of the engine has no limit on entries; the caller mounts one of its own.
        let tmpfs = host.tmpfs.get_or_insert_default();
        tmpfs.remove("/tmp");
        tmpfs.extend(COVERED.map(|path| (path.to_owned(), COVER.to_owned())));
        let processes = ResourcesUlimits {
            name: Some("nproc".to_owned()),
            soft: Some(PROCESSES),
            hard: Some(PROCESSES),
        };
        host.ulimits.get_or_insert_default().push(processes);
        Ok(body)
    }

    /// What was sent and what was made, in the same words.
    pub(super) fn translate(
        self,
        sent: &ContainerCreateBody,
        made: &ContainerInspectResponse,
    ) -> Result<(Value, Value), EngineError> {
        let unreadable =
            |_| EngineError::Incomplete { call: "inspect", what: "a readable configuration" };
        let mut sent = serde_json::to_value(sent).map_err(unreadable)?;
        let mut made = json!({
            "Image": made.image,
            "Config": serde_json::to_value(&made.config).map_err(unreadable)?,
            "HostConfig": serde_json::to_value(&made.host_config).map_err(unreadable)?,
        });
        if self == Self::Podman {
            config(&mut sent, &mut made["Config"]);
            host_config(&mut sent["HostConfig"], &mut made["HostConfig"]);
        }
        Ok((sent, made))
    }
}

/// Members that Podman does not report are taken from what was sent only where another member proves them.
fn config(sent: &mut Value, made: &mut Value) {
    // How it is attached to says nothing about what it may do.
    for member in ["AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce"] {
        forget(sent, member);
        forget(made, member);
    }
    if sent["HostConfig"]["NetworkMode"] == "none" {
        // The network mode is compared, and it is what Podman obeys.
        forget(sent, "NetworkDisabled");
    }
    if made["StopSignal"] == "9" {
        made["StopSignal"] = "SIGKILL".into();
    }
    if let Some(check) = made["Healthcheck"].as_object_mut() {
        check.retain(|name, _| name == "Test");
    }
    if let Some(env) = made["Env"].as_array_mut() {
        env.retain(|variable| !ADDED.iter().any(|added| variable == added));
    }
}

fn host_config(sent: &mut Value, made: &mut Value) {
    // `none` has no /dev/shm there and is called shareable; private cgroups are made on version 2 only.
    for member in ["IpcMode", "CgroupnsMode"] {
        forget(sent, member);
    }
    // It has masks of its own and takes no others.
    for member in ["MaskedPaths", "ReadonlyPaths"] {
        forget(sent, member);
    }
    for member in ["PidMode", "UTSMode"] {
        if made[member] == "private" {
            made[member] = "".into();
        }
    }
    if keeps_no_capability(&made["CapDrop"]) {
        made["CapDrop"] = json!(["ALL"]);
    }
    for option in made["SecurityOpt"].as_array_mut().into_iter().flatten() {
        if option == "no-new-privileges" {
            *option = "no-new-privileges=true".into();
        }
    }
    for options in made["Tmpfs"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        let said = options.as_str().unwrap_or_default();
        let ours = said.strip_suffix(",rprivate,tmpcopyup").unwrap_or(said).to_owned();
        *options = ours.into();
    }
    if is_bound_as_sent(&sent["Mounts"], &made["Binds"]) {
        made["Mounts"] = sent["Mounts"].clone();
        made["Binds"] = Value::Null;
    }
    for limit in made["Ulimits"].as_array_mut().into_iter().flatten() {
        let name = limit["Name"].as_str().unwrap_or_default();
        let name = name.strip_prefix("RLIMIT_").unwrap_or(name).to_lowercase();
        limit["Name"] = name.into();
    }
    by_name(&mut sent["Ulimits"]);
    by_name(&mut made["Ulimits"]);
}

fn forget(value: &mut Value, member: &str) {
    if let Some(members) = value.as_object_mut() {
        members.remove(member);
    }
}

fn by_name(limits: &mut Value) {
    if let Some(limits) = limits.as_array_mut() {
        limits.sort_by_key(|limit| limit["Name"].as_str().map(str::to_owned));
    }
}

/// `ALL` comes back as a list of what there is by default.
fn keeps_no_capability(dropped: &Value) -> bool {
    let names = dropped.as_array().into_iter().flatten().filter_map(Value::as_str);
    let names: BTreeSet<&str> = names.map(|name| name.trim_start_matches("CAP_")).collect();
    DEFAULT_CAPABILITIES.iter().all(|name| names.contains(name))
}

/// Mounts come back as joined strings. Each must be there with exactly its options, and no other.
fn is_bound_as_sent(sent: &Value, made: &Value) -> bool {
    let options = |text: &str| -> BTreeSet<String> { text.split(',').map(str::to_owned).collect() };
    let made = made.as_array().into_iter().flatten();
    let mut left: Vec<&str> = made.map(|bind| bind.as_str().unwrap_or_default()).collect();
    for mount in sent.as_array().into_iter().flatten() {
        let text = |member: &str| mount[member].as_str().unwrap_or_default().to_owned();
        let mode = if mount["ReadOnly"] == true { "ro" } else { "rw" };
        let wanted = options(&format!("{mode},rprivate,bind"));
        let prefix = format!("{}:{}:", text("Source"), text("Target"));
        let found = left.iter().position(|bind| {
            let said = bind.strip_prefix(&prefix).map(options);
            said.is_some_and(|said| {
                said.is_superset(&wanted) && said.difference(&wanted).all(|it| narrows(it))
            })
        });
        let Some(found) = found else { return false };
        left.swap_remove(found);
    }
    left.is_empty()
}

/// What a source's own mount has, Podman says again.
fn narrows(option: &str) -> bool {
    matches!(option, "nosuid" | "nodev" | "noexec")
}

/// The profile as a file under its own digest; one that is there must hold it still.
fn profile_file(profiles: &Path, profile: &str) -> Result<PathBuf, EngineError> {
    let digest = Digest::of(profile.as_bytes()).to_string();
    let path = profiles.join(format!("seccomp-{}.json", digest.replace(':', "-")));
    let kept = |source| EngineError::Profile { path: path.clone(), source };
    match fs::read(&path) {
        Ok(bytes) if bytes == profile.as_bytes() => return Ok(path),
        Ok(_) => return Err(kept(io::Error::other("it is not what was written there"))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(kept(error)),
        Err(_) => (),
    }
    let part = profiles.join(format!("seccomp-{}.part", std::process::id()));
    let write = || -> io::Result<()> {
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => (),
        }
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&part)?;
        file.write_all(profile.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    write().map_err(kept)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::{Value, json};

    use super::{Dialect, is_bound_as_sent, keeps_no_capability, profile_file};

    #[test]
    fn the_components_tell_which_engine_it_is() {
        let docker = ["Engine", "containerd", "runc", "docker-init"];
        assert_eq!(Dialect::of(docker.into_iter()), Dialect::Docker);
        assert_eq!(Dialect::of(["Podman Engine", "Conmon"].into_iter()), Dialect::Podman);
    }

    #[test]
    fn a_profile_is_a_file_that_nobody_may_have_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = profile_file(dir.path(), "{}").unwrap();
        assert_eq!(profile_file(dir.path(), "{}").unwrap(), path);
        assert_ne!(profile_file(dir.path(), "{ }").unwrap(), path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{\"defaultAction\":\"SCMP_ACT_ALLOW\"}").unwrap();
        assert!(profile_file(dir.path(), "{}").is_err());
    }

    #[test]
    fn joined_mounts_must_be_exactly_those_that_were_sent() {
        let mount = |source: &str, target: &str, read_only: bool| json!({ "Source": source, "Target": target, "ReadOnly": read_only });
        let sent = json!([mount("/a", "/workspace", false), mount("/d", "/dependencies/d", true)]);
        let whole = ["/d:/dependencies/d:ro,rprivate,bind", "/a:/workspace:rprivate,bind,rw"];
        assert!(is_bound_as_sent(&sent, &json!(whole)));
        let narrower = format!("{},nosuid,nodev", whole[1]);
        assert!(is_bound_as_sent(&sent, &json!([whole[0], narrower])));
        for other in [
            json!(["/a:/workspace:rprivate,bind,rw"]),
            json!(["/d:/dependencies/d:rw,rprivate,bind", whole[1]]),
            json!(["/d:/dependencies/d:ro,rprivate,rbind", whole[1]]),
            json!(["/d:/dependencies/d:ro,rshared,bind", whole[1]]),
            json!(["/d:/dependencies/d:ro,rprivate,bind,suid", whole[1]]),
            json!(["/:/dependencies/d:ro,rprivate,bind", whole[1]]),
            json!([whole[0], whole[1], "/:/host:rw,rprivate,bind"]),
            json!([whole[0], whole[1], whole[1]]),
            Value::Null,
        ] {
            assert!(!is_bound_as_sent(&sent, &other), "{other}");
        }
        assert!(is_bound_as_sent(&json!([]), &Value::Null));
    }

    #[test]
    fn a_default_capability_that_is_not_dropped_is_kept() {
        let all: Vec<_> = super::DEFAULT_CAPABILITIES.to_vec();
        assert!(keeps_no_capability(&json!(all)));
        assert!(!keeps_no_capability(&json!(all[1..])));
        assert!(!keeps_no_capability(&Value::Null));
    }
}
