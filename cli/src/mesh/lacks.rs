//! What reviewed manifests name that their mesh does not have: a session under them would be refused later. It warns;
//! it refuses nothing.
use std::{collections::BTreeSet, fs, path::Path};

use manifest::Manifest;
use toml::{Table, Value};

use super::{Error, Layout, record::Record};
use crate::{
    doctor::{self, Engine},
    error::Causes,
    file,
};

/// One line each, in the order of the manifests' names.
pub(crate) async fn lacks(layout: &Layout, record: &Record) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for (name, dir) in &record.workspaces {
        if !dir.is_dir() {
            found.push(format!("workspace {name}: {} is not a directory", dir.display()));
        }
    }
    let known = offered(&layout.models())?;
    let engine = Engine::new(&record.engine);
    for manifest in offered_manifests(&layout.manifests())? {
        let Manifest { id, models, execution, .. } = manifest;
        for model in models.iter().filter(|model| !known.contains(*model)) {
            found.push(format!("manifest {id}: no model '{model}' is offered"));
        }
        let Some(image) = execution.image else { continue };
        if let Err(error) = doctor::image_id(&engine, &image).await {
            found.push(format!("manifest {id}: {}", Causes(&error)));
        }
    }
    Ok(found)
}

/// The models that model-svc is told of.
pub(super) fn offered(models: &Path) -> Result<BTreeSet<String>, Error> {
    let text = file::read_text(models)?;
    let table: Table = toml::from_str(&text).map_err(|error| Error::Models {
        file: models.display().to_string(),
        fault: error.message().to_owned(),
    })?;
    let listed = table.get("model").and_then(Value::as_array).into_iter().flatten();
    Ok(listed.filter_map(|model| model.get("id")?.as_str().map(str::to_owned)).collect())
}

fn offered_manifests(dir: &Path) -> Result<Vec<Manifest>, Error> {
    let listed = fs::read_dir(dir).map_err(file::failed("read", dir))?;
    let mut paths = listed
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(file::failed("read", dir))?;
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let manifest = Manifest::parse(&file::read(&path)?, &name);
        all.push(manifest.map_err(|faults| Error::Manifest(faults.to_string()))?);
    }
    Ok(all)
}
