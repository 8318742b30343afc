//! How commands of a task may run: back end, image, programs and limits. The executor lowers the limits to
//! its own ceilings; a manifest never raises them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fields::{Field, Reader, Table};
use crate::server::{self, Server};

const MAX_IMAGE: usize = 255;

/// Where commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// In containers.
    Oci,
    /// Nowhere: there is no command tool.
    None,
}

/// What a command sees of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A private copy.
    Snapshot,
    /// The workspace itself, writable where the task may modify it.
    Mount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub backend: Backend,
    pub mode: Mode,
    /// Present with [`Backend::Oci`].
    pub image: Option<String>,
    /// The programs a command may start; at least one with [`Backend::Oci`].
    pub allow_commands: Vec<String>,
    /// Named commands.
    pub checks: BTreeMap<String, Vec<String>>,
    /// Tool servers by name; none without [`Backend::Oci`].
    pub servers: BTreeMap<String, Server>,
    pub limits: Limits,
    pub dependencies: Vec<String>,
}

/// Bytes, unless the type or name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub memory: u64,
    pub pids: u64,
    pub cpus_milli: u64,
    pub time: Duration,
    pub output: u64,
    pub workspace_bytes: u64,
    pub workspace_inodes: u64,
    pub file_bytes: u64,
    pub tmp_bytes: u64,
}

const MIB: u64 = 1 << 20;

impl Limits {
    /// What a manifest that says nothing gets.
    pub const DEFAULT: Self = Self {
        memory: 512 * MIB,
        pids: 128,
        cpus_milli: 1_000,
        time: Duration::from_secs(300),
        output: 4 * MIB,
        workspace_bytes: 192 * MIB,
        workspace_inodes: 100_000,
        file_bytes: 128 * MIB,
        tmp_bytes: 64 * MIB,
    };
}

pub(crate) const EXECUTION_KEYS: [&str; 8] =
    ["backend", "mode", "image", "allow_commands", "checks", "servers", "limits", "dependencies"];
pub(crate) const LIMIT_KEYS: [&str; 9] = [
    "memory",
    "pids",
    "cpus",
    "time",
    "output",
    "workspace_bytes",
    "workspace_inodes",
    "file_bytes",
    "tmp_bytes",
];

impl Execution {
    /// A manifest without the key: no commands.
    pub(crate) fn none() -> Self {
        Self {
            backend: Backend::None,
            mode: Mode::Snapshot,
            image: None,
            allow_commands: Vec::new(),
            checks: BTreeMap::new(),
            servers: BTreeMap::new(),
            limits: Limits::DEFAULT,
            dependencies: Vec::new(),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Self> {
        let table = reader.table(&field.path, field.node, &EXECUTION_KEYS)?;
        let backend = reader.required(&table, "backend").and_then(|field| {
            reader.one_of(&field, &[("oci", Backend::Oci), ("none", Backend::None)])
        })?;
        let mode = optional(&table, "mode", Mode::Snapshot, |field| {
            reader.one_of(field, &[("snapshot", Mode::Snapshot), ("mount", Mode::Mount)])
        });
        let image = match backend {
            Backend::Oci => {
                reader.required(&table, "image").and_then(|field| image(reader, &field)).map(Some)
            }
            Backend::None => {
                optional(&table, "image", None, |field| image(reader, field).map(Some))
            }
        };
        let allow_commands = match backend {
            Backend::Oci => reader
                .required(&table, "allow_commands")
                .and_then(|field| reader.some_texts(&field)),
            Backend::None => {
                optional(&table, "allow_commands", Vec::new(), |field| reader.texts(field))
            }
        };
        let checks = optional(&table, "checks", BTreeMap::new(), |field| {
            checks(reader, field, allow_commands.as_deref())
        });
        let servers = optional(&table, "servers", BTreeMap::new(), |field| {
            if backend == Backend::None {
                let what = format!("{} needs backend: oci; remove it", field.path);
                reader.fault(field.node.place, what);
                return None;
            }
            if mode == Some(Mode::Mount) {
                let what = format!("{} work in a private copy: use mode: snapshot", field.path);
                reader.fault(field.node.place, what);
                return None;
            }
            server::read(reader, field, allow_commands.as_deref())
        });
        let limits =
            optional(&table, "limits", Limits::DEFAULT, |field| Limits::read(reader, field));
        let dependencies =
            optional(&table, "dependencies", Vec::new(), |field| reader.texts(field));
        Some(Self {
            backend,
            mode: mode?,
            image: image?,
            allow_commands: allow_commands?,
            checks: checks?,
            servers: servers?,
            limits: limits?,
            dependencies: dependencies?,
        })
    }
}

impl Limits {
    fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Self> {
        let table = reader.table(&field.path, field.node, &LIMIT_KEYS)?;
        let default = Self::DEFAULT;
        let memory = optional(&table, "memory", default.memory, |field| reader.bytes(field));
        let pids = optional(&table, "pids", default.pids, |field| reader.positive(field));
        let cpus_milli = optional(&table, "cpus", default.cpus_milli, |field| reader.milli(field));
        let time = optional(&table, "time", default.time, |field| reader.duration(field));
        let output = optional(&table, "output", default.output, |field| reader.bytes(field));
        let workspace_bytes =
            optional(&table, "workspace_bytes", default.workspace_bytes, |field| {
                reader.bytes(field)
            });
        let workspace_inodes =
            optional(&table, "workspace_inodes", default.workspace_inodes, |field| {
                reader.positive(field)
            });
        let file_bytes =
            optional(&table, "file_bytes", default.file_bytes, |field| reader.bytes(field));
        let tmp_bytes =
            optional(&table, "tmp_bytes", default.tmp_bytes, |field| reader.bytes(field));
        Some(Self {
            memory: memory?,
            pids: pids?,
            cpus_milli: cpus_milli?,
            time: time?,
            output: output?,
            workspace_bytes: workspace_bytes?,
            workspace_inodes: workspace_inodes?,
            file_bytes: file_bytes?,
            tmp_bytes: tmp_bytes?,
        })
    }
}

/// The default when the key is absent; `None` when it is present and wrong.
pub(crate) fn optional<'n, T>(
    table: &Table<'n>,
    key: &str,
    default: T,
    read: impl FnOnce(&Field<'n>) -> Option<T>,
) -> Option<T> {
    match table.get(key) {
        Some(field) => read(&field),
        None => Some(default),
    }
}

fn image(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/:@-".contains(c);
    if text.len() > MAX_IMAGE || !text.chars().all(plain) {
        let Field { path, node } = field;
        reader.fault(
            node.place,
            format!(
                "{path} is not an image name; use at most {MAX_IMAGE} of A-Z a-z 0-9 . _ / : @ -"
            ),
        );
        return None;
    }
    Some(text)
}

fn checks(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    allow_commands: Option<&[String]>,
) -> Option<BTreeMap<String, Vec<String>>> {
    let entries = reader.map(&field.path, field.node)?;
    let mut checks = Some(BTreeMap::new());
    for entry in entries {
        let check = Field { path: format!("{}.{}", field.path, entry.key), node: &entry.value };
        let argv = reader.some_texts(&check).filter(|argv| {
            let listed = allow_commands.is_none_or(|allowed| allowed.contains(&argv[0]));
            if !listed {
                reader.fault(
                    check.node.place,
                    format!("{} runs {}; add it to allow_commands", check.path, argv[0]),
                );
            }
            listed
        });
        checks = match (checks, argv) {
            (Some(mut checks), Some(argv)) => {
                checks.insert(entry.key.clone(), argv);
                Some(checks)
            }
            (_, None) | (None, _) => None,
        };
    }
    checks
}
