//! The create body, field by field, and the comparison of what the engine made of it. A field that an
//! engine ignores is found here, before anything runs.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HealthConfig, HostConfig,
    HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use serde_json::Value;

use event::MountMode;

use crate::engine::{Bind, Dialect, EngineError, Spec, WORKSPACE};

/// Instead of the engine's own profile, which has more.
const SECCOMP: &str = include_str!("../../../deploy/seccomp/sandbox.json");
const OOM_SCORE: i64 = 500;
const TMP_INODES: u32 = 4096;
/// They replace the engine's own list.
const MASKED: &str = "/proc/asound /proc/acpi /proc/kcore /proc/keys /proc/latency_stats \
    /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /proc/interrupts /proc/kallsyms \
    /proc/cmdline /proc/version /proc/modules /proc/config.gz /sys/firmware /sys/fs/cgroup \
    /sys/devices /sys/block /sys/class /sys/kernel /sys/module /dev/mqueue";
const READ_ONLY: &str = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger";
/// Members of the host configuration that we never send and that must be empty when read back.
const NEVER: &str = "Binds CapAdd Devices DeviceCgroupRules DeviceRequests VolumesFrom Links GroupAdd \
    Sysctls PortBindings PublishAllPorts ExtraHosts Dns DnsOptions DnsSearch CgroupParent UsernsMode \
    StorageOpt OomKillDisable VolumeDriver Cgroup";

pub(crate) fn create_body(spec: &Spec) -> Result<ContainerCreateBody, EngineError> {
    Ok(ContainerCreateBody {
        image: Some(spec.image.to_string()),
        entrypoint: Some(vec![sandbox_init::PROGRAM.to_owned()]),
        cmd: Some(Vec::new()),
        user: Some(spec.user.to_string()),
        working_dir: Some(WORKSPACE.to_owned()),
        hostname: Some("sbx".to_owned()),
        env: Some(vec![format!("PATH={}", spec.path)]),
        network_disabled: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        // Its frame comes there; when whoever holds it goes, the first process is told.
        attach_stdin: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(false),
        stop_signal: Some("SIGKILL".to_owned()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        labels: Some(spec.labels.clone().into_iter().collect()),
        host_config: Some(host_config(spec)?),
        ..ContainerCreateBody::default()
    })
}

fn host_config(spec: &Spec) -> Result<HostConfig, EngineError> {
    let limits = &spec.limits;
    let memory = number(limits.memory)?;
    let tmp = format!(
        "rw,noexec,nosuid,nodev,size={},nr_inodes={TMP_INODES},mode=1777",
        limits.tmp_bytes
    );
    Ok(HostConfig {
        network_mode: Some("none".to_owned()),
        ipc_mode: Some("none".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        pid_mode: Some(String::new()),
        uts_mode: Some(String::new()),
        privileged: Some(false),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges=true".to_owned(), format!("seccomp={SECCOMP}")]),
        init: Some(false),
        pids_limit: Some(number(limits.pids)?),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(number(limits.cpus_milli.saturating_mul(1_000_000))?),
        oom_score_adj: Some(OOM_SCORE),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), tmp)])),
        mounts: Some(spec.binds.iter().map(mount).collect::<Result<_, _>>()?),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        ulimits: Some(vec![
            ulimit("core", 0, 0),
            ulimit("nofile", 1024, 4096),
            ulimit("fsize", number(limits.file_bytes)?, number(limits.file_bytes)?),
            ulimit("msgqueue", 0, 0),
        ]),
        masked_paths: Some(words(MASKED)),
        readonly_paths: Some(words(READ_ONLY)),
        ..HostConfig::default()
    })
}

/// Data, never joined strings; without what is mounted below the source.
fn mount(bind: &Bind) -> Result<Mount, EngineError> {
    let Bind { source, target, mode } = bind;
    let source = source
        .to_str()
        .ok_or(EngineError::Incomplete { call: "create", what: "a path that is UTF-8" })?;
    Ok(Mount {
        target: Some(target.clone()),
        source: Some(source.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(*mode == MountMode::Ro),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    })
}

fn ulimit(name: &str, soft: i64, hard: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(soft), hard: Some(hard) }
}

fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn number(amount: u64) -> Result<i64, EngineError> {
    let what = "a limit that its API can carry";
    i64::try_from(amount).map_err(|_| EngineError::Incomplete { call: "create", what })
}

/// Names the first field that the engine did not take over as it was sent.
pub(crate) fn compare(
    dialect: Dialect,
    sent: &ContainerCreateBody,
    made: &ContainerInspectResponse,
) -> Result<(), EngineError> {
    let differs = |field: &str| Err(EngineError::NotLockedDown(field.to_owned()));
    let (sent, made) = dialect.translate(sent, made)?;
    let (config, host) = (&made["Config"], &made["HostConfig"]);
    if made["Image"] != sent["Image"] {
        return differs("Image");
    }
    for (field, value) in members(&sent) {
        if !matches!(field, "HostConfig" | "Image" | "Env") && !same(value, &config[field]) {
            return differs(field);
        }
    }
    if !same(&sorted(&sent["Env"]), &sorted(&config["Env"])) {
        return differs("Env");
    }
    for (field, value) in members(&sent["HostConfig"]) {
        if !same(value, &host[field]) {
            return differs(&format!("HostConfig.{field}"));
        }
    }
    match words(NEVER).into_iter().find(|field| !is_empty(&host[field])) {
        Some(field) => differs(&format!("HostConfig.{field}")),
        None => Ok(()),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Everything that was sent is there; what the engine adds on its own must be empty.
fn same(sent: &Value, made: &Value) -> bool {
    match (sent, made) {
        (Value::Object(sent), Value::Object(made)) => {
            sent.iter().all(|(name, value)| same(value, made.get(name).unwrap_or(&Value::Null)))
                && made.iter().all(|(name, value)| sent.contains_key(name) || is_empty(value))
        }
        (Value::Array(sent), Value::Array(made)) => {
            sent.len() == made.len() && sent.iter().zip(made).all(|(sent, made)| same(sent, made))
        }
        (sent, made) => sent == made || is_empty(sent) && is_empty(made),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn sorted(list: &Value) -> Value {
    let mut items: Vec<String> =
        list.as_array().into_iter().flatten().map(ToString::to_string).collect();
    items.sort_unstable();
    items.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{NEVER, compare, create_body, words};
    use event::MountMode;

    use crate::engine::{Bind, ContainerName, Dialect, EngineError, Limits, Spec, User};

    fn spec() -> Spec {
        Spec {
            name: ContainerName::of(event::id::CallId::nil(), 1),
            image: event::Digest::of(b"image"),
            path: "/bin".to_owned(),
            user: User::of_slot(200_000),
            labels: BTreeMap::from([("harness.lease".to_owned(), "x".to_owned())]),
            binds: vec![
                Bind {
                    source: "/state/copy".into(),
                    target: "/workspace".to_owned(),
                    mode: MountMode::Rw,
                },
                Bind {
                    source: "/srv/deps".into(),
                    target: "/dependencies/deps".to_owned(),
                    mode: MountMode::Ro,
                },
            ],
            limits: Limits {
                memory: 1 << 20,
                pids: 8,
                cpus_milli: 500,
                file_bytes: 9,
                tmp_bytes: 7,
            },
        }
    }

    /// What an engine says that did everything that it was asked.
    fn made() -> Value {
        let mut config = serde_json::to_value(create_body(&spec()).unwrap()).unwrap();
        let host = config.as_object_mut().unwrap().remove("HostConfig").unwrap();
        let image = config["Image"].clone();
        config["OnBuild"] = Value::Null;
        json!({ "Id": "a".repeat(64), "Image": image, "Config": config, "HostConfig": host })
    }

    fn compared(made: &Value) -> Option<String> {
        let made = serde_json::from_value(made.clone()).unwrap();
        match compare(Dialect::Docker, &create_body(&spec()).unwrap(), &made) {
            Ok(()) => None,
            Err(EngineError::NotLockedDown(field)) => Some(field),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn an_engine_that_does_what_it_is_told_passes() {
        assert_eq!(compared(&made()), None);
        let mut padded = made();
        padded["HostConfig"]["BlkioWeight"] = json!(0);
        padded["HostConfig"]["Mounts"][0]["Consistency"] = json!("");
        padded["HostConfig"]["CapAdd"] = Value::Null;
        assert_eq!(compared(&padded), None);
    }

    #[test]
    fn every_field_that_was_sent_must_come_back() {
        let whole = made();
        for field in whole["HostConfig"].as_object().unwrap().keys() {
            let empty = ["PidMode", "UTSMode", "Privileged", "AutoRemove", "Init"]
                .contains(&field.as_str());
            let mut less = whole.clone();
            less["HostConfig"].as_object_mut().unwrap().remove(field);
            let expected = (!empty).then(|| format!("HostConfig.{field}"));
            assert_eq!(compared(&less), expected);
        }
        for field in
            ["User", "Entrypoint", "WorkingDir", "NetworkDisabled", "Labels", "Env", "StdinOnce"]
        {
            let mut less = whole.clone();
            less["Config"].as_object_mut().unwrap().remove(field);
            assert_eq!(compared(&less).as_deref(), Some(field));
        }
    }

    #[test]
    fn nothing_may_come_that_was_not_sent() {
        for (field, value) in [
            ("CapAdd", json!(["SYS_ADMIN"])),
            ("Binds", json!(["/:/host"])),
            ("GroupAdd", json!(["0"])),
            ("PublishAllPorts", json!(true)),
            ("UsernsMode", json!("host")),
            ("Privileged", json!(true)),
            ("PidMode", json!("host")),
            ("Init", json!(true)),
            ("NetworkMode", json!("bridge")),
            ("SecurityOpt", json!(["seccomp=unconfined"])),
        ] {
            let mut more = made();
            more["HostConfig"][field] = value;
            assert_eq!(compared(&more), Some(format!("HostConfig.{field}")));
        }
        let mut tty = made();
        tty["Config"]["Tty"] = json!(true);
        assert_eq!(compared(&tty).as_deref(), Some("Tty"));
        let mut wide = made();
        wide["HostConfig"]["Mounts"][0]["Source"] = json!("/");
        assert_eq!(compared(&wide).as_deref(), Some("HostConfig.Mounts"));
        let mut writable = made();
        writable["HostConfig"]["Mounts"][1]["ReadOnly"] = json!(false);
        assert_eq!(compared(&writable).as_deref(), Some("HostConfig.Mounts"));
        assert!(words(NEVER).contains(&"Devices".to_owned()));
    }
}
