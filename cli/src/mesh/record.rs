//! What a state directory remembers between two starts.
use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Error, Isolation, Layout, PolicyFiles, ports::Ports};
use crate::file::{self, Access};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) schema_version: u32,
    pub(crate) trust_domain: String,
    pub(crate) isolation: Isolation,
    pub(crate) ports: Ports,
    pub(crate) engine: PathBuf,
    pub(crate) workspaces: BTreeMap<String, PathBuf>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) dependencies: BTreeMap<String, PathBuf>,
    pub(crate) default_manifest: String,
    #[serde(default, skip_serializing_if = "PolicyFiles::is_empty")]
    pub(crate) policy: PolicyFiles,
}

impl Record {
    /// `None` where no mesh was made yet.
    pub(crate) fn read(layout: &Layout) -> Result<Option<Self>, Error> {
        let path = layout.record();
        if !path.exists() {
            return Ok(None);
        }
        let bytes = file::read(&path)?;
        serde_json::from_slice(&bytes).map(Some).map_err(|source| Error::Record { path, source })
    }

    pub(crate) fn write(&self, layout: &Layout) -> Result<(), Error> {
        let path = layout.record();
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|source| Error::Record { path: path.clone(), source })?;
        Ok(file::write(&path, &bytes, Access::PRIVATE)?)
    }
}
