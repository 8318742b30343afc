//! Brings an operator's models file and the scripts and keys it names into model-svc's own directory.
//! It checks only what it has to touch; model-svc judges the rest.
use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{Argument, Error, named};
use crate::file;

/// A file of model-svc, by its name below its directory.
pub(crate) struct Staged {
    pub(crate) name: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// `scripts` are models of their own: each plays one file.
pub(crate) fn stage(
    file: Option<&Path>,
    scripts: &[(String, PathBuf)],
    home: &Path,
) -> Result<Vec<Staged>, Error> {
    let mut models = match file {
        Some(file) => configured(file)?,
        None => Vec::new(),
    };
    for (name, script) in scripts {
        named(name)?;
        models.push(Table::from_iter([
            ("id".to_owned(), Value::from(name.clone())),
            ("provider".to_owned(), Value::from("scripted")),
            ("script".to_owned(), Value::from(script.display().to_string())),
        ]));
    }
    if models.is_empty() {
        return Err(Error::Argument(Argument::NoModel));
    }
    let mut staged = Vec::new();
    for (index, model) in models.iter_mut().enumerate() {
        for (key, kind) in [("script", "scripts"), ("key_file", "keys")] {
            if let Some(Value::String(path)) = model.get(key) {
                if key == "key_file" {
                    private(Path::new(path))?;
                }
                let name = PathBuf::from(kind).join(format!("{index}"));
                staged.push(Staged { bytes: file::read(Path::new(path))?, name: name.clone() });
                model.insert(key.to_owned(), Value::from(home.join(name).display().to_string()));
            }
        }
    }
    let all = Table::from_iter([("model".to_owned(), Value::from(models))]);
    staged.push(Staged { name: PathBuf::from("models.toml"), bytes: all.to_string().into_bytes() });
    Ok(staged)
}

/// A key that others can read is no secret; a private copy of it would only hide that.
fn private(path: &Path) -> Result<(), Error> {
    let meta = std::fs::metadata(path).map_err(file::failed("read", path))?;
    match meta.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(Error::Models {
            file: path.display().to_string(),
            fault: "others can read this key; run: chmod 600 it".to_owned(),
        }),
    }
}

/// The models of a file, with every path in it made absolute.
fn configured(path: &Path) -> Result<Vec<Table>, Error> {
    let fault =
        |fault: &str| Error::Models { file: path.display().to_string(), fault: fault.to_owned() };
    let text = file::read_text(path)?;
    let mut table: Table = toml::from_str(&text).map_err(|error| fault(&one_line(&error)))?;
    let Some(Value::Array(models)) = table.remove("model") else {
        return Err(fault("it has no [[model]]"));
    };
    if let Some(key) = table.keys().next() {
        return Err(fault(&format!("unknown key '{key}'; expected [[model]] only")));
    }
    let beside = path.parent().unwrap_or_else(|| Path::new(""));
    let mut all = Vec::new();
    for model in models {
        let Value::Table(mut model) = model else {
            return Err(fault("each [[model]] is a table"));
        };
        for key in ["script", "key_file"] {
            if let Some(Value::String(named)) = model.get(key) {
                let absolute = beside.join(named).display().to_string();
                model.insert(key.to_owned(), Value::from(absolute));
            }
        }
        all.push(model);
    }
    Ok(all)
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn text(staged: &[Staged], name: &str) -> String {
        let found = staged.iter().find(|file| file.name == Path::new(name)).unwrap();
        String::from_utf8(found.bytes.clone()).unwrap()
    }

    #[test]
    fn named_files_come_along_and_paths_follow_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("turns.yaml"), "script: []").unwrap();
        let key = dir.path().join("key");
        fs::write(&key, "k").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let models = dir.path().join("models.toml");
        fs::write(
            &models,
            "[[model]]\nid = \"m\"\nprovider = \"openai-compatible\"\nkey_file = \"key\"\n",
        )
        .unwrap();
        let scripts = [("demo".to_owned(), dir.path().join("turns.yaml"))];
        let staged = stage(Some(&models), &scripts, Path::new("/home")).unwrap();
        assert_eq!(text(&staged, "keys/0"), "k");
        assert_eq!(text(&staged, "scripts/1"), "script: []");
        let written: Table = toml::from_str(&text(&staged, "models.toml")).unwrap();
        let listed = written["model"].as_array().unwrap();
        assert_eq!(listed[0]["key_file"].as_str(), Some("/home/keys/0"));
        assert_eq!(listed[1]["script"].as_str(), Some("/home/scripts/1"));
        assert_eq!(listed[1]["id"].as_str(), Some("demo"));

        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = stage(Some(&models), &scripts, Path::new("/home"));
        assert!(matches!(refused, Err(Error::Models { .. })), "others can read the key");
    }

    #[test]
    fn what_can_not_be_staged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models.toml");
        assert!(matches!(
            stage(None, &[], Path::new("/h")),
            Err(Error::Argument(Argument::NoModel))
        ));
        for wrong in
            ["", "x = 1", "model = 1", "model = [1]", "[[model]]\nid=\"a\"\n[other]\n", "]["]
        {
            fs::write(&models, wrong).unwrap();
            assert!(
                matches!(stage(Some(&models), &[], Path::new("/h")), Err(Error::Models { .. })),
                "{wrong}"
            );
        }
        let scripts = [("demo".to_owned(), dir.path().join("absent"))];
        assert!(matches!(stage(None, &scripts, Path::new("/h")), Err(Error::File(_))));
    }
}
