//! This host's ceilings. A manifest's limits are lowered to them and never raised.

use std::time::Duration;

use crate::config::Config;
use crate::tree::scan::Bounds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ceilings {
    memory: u64,
    pids: u64,
    cpus_milli: u64,
    time: Duration,
    output: u64,
    workspace_bytes: u64,
    workspace_inodes: u64,
    file_bytes: u64,
    depth: usize,
    directory_entries: usize,
    tmp_bytes: u64,
}

impl Ceilings {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            memory: config.max_memory,
            pids: config.max_pids,
            cpus_milli: config.max_cpus.0,
            time: config.max_time,
            output: config.max_output,
            workspace_bytes: config.max_workspace_bytes,
            workspace_inodes: config.max_workspace_inodes,
            file_bytes: config.max_file_bytes,
            depth: config.max_workspace_depth,
            directory_entries: config.max_directory_entries,
            tmp_bytes: config.max_tmp_bytes,
        }
    }

    /// What one command gets; `timeout` may only shorten its time.
    pub(crate) fn lower(
        &self,
        wanted: &manifest::Limits,
        timeout: Option<Duration>,
    ) -> receipt::Limits {
        let time = wanted.time.min(self.time).min(timeout.unwrap_or(Duration::MAX));
        receipt::Limits {
            cpus_milli: wanted.cpus_milli.min(self.cpus_milli),
            file_bytes: wanted.file_bytes.min(self.file_bytes),
            memory: wanted.memory.min(self.memory),
            output: wanted.output.min(self.output),
            pids: wanted.pids.min(self.pids),
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            tmp_bytes: wanted.tmp_bytes.min(self.tmp_bytes),
            workspace_bytes: wanted.workspace_bytes.min(self.workspace_bytes),
            workspace_inodes: wanted.workspace_inodes.min(self.workspace_inodes),
        }
    }

    /// How much of a tree is read.
    pub(crate) fn bounds(&self, wanted: &manifest::Limits) -> Bounds {
        Bounds {
            entries: wanted.workspace_inodes.min(self.workspace_inodes),
            directory_entries: self.directory_entries,
            depth: self.depth,
            file_bytes: wanted.file_bytes.min(self.file_bytes),
            total_bytes: wanted.workspace_bytes.min(self.workspace_bytes),
        }
    }
}
